"""The daemon ends, once or often, during work: what was acknowledged is kept, what is lost is reported."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, is_gone, wait_for
from support.daemons import StartDaemon
from test_daemon_killed import WAIT, append_record, state
from test_nursery_faults import is_forked, ready_nursery
from test_resources import fill, small_disk


def shown(client: Client, session: str, run: str) -> dict[str, Any]:
    return client.request("run.show", session=session, run=run)


def ended(client: Client, session: str, run: str) -> dict[str, Any]:
    return wait_for(
        f"run {run} to end",
        lambda: (done := shown(client, session, run))["status"] not in ("running", "waiting") and done,
    )


def begin_waiting(client: Client, session: str) -> tuple[str, Path]:
    """A run that has begun and goes on when the file `go` is there."""
    workspace = Path(client.request("session.show", session=session)["workspace"])
    run = str(client.request("execute", session=session, code=WAIT, detach=True)["run_id"])
    wait_for("the run", lambda: client.request("session.log", session=session)["runs"][0]["stdout_bytes"] > 0)
    return run, workspace / "go"


def everything_dies(daemon: Daemon) -> None:
    """As in a power cut, but for the page cache: daemon, vault and boxes at once."""
    kernels, vaults = daemon.kernels(), daemon.vaults()
    daemon.kill()
    for pid in [*vaults, *kernels]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for("all to be gone", lambda: all(is_gone(pid) for pid in [*vaults, *kernels]))


@pytest.mark.parametrize(("how", "who"), [("kill", "root"), ("kill", "user"), ("terminate", "root")])
def test_l01_many_restarts_during_one_run_cost_nothing(start_daemon: StartDaemon, how: str, who: str) -> None:
    daemon = start_daemon(who=who)
    client = daemon.client()
    client.execute("x = 41", "s")
    run, go = begin_waiting(client, "s")
    for _ in range(4):
        getattr(daemon, how)()
        daemon.start()
    client = daemon.client()
    assert state(client, "s") == "running"
    go.touch()
    done = client.request("run.read", session="s", run=run)
    assert (done["status"], done["result"], client.out) == ("ok", {"text/plain": "42"}, b"before\nafter\n"), done
    getattr(daemon, how)()
    client = daemon.start().client()
    done = client.execute("x", "s")
    assert (done["result"], done.get("variables_lost")) == ({"text/plain": "41"}, None), done


def test_l01_answers_that_came_while_there_was_no_daemon_are_whole(start_daemon: StartDaemon) -> None:
    """A megabyte of value and displays: far more than fits into the pipe at once."""
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 41", "s")
    workspace = Path(client.request("session.show", session="s")["workspace"])
    code = (
        "import os, time\nprint('before', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
        "for i in range(20): display('d%d' % i * 10000)\n'v' * 500000"
    )
    run = client.request("execute", session="s", code=code, detach=True)["run_id"]
    wait_for("the run", lambda: client.request("session.log", session="s")["runs"][0]["stdout_bytes"] > 0)
    (workspace / "go").touch()
    for _ in range(12):
        daemon.kill()
        daemon.start()
    client = daemon.client()
    done = client.request("run.read", session="s", run=run)
    assert done["status"] == "ok" and len(done["result"]["text/plain"]) == 500002, done["error"]
    assert [display["text/plain"][1:3] for display in done["displays"]] == [f"d{i}"[:2] for i in range(20)]
    assert client.execute("x", "s")["result"] == {"text/plain": "41"}


def test_l01_artifacts_that_were_made_before_the_daemon_died_are_in_the_result(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("import os, time; os.makedirs('artifacts', exist_ok=True); open('artifacts/old', 'w').close()", "s")
    code = (
        "open('artifacts/before', 'w').close()\nprint('before', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nopen('artifacts/after', 'w').close()"
    )
    time.sleep(0.05)  # the clock of a file system ticks every few milliseconds
    run = client.request("execute", session="s", code=code, detach=True)["run_id"]
    wait_for("the run", lambda: client.request("session.log", session="s")["runs"][0]["stdout_bytes"] > 0)
    workspace = Path(client.request("session.show", session="s")["workspace"])
    for _ in range(2):
        daemon.kill()
        daemon.start()
    (workspace / "go").touch()
    done = ended(daemon.client(), "s", run)
    assert [Path(artifact["path"]).name for artifact in done["artifacts"]] == ["after", "before"], done


# ---- runs that can never end ----


def test_a_run_that_was_on_when_everything_died_is_reported_lost_and_blocks_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 41; open('file', 'w').write('stays')", "s")
    run, _ = begin_waiting(client, "s")
    everything_dies(daemon)
    client = daemon.start().client()
    assert state(client, "s") == "lost"
    lost = shown(client, "s", run)
    assert (lost["status"], lost["error"]["name"], lost["stdout"]) == ("killed", "run_lost", "before\n"), lost
    assert not client.request("session.interrupt", session="s")["interrupted"]
    # The loss is reported with the next result, once, whatever happens to the daemon before that.
    daemon.kill()
    client = daemon.start().client()
    done = client.execute("('x' in globals(), open('file').read())", "s")
    assert (done["result"], done.get("variables_lost")) == ({"text/plain": "(False, 'stays')"}, True), done
    assert "variables_lost" not in client.execute("y = 1", "s")
    daemon.kill()
    assert daemon.start().client().execute("y", "s").get("variables_lost") is None


def test_a_reported_loss_is_not_reported_again_by_the_next_daemon(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "died")
    client.execute("x = 1", "restarted")
    done = client.execute("import os; os._exit(3)", "died")
    assert done["variables_lost"] is True, done
    client.request("session.restart", session="restarted")
    wait_for("the restart", lambda: state(client, "restarted") == "new")
    daemon.kill()
    client = daemon.start().client()
    assert state(client, "restarted") == "new"
    for name in ("died", "restarted"):
        assert "variables_lost" not in client.execute("1", name), name


def test_a_loss_is_reported_though_the_daemon_dies_in_the_run_that_would_report_it(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    os.kill(daemon.agent_of("s"), signal.SIGKILL)
    wait_for("its end", lambda: state(client, "s") == "lost")
    run, go = begin_waiting(client, "s")
    daemon.kill()
    client = daemon.start().client()
    go.touch()
    done = ended(client, "s", run)
    assert done["variables_lost"] is True and done["error"]["name"] == "NameError", done  # x is what was lost
    assert "variables_lost" not in client.execute("1", "s")


@pytest.mark.parametrize(("lives", "mode"), [(True, "fast"), (True, "fresh"), (False, "fast")])
def test_a_damaged_end_of_a_run_blocks_nothing(start_daemon: StartDaemon, lives: bool, mode: str) -> None:
    """The kernel is asked once more and says that it has done that already: forked and executed ones do."""
    daemon = start_daemon("--preload", "this")
    client = daemon.client()
    client.execute("1")  # the first kernel brings the nursery
    ready_nursery(client)
    client.request("session.create", session="s", mode=mode)
    client.execute("x = 41", "s")
    assert mode == "fresh" or is_forked(client, "s")
    run = client.execute("x", "s")["run_id"]
    (journal,) = daemon.data.glob("state/*/journal/events")
    daemon.kill() if lives else everything_dies(daemon)
    content = bytearray(journal.read_bytes())
    at = content.rindex(b'{"run_id"') - 25 - 8  # the head of the record that ends it
    content[at + 5] ^= 1
    journal.write_bytes(content)
    if lives:  # what the kernel answered is lost, too
        os.truncate(journal.parent / "inbox", 0)
    client = daemon.start().client()
    answered = ended(client, "s", run)
    done = client.execute("'x' in globals()", "s")
    if lives:
        assert answered["error"]["name"] == "result_lost" and done["result"] == {"text/plain": "True"}, (answered, done)
    else:
        assert answered["error"]["name"] == "run_lost" and done["variables_lost"], (answered, done)


def test_a_result_that_there_is_no_room_for_blocks_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(start=False)
    daemon.socket = str(daemon.glovebox.place.path / "d.sock")
    with small_disk(daemon.data, "16m"):
        daemon.data.chmod(0o700)
        client = daemon.start().client()
        client.execute("x = 41", "s")
        for restarts in (False, True):
            run, go = begin_waiting(client, "s")
            filler = fill(daemon.data / "filler")
            filler.rename(go)  # which takes no room
            done = ended(client, "s", run)
            assert done["status"] == "ok", done
            if restarts:
                daemon.kill()
                client = daemon.start().client()
            go.unlink()
            assert ended(client, "s", run)["status"] in ("ok", "error")
            done = client.execute("x", "s")
            assert (done["result"], done.get("variables_lost")) == ({"text/plain": "41"}, None), done
        daemon.stop()


def test_a_run_of_an_older_version_without_an_end_blocks_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    daemon.client().execute("x = 41", "s")
    (journal,) = daemon.data.glob("state/*/journal/events")
    everything_dies(daemon)
    append_record(journal, 1, bytes(8) + b"old")
    client = daemon.start().client()
    assert ended(client, "s", "old")["error"]["name"] == "run_lost"
    assert client.execute("'x' in globals()", "s")["variables_lost"]


# ---- runs that wait ----


def test_runs_that_wait_are_on_disk_before_they_are_acknowledged_and_run_once_in_order(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("seen = []", "s")
    first, go = begin_waiting(client, "s")
    runs = [
        client.request("execute", session="s", code=f"seen.append({i}); seen", detach=True)["run_id"] for i in range(6)
    ]
    new = client.request("execute", session="fresh", code="6 * 7", detach=True)["run_id"]  # its box is being made
    daemon.kill()
    for _ in range(2):
        client = daemon.start().client()
        assert [shown(client, "s", run)["status"] for run in [first, *runs]] == ["running", *["waiting"] * 6]
        daemon.kill()
    daemon.start()
    client = daemon.client()
    go.touch()
    for number, run in enumerate(runs):
        done = ended(client, "s", run)
        assert done["result"] == {"text/plain": str(list(range(number + 1)))}, done
    assert ended(client, "fresh", new)["result"] == {"text/plain": "42"}
    daemon.kill()
    client = daemon.start().client()
    assert client.execute("seen", "s")["result"] == {"text/plain": str(list(range(6)))}
    assert not list(daemon.data.glob("state/*/waiting/*"))


def test_a_waiting_run_whose_box_cannot_be_made_is_reported_as_failed(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(start=False)
    shown_there = daemon.glovebox.place.path / "shown"
    shown_there.mkdir()
    daemon.options = (*daemon.options, "--allow-read", str(daemon.glovebox.place.path))
    client = daemon.start().client()
    mount = {"source": str(shown_there), "destination": "/mnt/x", "writable": False}
    client.request("session.create", session="s", mounts=[mount])
    shown_there.rmdir()
    run = client.request("execute", session="s", code="1", detach=True)["run_id"]
    done = ended(client, "s", run)
    assert (done["status"], done["error"]["name"]) == ("error", "not_run"), done


def test_the_time_limit_of_a_run_is_its_own_and_goes_on(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()  # --timeout 60s
    client = daemon.client()
    client.execute("import time; x = 41", "s")
    begun = time.monotonic()
    code = "while True: time.sleep(0.01)"
    run = client.request("execute", session="s", code=code, detach=True, timeout_ms=3000)["run_id"]
    wait_for("the run", lambda: state(client, "s") == "running")
    for _ in range(2):
        daemon.kill()
        daemon.start()
    client = daemon.client()
    done = ended(client, "s", run)
    took = time.monotonic() - begun
    assert (done["status"], done["timed_out"]) == ("timeout", True), done
    assert 2.9 < took < 15 and done["duration_ms"] >= 2900, (took, done["duration_ms"])
    assert client.execute("x", "s")["result"] == {"text/plain": "41"}
    # One whose time was up while there was no daemon is interrupted by the next one.
    run = client.request("execute", session="s", code=code, detach=True, timeout_ms=500)["run_id"]
    daemon.kill()
    time.sleep(0.6)
    assert ended(daemon.start().client(), "s", run)["status"] == "timeout"


# ---- trim, sleep, wake ----

BIG = "import array; big = [array.array('d', [float(i)]) * 300000 for i in range(8)]; x = 41"


def look(client: Client, name: str) -> None:
    done = client.execute("(x, sum(a[0] for a in big))", name)
    assert (done["result"], done.get("variables_lost")) == ({"text/plain": "(41, 28.0)"}, None), done


@pytest.mark.parametrize(("how", "who"), [("trim", "root"), ("sleep", "root"), ("wake", "root"), ("sleep", "user")])
def test_l02_killed_while_sessions_trim_sleep_or_wake_nothing_is_lost(
    start_daemon: StartDaemon, how: str, who: str
) -> None:
    turns = int(os.environ.get("GLOVEBOX_CHAOS_KILLS", "8"))
    daemon = start_daemon(who=who)
    client = daemon.client()
    client.execute(BIG, "s")
    for turn in range(turns):
        pause = 0.08 * turn / turns
        client = daemon.client()
        if how == "wake":
            if state(client, "s") != "asleep":
                client.request("session.hibernate", session="s")
            assert state(client, "s") == "asleep"
            client.begin("execute", session="s", code="y = 1")
        else:
            client.begin("session.hibernate", session="s", depth=how)
        time.sleep(pause)
        daemon.kill()
        client = daemon.start().client()
        wait_for("it to be at rest", lambda c=client: state(c, "s") in ("idle", "trimmed", "asleep"))
        look(client, "s")


def test_a_kernel_that_fell_asleep_is_ended_only_when_that_is_written_down(start_daemon: StartDaemon) -> None:
    """The file is there and the kernel lives: the kernel counts, and the file is removed."""
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 41", "s")
    client.request("session.hibernate", session="s")
    (sleep,) = daemon.data.glob("state/*/kernel/sleep")
    content = sleep.read_bytes()
    assert client.execute("x += 1; x", "s")["result"] == {"text/plain": "42"}
    assert not sleep.exists()
    daemon.kill()
    sleep.write_bytes(content)  # as if its removal had not come about
    client = daemon.start().client()
    assert state(client, "s") == "idle" and not sleep.exists()
    assert client.execute("x", "s")["result"] == {"text/plain": "42"}


@pytest.mark.parametrize("knows_id", [True, False])
def test_a_waiting_run_that_is_damaged_is_put_aside(start_daemon: StartDaemon, knows_id: bool) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    _, go = begin_waiting(client, "s")
    run = client.request("execute", session="s", code="x = 2", detach=True)["run_id"]
    daemon.kill()
    (waiting,) = daemon.data.glob("state/*/waiting/*")
    content = waiting.read_bytes()
    waiting.write_bytes(content[:-20] if knows_id else content[9:])
    for _ in range(2):
        client = daemon.start().client()
        assert "cannot be read" in daemon.words()
        if knows_id:
            assert shown(client, "s", run)["status"] == "waiting"
        else:
            with pytest.raises(DaemonError):
                shown(client, "s", run)
        daemon.kill()
    client = daemon.start().client()
    go.touch()
    if knows_id:
        done = ended(client, "s", run)
        assert (done["status"], done["error"]["name"]) == ("error", "not_run"), done
        assert "damaged" in done["error"]["message"], done
    wait_for("the other run", lambda: state(client, "s") == "idle")
    assert waiting.with_name(waiting.name + ".damaged").exists()
    done = client.execute("x", "s")
    assert (done["result"], done.get("variables_lost")) == ({"text/plain": "1"}, None), done


# ---- records of a run that is on are damaged ----


def damage_open_request(journal: Path, run: str, how: str) -> None:
    content = bytearray(journal.read_bytes())
    at = content.rindex(run.encode(), 0, content.rindex(b'"code"'))  # in the head of its record, not in its payload
    if how == "flip":
        content[at] ^= 1
    else:  # together with the end of the run before it
        del content[content.rindex(b'{"run_id"', 0, at) - 10 :]
    journal.write_bytes(content)


@pytest.mark.parametrize("mode", ["fast", "fresh"])
@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("end", ["go", "interrupt"])
def test_a_run_whose_record_is_damaged_while_it_is_on_blocks_nothing_and_costs_no_variable(
    start_daemon: StartDaemon, mode: str, how: str, end: str
) -> None:
    """The daemon does not know that the kernel is busy, nor with what; and no earlier run may be done again."""
    daemon = start_daemon("--preload", "this")
    client = daemon.client()
    client.execute("1")
    ready_nursery(client)
    client.request("session.create", session="s", mode=mode)
    client.execute("x = 40; done = []", "s")
    client.execute("done.append(1); x += 1", "s")
    run, go = begin_waiting(client, "s")
    (journal,) = daemon.data.glob("state/*/journal/events")
    daemon.kill()
    damage_open_request(journal, run, how)
    daemon.start()
    if end == "interrupt":  # and it is known for longer than one daemon lives
        daemon.kill()
        daemon.start()
    client = daemon.client()
    with pytest.raises(DaemonError):
        shown(client, "s", run)
    new = client.request("execute", session="s", code="(x, done)", detach=True)["run_id"]
    if end == "go":
        go.touch()
    else:
        assert client.request("session.interrupt", session="s")["interrupted"]
    done = ended(client, "s", new)
    assert (done["status"], done["result"]) == ("ok", {"text/plain": "(41, [1])"}), done
    assert not done.get("variables_lost"), done
    daemon.kill()
    done = daemon.start().client().execute("done", "s")
    assert (done["result"], done.get("variables_lost")) == ({"text/plain": "[1]"}, None), done


@pytest.mark.parametrize("how", ["head", "missing"])
def test_a_journal_that_is_gone_with_the_kernel_is_a_loss_that_is_reported_once(
    start_daemon: StartDaemon, how: str
) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    (journal,) = daemon.data.glob("state/*/journal/events")
    everything_dies(daemon)
    if how == "missing":
        journal.unlink()
    else:
        journal.write_bytes(bytes(64) + journal.read_bytes()[64:])
    client = daemon.start().client()
    assert state(client, "s") == "lost"
    assert client.execute("'x' in globals()", "s")["variables_lost"] is True
    assert "variables_lost" not in client.execute("1", "s")
