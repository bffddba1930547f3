"""Time, memory and output: every limit holds and is reported, and the session still works."""

from __future__ import annotations

import os
import signal

import pytest
from support.client import Client
from support.daemon import Daemon, memory_of, wait_for

MIB = 1 << 20

STUBBORN = {
    "ignores SIGINT": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "handles SIGINT": "import signal; signal.signal(signal.SIGINT, lambda *ignored: None)\nwhile True: pass",
    "stops itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "forks and forks": """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    try: os.fork()
    except OSError: pass
""",
}


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


def test_timeout_interrupts_and_keeps_the_variables(client: Client) -> None:
    client.execute("kept = [1, 2, 3]", "timeout")
    done = client.execute("print('before', flush=True)\nwhile True: pass", "timeout", timeout_ms=400)
    assert (done["status"], done["exit_code"], done["timed_out"]) == ("timeout", 124, True), done
    assert "0.4 s" in done["error"]["message"] and "variables are kept" in done["error"]["message"], done
    assert done["stdout"] == "before\n" and not done.get("variables_lost")
    assert client.execute("kept", "timeout")["result"] == {"text/plain": "[1, 2, 3]"}


def test_code_that_does_not_react_is_killed_said_so_and_the_session_is_usable_at_once(client: Client) -> None:
    limits = {"pids": 16, "cpus": 0.5}
    for name in STUBBORN:
        client.execute("kept = 1; open('file', 'w').write('stays')", name.replace(" ", "-"), limits=limits)
    runs = {
        name: client.begin("execute", session=name.replace(" ", "-"), code=code, timeout_ms=2000)
        for name, code in STUBBORN.items()
    }
    for name, number in runs.items():
        done = client.finish(number)
        assert (done["status"], done["exit_code"], done["timed_out"]) == ("timeout", 124, True), (name, done)
        assert done.get("variables_lost") is True and "variables are lost" in done["error"]["message"], (name, done)
    for name in STUBBORN:
        after = client.execute("('kept' in globals(), open('file').read())", name.replace(" ", "-"))
        assert after["result"] == {"text/plain": "(False, 'stays')"}, (name, after)
        client.request("session.remove", session=name.replace(" ", "-"))


def test_a_flood_is_cut_counted_and_does_not_grow_the_daemon(daemon: Daemon, client: Client) -> None:
    client.execute("import os", "flood")
    before = memory_of(daemon.pid)
    done = client.execute("block = b'x' * (1 << 20)\nfor _ in range(300): os.write(1, block)", "flood")
    assert done["status"] == "ok", done
    assert len(done["stdout"]) == MIB and done["stdout_cut_bytes"] == 300 * MIB - MIB, done["stdout_cut_bytes"]
    assert memory_of(daemon.pid, "VmHWM") < before + 64 * MIB
    assert client.execute("print('small')", "flood")["stdout"] == "small\n"


def test_memory_limit_is_reported_with_limit_and_peak_and_the_next_run_works(client: Client) -> None:
    client.execute("kept = 1", "oom", limits={"memory_bytes": 96 * MIB})
    done = client.execute("print('before', flush=True)\nx = b'x' * (1 << 28)", "oom")
    assert (done["status"], done["exit_code"], done["oom_killed"]) == ("oom", 137, True), done
    assert "96 MiB" in done["error"]["message"] and done["stdout"] == "before\n", done
    assert 48 * MIB < done["usage"]["memory_peak_bytes"] <= 97 * MIB, done["usage"]
    after = client.execute("1 + 1", "oom")
    assert (after["status"], after["result"], after["oom_killed"]) == ("ok", {"text/plain": "2"}, False), after


def test_memory_limit_of_an_ephemeral_run(client: Client) -> None:
    done = client.execute("x = b'x' * (1 << 28)", limits={"memory_bytes": 96 * MIB})
    assert (done["status"], done["oom_killed"]) == ("oom", True), done


def test_interrupt_ends_the_run_and_keeps_the_variables(daemon: Daemon, client: Client) -> None:
    client.execute("kept = 7", "interrupt")
    number = client.begin("execute", session="interrupt", code="import time\ntime.sleep(3600)")
    other = daemon.client()
    wait_for("the run", lambda: other.request("session.show", session="interrupt")["state"] == "running")
    assert other.request("session.interrupt", session="interrupt")["interrupted"] is True
    done = client.finish(number)
    assert (done["status"], done["exit_code"]) == ("interrupted", 130), done
    assert client.execute("kept", "interrupt")["result"] == {"text/plain": "7"}


def test_an_interrupt_that_comes_before_the_run_has_begun_is_not_lost(daemon: Daemon, client: Client) -> None:
    client.execute("kept = 7", "early")
    kernel = daemon.kernel_of("early")
    os.kill(kernel, signal.SIGSTOP)  # it will see the signal before it reads the code
    number = client.begin("execute", session="early", code="import time\ntime.sleep(3600)")
    other = daemon.client()
    wait_for("the run", lambda: _state(other, "early") == "running")
    assert other.request("session.interrupt", session="early")["interrupted"] is True
    os.kill(kernel, signal.SIGCONT)
    done = client.finish(number)
    assert (done["status"], done["exit_code"]) == ("interrupted", 130), done
    assert client.execute("kept", "early")["result"] == {"text/plain": "7"}


def test_a_run_that_was_cancelled_before_it_began_is_no_loss(client: Client) -> None:
    """Its record was taken for that of a run whose variables are gone."""
    first = client.request("execute", session="early", code="import time; time.sleep(60)", detach=True)
    second = client.request("execute", session="early", code="6 * 7", detach=True)
    client.request("run.cancel", session="early", run=first["run_id"])
    client.execute("1", "early")
    done = client.request("run.read", session="early", run=second["run_id"])
    assert done["status"] == "ok" and "variables_lost" not in done, done


def test_run_cancel_names_the_run_it_means(daemon: Daemon, client: Client) -> None:
    detached = client.request("execute", session="cancel", code="import time; time.sleep(3600)", detach=True)
    wait_for("the run", lambda: client.request("session.show", session="cancel")["state"] == "running")
    wrong = client.request("run.cancel", session="cancel", run="0" * 32)
    assert wrong["interrupted"] is False
    right = client.request("run.cancel", session="cancel", run=detached["run_id"])
    assert right["interrupted"] is True
    done = client.request("run.read", session="cancel", run=detached["run_id"])
    assert done["status"] == "interrupted", done


def test_restart_gives_a_new_kernel_at_once_as_often_as_asked(client: Client) -> None:
    client.execute("kept = 1; open('file', 'w').close()", "restart")
    for _ in range(5):
        client.request("session.restart", session="restart")
        done = client.execute("import os; ('kept' in globals(), os.path.exists('file'))", "restart")
        assert (done["status"], done["result"]) == ("ok", {"text/plain": "(False, True)"}), done
        client.execute("kept = 1", "restart")


def test_a_name_is_free_as_soon_as_its_session_is_removed(client: Client) -> None:
    for turn in range(5):
        done = client.execute("import os; (os.listdir('.'), 'x' in globals())", "again")
        assert done["status"] == "ok" and "'mark'" not in done["result"]["text/plain"], done
        assert "False" in done["result"]["text/plain"]
        client.execute(f"x = {turn}; open('mark', 'w').close()", "again")
        client.request("session.remove", session="again")


def test_removing_a_session_ends_its_run(daemon: Daemon, client: Client) -> None:
    number = client.begin("execute", session="removed", code="import time; time.sleep(3600)")
    other = daemon.client()
    wait_for("the run", lambda: other.request("session.list") and _state(other, "removed") == "running")
    other.request("session.remove", session="removed")
    done = client.finish(number)
    assert done["status"] == "killed" and "removed" in done["error"]["message"], done


def _state(client: Client, name: str) -> str | None:
    states = {session["name"]: session["state"] for session in client.request("session.list")["sessions"]}
    return states.get(name)
