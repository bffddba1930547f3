"""The daemon is killed, stopped, started: sessions stay, runs are found again, nothing is left over."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import struct
import time
from pathlib import Path

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, belongings, is_gone, wait_for
from support.daemons import StartDaemon


def state(client: Client, name: str) -> str:
    return str(client.request("session.show", session=name)["state"])


WAIT = """
import os, time
print('before', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
print('after')
x + 1"""


@pytest.mark.parametrize("who", ["root", "user"])
def test_l01_killed_in_the_middle_of_a_run_its_output_and_result_are_fetched_later(
    start_daemon: StartDaemon, who: str
) -> None:
    daemon = start_daemon(who=who)
    client = daemon.client()
    client.execute("x = 41; open('file', 'w').write('stays')", "s")
    workspace = Path(client.request("session.show", session="s")["workspace"])
    run = client.request("execute", session="s", code=WAIT, detach=True)["run_id"]
    wait_for("the run", lambda: client.request("session.log", session="s")["runs"][0]["stdout_bytes"] > 0)
    daemon.kill()
    client = daemon.start().client()
    assert "took over 1 living kernel" in daemon.words()
    assert state(client, "s") == "running"
    number = client.begin("run.read", session="s", run=run)
    (workspace / "go").touch()
    done = client.finish(number)
    assert (done["status"], done["result"], client.out) == ("ok", {"text/plain": "42"}, b"before\nafter\n"), done
    assert client.execute("(x, open('file').read())", "s")["result"] == {"text/plain": "(41, 'stays')"}
    again = client.request("run.read", session="s", run=run)
    assert again["result"] == {"text/plain": "42"} and client.out == b"before\nafter\n"


def test_l01_a_run_that_ends_while_there_is_no_daemon_is_not_lost(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 41", "s")
    workspace = Path(client.request("session.show", session="s")["workspace"])
    code = WAIT + "; open('done', 'w').close()"
    run = client.request("execute", session="s", code=code, detach=True)["run_id"]
    wait_for("the run", lambda: client.request("session.log", session="s")["runs"][0]["stdout_bytes"] > 0)
    daemon.kill()
    (workspace / "go").touch()
    wait_for("the code to end", lambda: (workspace / "done").exists())
    client = daemon.start().client()
    done = client.request("run.read", session="s", run=run)
    assert (done["status"], client.out) == ("ok", b"before\nafter\n"), done
    assert client.execute("x", "s")["result"] == {"text/plain": "41"}


def test_l01_a_run_that_was_answered_a_moment_ago_is_in_the_journals_file(start_daemon: StartDaemon) -> None:
    """An answer means that it is written down: no record waits in memory for its file."""
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 0", "s")
    answered = []
    for turn in range(4):
        answered.append(client.execute("x = x + 1\nx", "s"))
        (journal,) = daemon.data.glob("state/*/journal/events")
        assert answered[-1]["run_id"].encode() in journal.read_bytes()
        daemon.kill()
        client = daemon.start().client()
        for number, known in enumerate(answered):
            again = client.request("run.read", session="s", run=known["run_id"])
            assert (again["status"], again["result"]) == ("ok", {"text/plain": f"{number + 1}"}), (turn, again)
    listed = [run["run_id"] for run in client.request("session.log", session="s")["runs"]]
    assert [run["run_id"] for run in reversed(answered)] == listed[: len(answered)]


def test_l01_a_daemon_that_is_started_while_another_one_exits_waits_for_its_end(start_daemon: StartDaemon) -> None:
    """A supervisor does just that, and a dying process holds its lock for some milliseconds."""
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 41", "s")
    for _ in range(10):
        time.sleep(0.06)  # from here on there is a watch on the artifacts, which takes Linux long to end
        client.execute("pass", "s")
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGKILL)
        dying, daemon.process = daemon.process, None
        client = daemon.start().client()
        dying.wait()
    assert client.execute("x", "s")["result"] == {"text/plain": "41"}


def test_l01_a_kernel_that_dies_while_there_is_no_daemon_is_reported_lost(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1; open('file', 'w').write('stays')", "s")
    agent = daemon.agent_of("s")
    daemon.kill()
    os.kill(agent, signal.SIGKILL)
    wait_for("its end", lambda: is_gone(agent))
    client = daemon.start().client()
    done = client.execute("('x' in globals(), open('file').read())", "s")
    assert (done["result"], done["variables_lost"]) == ({"text/plain": "(False, 'stays')"}, True), done


def append_record(journal: Path, kind: int, payload: bytes) -> None:
    """As a daemon writes it (src/journal/journal_file.h)."""
    checksum = 2166136261
    for byte in struct.pack("<IB", len(payload), kind) + payload[:64]:
        checksum = (checksum ^ byte) * 16777619 & 0xFFFFFFFF
    checksum = (checksum >> 24) ^ (checksum & 0xFFFFFF)
    with journal.open("ab") as file:
        file.write(struct.pack("<II", len(payload), checksum << 8 & 0xFFFFFFFF | kind) + payload)


def append_request(journal: Path, run_id: str, code: str) -> None:
    """What a daemon writes before it sends a run to its kernel."""
    inbox = (journal.parent / "inbox").stat().st_size
    payload = json.dumps({"id": run_id, "code": code}).encode()
    now_ms = int(time.monotonic() * 1000)
    head = struct.pack("<qqQIBBB", 0, now_ms, 60000, inbox, 1, 1, len(run_id))
    append_record(journal, 6, head + run_id.encode() + payload)


@pytest.mark.parametrize("size", [0, 200000])
def test_l01_a_run_that_never_reached_its_kernel_is_sent_by_the_next_daemon(
    start_daemon: StartDaemon, size: int
) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 41", "s")
    (journal,) = daemon.data.glob("state/*/journal/events")
    daemon.kill()
    append_request(journal, "begun", "x += 1\nx" + "#" * size)
    client = daemon.start().client()
    answered = client.request("run.read", session="s", run="begun")
    assert (answered["status"], answered["result"]) == ("ok", {"text/plain": "42"}), answered
    done = client.execute("x", "s")
    assert (done["result"], done.get("variables_lost")) == ({"text/plain": "42"}, None), done


def test_l01_an_ephemeral_run_ends_with_its_daemon(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--pool", "1")
    client = daemon.client()
    client.begin("execute", ephemeral=True, code="print('on', flush=True)\nimport time; time.sleep(3600)", stream=True)
    client.receive()
    daemon.kill()
    daemon.options = tuple("0" if option == "1" else option for option in daemon.options)
    daemon.start()
    wait_for("its box to be gone", lambda: not daemon.kernels())
    wait_for("its state to be gone", lambda: os.listdir(daemon.data / "state") == [])


def work(client: Client, choose: random.Random, turn: int) -> None:
    """Starts something and waits for none of it."""
    name = f"s{choose.randrange(3)}"
    kind = choose.randrange(6)
    if kind <= 1:
        client.begin("execute", session=name, code=f"x = {turn}\nprint('y' * {choose.randrange(200000)})", stream=True)
    elif kind == 2:
        client.begin("execute", ephemeral=True, code="print(1)")
    elif kind == 3:
        client.begin("session.hibernate", session=name)
    elif kind == 4:
        client.begin("file.write", b"z" * choose.randrange(300000), session=name, path="file")
    else:
        client.begin("session.remove", session=name)


def descriptors_at_rest(daemon: Daemon, client: Client) -> int:
    """How many the daemon has open when its pool is full and this is its only client."""

    def look() -> int | None:
        status = client.request("status")
        at_rest = status["pool"]["ready"] == status["pool"]["wanted"] and status["daemon"]["clients"] == 1
        return daemon.descriptors() if at_rest and os.listdir(daemon.data / "state") == [] else None

    return int(wait_for("the daemon to be at rest", look))


@pytest.mark.timeout(300)
def test_l02_killed_two_hundred_times_at_random_points_under_load_nothing_leaks(start_daemon: StartDaemon) -> None:
    choose = random.Random(20240)
    daemon = start_daemon("--pool", "1")
    client = daemon.client()
    client.request("session.create", session="first")  # the registry's log is opened with the first write
    client.request("session.remove", session="first")
    descriptors = descriptors_at_rest(daemon, client)
    for turn in range(200):
        client = daemon.client()
        with contextlib.suppress(OSError):
            for _ in range(choose.randrange(1, 8)):
                work(client, choose, turn)
        # A random amount of progress, not of time: so many messages, then the axe.
        client.socket.settimeout(0.5)
        with contextlib.suppress(OSError):
            for _ in range(choose.randrange(4)):
                client.receive()
        daemon.kill()
        daemon.start()
    client = daemon.client()
    for session in client.request("session.list")["sessions"]:
        done = client.execute("6 * 7", session["name"])
        assert (done["status"], done["result"]) == ("ok", {"text/plain": "42"}), done
        client.request("session.remove", session=session["name"])
    assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
    # What is left is what a daemon that has just been started has: its pool, which has no state on the disk.
    wait_for("the state of old kernels to go", lambda: os.listdir(daemon.data / "state") == [])
    assert os.listdir(daemon.data / "sessions") == []
    # A kernel in the pool that was forked needs two more than one that was started cold.
    wait_for("what the reaper has not done yet", lambda: descriptors_at_rest(daemon, client) <= descriptors + 2)
    assert len(daemon.vaults()) == 1


def test_leftovers_of_a_daemon_are_detected_and_those_of_others_are_not(start_daemon: StartDaemon) -> None:
    """The check after each of these tests is worth something only if it can fail, and only for what is its own."""
    first, second = start_daemon(), start_daemon()
    first.client().execute("1", "s")
    mine, others = belongings(first.glovebox), belongings(second.glovebox)
    assert mine["groups"] and len(mine["processes"]) >= 4, mine  # daemon, maker, vault, agent, kernel, …
    assert not mine["processes"] & others["processes"] and not others["groups"]


def test_l20_a_live_daemon_is_never_displaced_and_a_dead_ones_locks_are_taken(start_daemon: StartDaemon) -> None:
    first = start_daemon()
    first.client().execute("x = 1", "s")
    other = Daemon(first.glovebox, *first.options)
    other.socket = str(first.data / "other.sock")
    other.log = first.glovebox.place.path / "other.log"
    assert other.launch().wait(60) != 0
    assert f"process {first.pid}" in other.words(), other.words()
    assert first.client().execute("x", "s")["result"] == {"text/plain": "1"}
    first.kill()
    assert (first.data / "registry.lock").exists() and Path(first.socket).is_socket()
    assert first.start().client().execute("x", "s")["result"] == {"text/plain": "1"}


def test_l26_sigterm_leaves_the_sessions_and_exits_with_0(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--pool", "1")
    client = daemon.client()
    client.execute("x = 41", "s")
    workspace = Path(client.request("session.show", session="s")["workspace"])
    run = client.request("execute", session="s", code=WAIT, detach=True)["run_id"]
    wait_for("the run", lambda: client.request("session.log", session="s")["runs"][0]["stdout_bytes"] > 0)
    assert daemon.terminate() == 0, daemon.words()
    assert not Path(daemon.socket).exists()
    assert len(os.listdir(daemon.data / "state")) == 1  # the pool is gone, the session is not
    (workspace / "go").touch()
    client = daemon.start().client()
    done = client.request("run.read", session="s", run=run)
    assert done["result"] == {"text/plain": "42"} and client.out == b"before\nafter\n", done
    assert daemon.terminate(signal.SIGINT) == 0
    assert daemon.start().client().execute("x", "s")["result"] == {"text/plain": "41"}


def test_l26_shutdown_with_end_ends_the_sessions_and_keeps_their_files(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1; open('file', 'w').write('stays')", "s")
    agent = daemon.agent_of("s")
    client.request("shutdown", sessions="end")
    assert daemon.process is not None and daemon.process.wait(60) == 0
    wait_for("the box to be gone", lambda: is_gone(agent))
    assert daemon.vaults() == []
    client = daemon.start().client()
    done = client.execute("('x' in globals(), open('file').read())", "s")
    assert done["result"] == {"text/plain": "(False, 'stays')"}, done


def test_l26_shutdown_ends_the_vault_although_a_removed_session_is_still_ending(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    client.begin("session.remove", session="s")
    client.begin("shutdown")
    assert daemon.process is not None and daemon.process.wait(60) == 0
    assert daemon.vaults() == []


def test_l30_a_daemon_that_cannot_start_gives_the_reason_and_deletes_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    daemon.client().execute("x = 1; open('file', 'w').write('stays')", "s")
    before = sorted(os.listdir(daemon.data / "state")), sorted(os.listdir(daemon.data / "sessions"))
    daemon.kill()
    good = daemon.socket
    daemon.socket = "/proc/1/no-such-place/d.sock"
    for _ in range(5):
        assert daemon.launch().wait(60) != 0
    assert daemon.words().count("no-such-place") >= 5, daemon.words()
    daemon.socket = good
    assert (sorted(os.listdir(daemon.data / "state")), sorted(os.listdir(daemon.data / "sessions"))) == before
    assert daemon.start().client().execute("x", "s")["result"] == {"text/plain": "1"}


def test_l13_a_client_that_disconnects_leaves_or_ends_its_run_as_requested(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("import time", "stays")
    client.execute("import time", "ends")
    for name, cancel in (("stays", False), ("ends", True)):
        goes = daemon.client()
        code = "print('on', flush=True)\nfor _ in range(36000): time.sleep(0.1)"
        goes.begin("execute", session=name, code=code, stream=True, cancel_on_disconnect=cancel)
        goes.receive()
        goes.close()
    wait_for("the one run to end", lambda: state(client, "ends") == "idle")
    assert state(client, "stays") == "running"
    run = client.request("session.log", session="stays")["runs"][0]["run_id"]
    assert client.request("session.interrupt", session="stays")["interrupted"]
    done = client.request("run.read", session="stays", run=run)
    assert (done["status"], client.out) == ("interrupted", b"on\n"), done
    with pytest.raises(DaemonError):
        client.request("run.read", session="stays", run="f" * 32)
