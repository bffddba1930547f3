"""Another Glovebox as the engine: what happens when the connection, the remote or the daemon dies in the middle."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import DaemonError
from support.counted_run import LINES, STDERR, STDOUT, Reader
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon, make_daemons
from support.remote import Remote, make_certificate, serve_remote


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


@pytest.fixture
def remote(start: StartDaemon, tmp_path: Path) -> Iterator[Remote]:
    with serve_remote(start, tmp_path, "--allow-read", "/tmp") as made:
        yield made


@pytest.fixture
def daemon(start: StartDaemon, remote: Remote) -> Daemon:
    return start(*remote.options, env=remote.env)


def test_cuts_in_the_middle_of_a_stream_lose_nothing_and_run_nothing_twice(daemon: Daemon, remote: Remote) -> None:
    reader = Reader(daemon.client(), "s")
    for step in range(1, 8):
        wait_for("more output", lambda step=step: len(reader.out) > step * 20000 or not reader.is_alive())
        if step % 2:
            assert remote.relay.cut() > 0
        else:
            remote.relay.limit = 3001  # in the middle of a message
    assert reader.whole()["status"] == "ok"
    assert remote.relay.connections >= 8
    assert daemon.client().read_file("s", "executed") == b"x"


def test_a_cut_before_the_run_was_acknowledged_does_not_run_it_twice(daemon: Daemon, remote: Remote) -> None:
    client = daemon.client()
    client.execute("1", "s")
    for cut_at in (1, 20, 60, 100, 200):
        remote.relay.limit = cut_at
        done = client.execute("open('n', 'a').write('x'); print('told')", "s")
        assert (done["status"], done["stdout"]) == ("ok", "told\n"), done
    assert client.read_file("s", "n") == b"x" * 5


def test_the_remote_dies_in_the_middle_of_a_stream(daemon: Daemon, remote: Remote) -> None:
    reader = Reader(daemon.client(), "s")
    wait_for("output", lambda: len(reader.out) > 20000)
    remote.kill()
    time.sleep(0.3)
    remote.start()
    assert reader.whole()["status"] == "ok"
    assert daemon.client().read_file("s", "executed") == b"x"
    assert daemon.client().execute("i", "s")["result"] == {"text/plain": str(LINES - 1)}


def test_the_local_daemon_dies_in_the_middle_of_a_stream(daemon: Daemon, remote: Remote) -> None:
    reader = Reader(daemon.client(), "s")
    wait_for("output", lambda: len(reader.out) > 20000)
    daemon.kill()
    reader.join(60)
    client = daemon.start().client()
    client.request("run.read", session="s", run=reader.run_id)
    assert (client.out, client.err) == (STDOUT, STDERR)
    assert client.read_file("s", "executed") == b"x"
    assert client.request("session.log", session="s")["runs"][0]["status"] == "ok"
    assert len(remote.sessions()) == 1


def test_the_helper_dies_in_the_middle_of_a_stream(daemon: Daemon, remote: Remote) -> None:
    reader = Reader(daemon.client(), "s")
    wait_for("output", lambda: len(reader.out) > 20000)
    os.kill(daemon.helper("remote"), signal.SIGKILL)
    assert reader.whole()["status"] == "ok"
    assert daemon.client().read_file("s", "executed") == b"x"


def test_a_hanging_remote_delays_no_other_session(start: StartDaemon, remote: Remote) -> None:
    client = start("--engine", "native", *remote.options, "--remote-timeout", "2s", env=remote.env).client()
    client.execute("1", "native")
    client.request("session.create", session="far", engine="remote")
    remote.daemon.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
    try:
        waiting = client.begin("execute", session="far", code="1")
        begun = time.monotonic()
        for _ in range(20):
            assert client.execute("1 + 1", "native")["result"] == {"text/plain": "2"}
        assert client.execute("2", "fresh")["result"] == {"text/plain": "2"}
        assert time.monotonic() - begun < 5
        assert client.request("status")["daemon"]["longest_turn_ms"] < 1000
        with pytest.raises(DaemonError, match="does not answer") as caught:
            client.finish(waiting)
        assert caught.value.code == "timeout"
    finally:
        remote.daemon.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]


def test_a_remote_that_is_away_is_waited_for_and_then_said_to_be_away(start: StartDaemon, remote: Remote) -> None:
    client = start(*remote.options, "--remote-timeout", "2s", env=remote.env).client()
    client.execute("x = 1", "s")
    remote.kill()
    with pytest.raises(DaemonError, match="cannot be reached") as caught:
        client.execute("x", "s")
    assert caught.value.code == "gone"
    remote.start()
    assert client.execute("x", "s")["result"] == {"text/plain": "1"}


def test_a_reader_that_does_not_read_costs_no_memory(daemon: Daemon, remote: Remote) -> None:
    client, other = daemon.client(), daemon.client()
    client.begin("execute", session="s", code="for i in range(12): print('z' * (1 << 20))", stream=True)
    wait_for("the run to end", lambda: other.request("session.show", session="s")["state"] == "idle")
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) < 60 << 10
    assert client.finish()["status"] == "ok"
    assert len(client.out) == 12 * ((1 << 20) + 1)


def test_files_larger_than_any_buffer_go_both_ways(daemon: Daemon) -> None:
    client = daemon.client()
    content = os.urandom(5 << 20) * 8
    client.request("session.create", session="s")
    client.write_file("s", "big", content)
    assert client.read_file("s", "big") == content
    assert client.execute("import os; os.path.getsize('big')", "s")["result"] == {"text/plain": str(len(content))}


def test_a_file_is_read_on_after_a_cut_and_not_half_written(daemon: Daemon, remote: Remote) -> None:
    client = daemon.client()
    content = os.urandom(1 << 20) * 8
    client.request("session.create", session="s")
    client.write_file("s", "big", content)
    remote.relay.limit = 3 << 20
    assert client.read_file("s", "big") == content
    remote.relay.is_open = False
    remote.relay.cut()
    with pytest.raises(DaemonError, match="broke"):
        client.write_file("s", "big", b"other")
    remote.relay.is_open = True
    assert client.read_file("s", "big") == content


def test_a_missing_module_is_added_by_the_name_that_the_session_has_here(daemon: Daemon) -> None:
    missing = daemon.client().execute("import no_such_module", "here")["error"]["traceback"]
    assert missing.endswith("[to add it to this session: glovebox session install here no_such_module]\n"), missing


def test_ephemeral_runs_and_commands(daemon: Daemon, remote: Remote) -> None:
    client = daemon.client()
    assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
    code = "import atexit; atexit.register(print, 'bye'); open('artifacts/a', 'w').write(input() + open('f').read())"
    whole = {"one_shot": True, "contents": True, "stdin_text": "in ", "files": {"f": "file"}}
    done = client.request("execute", ephemeral=True, code=code, **whole)
    assert (done["stdout"], done["artifacts"][0]["content"]) == ("bye\n", "aW4gZmlsZQ=="), done
    assert remote.sessions() == []
    code = "text = '''" + "a" * (2 << 20) + "'''; len(text)"
    done = client.request("execute", code.encode(), session="long", code_follows=True)
    assert done["result"] == {"text/plain": str(2 << 20)}


def test_the_remote_s_refusals_come_in_its_words(start: StartDaemon, tmp_path: Path) -> None:
    with serve_remote(start, tmp_path, "--key-sandboxes", "1", "--max-memory", "600m") as remote:
        client = start(*remote.options, env=remote.env).client()
        client.execute("1", "one")
        with pytest.raises(DaemonError, match="sandboxes") as caught:
            client.execute("1", "two")
        assert caught.value.code == "limit"
        names = [item["name"] for item in client.request("session.list")["sessions"]]
        assert names == ["one"], "what the remote refused is not left here"
        client.request("session.remove", session="one")
        with pytest.raises(DaemonError, match="this service gives a sandbox at most"):
            client.request("session.create", session="three", limits={"memory": "700m"})
        with pytest.raises(DaemonError, match="no image"):
            client.request("session.create", session="three", image="nowhere")
        assert client.request("session.list")["sessions"] == []
        assert remote.sessions() == []


def test_a_remote_that_cannot_be_trusted_gets_no_key(start: StartDaemon, remote: Remote, tmp_path: Path) -> None:
    other, _ = make_certificate(tmp_path, "elsewhere")
    for options, env, words in (
        (("--remote-url", remote.url), remote.env, "cannot be trusted"),
        (("--remote-url", remote.url, "--remote-ca", str(other)), remote.env, "cannot be trusted"),
        (remote.options, {"SANDBOX_API_KEY": "gb_" + "0" * 64}, "the key is not known"),
        (remote.options, {}, "needs a key"),
        (("--remote-url", "http://192.0.2.1:80"), remote.env, "must begin with https"),
        (("--remote-url", "https://localhost:1", "--remote-timeout", "1s"), remote.env, "cannot be reached"),
    ):
        made = start("--engine", "remote", *options, env=env, start=False)
        assert made.launch().wait(60) != 0
        assert words in made.words()


def test_the_key_is_in_no_environment(daemon: Daemon, remote: Remote) -> None:
    daemon.client().execute("1", "s")
    for pid in (daemon.pid, daemon.helper("remote"), daemon.helper("maker")):
        assert remote.key.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert remote.key.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_auto_is_the_remote_where_there_is_one(daemon: Daemon) -> None:
    status = daemon.client().request("status")
    assert (status["engine"], status["engine_why"].split(":")[0]) == ("remote", "auto")
    assert "SANDBOX_API_URL" in status["engine_why"]
    client = daemon.client()
    client.request("session.create", session="here", engine="native")
    client.execute("x = 1", "here")
    client.execute("x = 2", "there")
    assert client.execute("x", "here")["result"] == {"text/plain": "1"}
    shown = {name: client.request("session.show", session=name) for name in ("here", "there")}
    assert (shown["here"]["engine"], shown["there"]["engine"]) == ("native", "remote")
    assert shown["there"]["isolation"]["remote"]["engine"] == "native"


def test_a_session_moves_there_and_back_with_its_variables_and_files(daemon: Daemon, remote: Remote) -> None:
    client = daemon.client()
    client.request("session.create", session="moving", engine="native")
    code = "n = [1, 2]; m = {'n': n}; import os; os.makedirs('a/b'); open('a/b/kept.txt', 'w').write('file')"
    client.execute(code + "; os.symlink('a', 'link')", "moving")
    for engine in ("remote", "native"):
        moved = daemon.cli("session", "move", "moving", "--engine", engine)
        assert moved.returncode == 0, moved.stderr
        left = "left behind: link\n" if engine == "remote" else ""
        assert moved.stdout == f"session moving is on {engine}\n{left}"
        done = client.execute("(n, m['n'] is n, open('a/b/kept.txt').read())", "moving")
        assert done["result"]["text/plain"] == "([1, 2], True, 'file')", done
        assert not done.get("variables_lost")
        assert client.request("session.show", session="moving")["isolation"]["engine"] == engine
        assert len(remote.sessions()) == (engine == "remote") or wait_for("the sweep", lambda: not remote.sessions())
        client.execute("n.append(3) or n.pop(); open('a/b/kept.txt', 'w').write('file')", "moving")
    client.execute("held = (i for i in range(3)); next(held)", "moving")
    refused = daemon.cli("session", "move", "moving", "--engine", "remote")
    assert refused.returncode != 0 and '"held" cannot come along' in refused.stderr
    client.execute("del held", "moving")
    remote.relay.is_open = False
    remote.relay.cut()
    failed = daemon.cli("session", "move", "moving", "--engine", "remote")
    assert failed.returncode != 0
    assert client.execute("n", "moving")["result"] == {"text/plain": "[1, 2]"}, "it is where it was"


def test_leftovers_at_the_remote_are_swept(daemon: Daemon, remote: Remote) -> None:
    client = daemon.client()
    client.execute("x = 1", "kept")
    client.execute("x = 2", "lost")
    daemon.kill()
    lost = next(row for row in remote.sessions() if not row["name"].endswith(_id_of(daemon, "kept")))
    with contextlib.closing(sqlite3.connect(daemon.data / "registry.db")) as registry:
        registry.execute("DELETE FROM session WHERE name = 'lost'")
        registry.commit()
    for directory in ("state", "sessions"):
        shutil.rmtree(daemon.data / directory / lost["name"].partition("-")[2])
    client = daemon.start().client()
    wait_for("the sweep", lambda: len(remote.sessions()) == 1)
    assert client.execute("x", "kept")["result"] == {"text/plain": "1"}


def _id_of(daemon: Daemon, name: str) -> str:
    with contextlib.closing(sqlite3.connect(daemon.data / "registry.db")) as registry:
        return registry.execute("SELECT id FROM session WHERE name = ?", (name,)).fetchone()[0]
