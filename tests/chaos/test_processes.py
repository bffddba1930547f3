"""Agent, kernel, maker and vault die one by one. Each loss is as small as possible, and reported."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, is_gone, wait_for
from support.daemons import StartDaemon

SLEEP = "print('on', flush=True)\nimport time; time.sleep(3600)"


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


def state(client: Client, name: str) -> str:
    return str(client.request("session.show", session=name)["state"])


def start_run(client: Client, name: str, code: str = SLEEP) -> int:
    """Begins a run and waits for its first word."""
    number = client.begin("execute", session=name, code=code, stream=True)
    next(client.output(number))
    return number


def test_l05_the_agent_killed_ends_the_whole_box_and_the_next_call_works(daemon: Daemon, client: Client) -> None:
    client.execute("x = 1; open('file', 'w').write('stays')", "agent")
    forks = "import os\nfor _ in range(10):\n    if os.fork() == 0:\n        import time; time.sleep(3600)\n"
    number = start_run(client, "agent", forks + SLEEP)
    before = daemon.kernels()
    agent = daemon.agent_of("agent")
    os.kill(agent, signal.SIGKILL)
    done = client.finish(number)
    assert done["status"] == "killed" and "variables are lost" in done["error"]["message"], done
    assert done["variables_lost"] is True
    wait_for("all of its processes to be gone", lambda: len(daemon.kernels() & before) <= len(before) - 12)
    after = client.execute("('x' in globals(), open('file').read())", "agent")
    assert after["result"] == {"text/plain": "(False, 'stays')"}, after


def test_l06_the_kernel_killed_from_outside_is_reported_with_the_output_so_far(daemon: Daemon, client: Client) -> None:
    client.execute("x = 1", "killed")
    number = client.begin("execute", session="killed", code=SLEEP)
    wait_for("the run", lambda: client.request("session.log", session="killed")["runs"][0]["stdout_bytes"] > 0)
    os.kill(daemon.kernel_of("killed"), signal.SIGKILL)
    done = client.finish(number)
    assert (done["status"], done["exit_code"], done["stdout"]) == ("killed", 137, "on\n"), done
    assert done["error"]["name"] == "kernel_killed" and done["variables_lost"] is True


def test_l06_an_idle_kernel_that_dies_is_reported_with_the_next_result(daemon: Daemon, client: Client) -> None:
    client.execute("x = 1", "idle")
    os.kill(daemon.kernel_of("idle"), signal.SIGSEGV)
    wait_for("its end", lambda: state(client, "idle") == "lost")
    done = client.execute("'x' in globals()", "idle")
    assert (done["result"], done["variables_lost"]) == ({"text/plain": "False"}, True), done
    assert not client.execute("1", "idle").get("variables_lost")


def test_l07_memory_of_one_session_is_no_trouble_for_another(client: Client) -> None:
    client.execute("x = b'x' * (20 << 20)", "neighbour", limits={"memory_bytes": 128 << 20})
    client.execute("x = 1", "greedy", limits={"memory_bytes": 64 << 20})
    for _ in range(3):
        done = client.execute("y = b'y' * (1 << 28)", "greedy")
        assert (done["status"], done["oom_killed"]) == ("oom", True) and "64 MiB" in done["error"]["message"], done
    assert client.execute("len(x)", "neighbour")["result"] == {"text/plain": str(20 << 20)}
    assert client.execute("1", "greedy")["oom_killed"] is False


def test_l28_stopped_and_forking_code_is_answered_in_time_and_reaped(daemon: Daemon, client: Client) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    codes = {"stop": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "bomb": bomb}
    for name in codes:
        client.execute("pass", name, limits={"pids": 24, "cpus": 0.5})
    numbers = [client.begin("execute", session=name, code=code, timeout_ms=1000) for name, code in codes.items()]
    for number in numbers:
        done = client.finish(number)
        assert done["status"] == "timeout", done
    for name in codes:
        assert client.execute("6 * 7", name)["result"] == {"text/plain": "42"}
        client.request("session.remove", session=name)


def test_l29_storms_of_interrupts_neither_kill_the_kernel_nor_reach_the_next_run(
    daemon: Daemon, client: Client
) -> None:
    client.execute("x = 7", "storm")
    kernel = daemon.kernel_of("storm")
    for _ in range(200):
        os.kill(kernel, signal.SIGINT)
    assert client.execute("x", "storm")["result"] == {"text/plain": "7"}
    for _ in range(5):
        number = start_run(client, "storm")
        other = daemon.client()
        for _ in range(20):
            other.request("session.interrupt", session="storm")
        assert client.finish(number)["status"] == "interrupted"
        done = client.execute("import time; time.sleep(0.05); x", "storm")
        assert (done["status"], done["result"]) == ("ok", {"text/plain": "7"}), done
    assert daemon.kernel_of("storm") == kernel


def test_the_maker_killed_is_replaced_and_sessions_do_not_notice(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--pool", "1")
    client = daemon.client()
    client.execute("x = 1", "s")
    for _ in range(3):
        maker = daemon.maker()
        os.kill(maker, signal.SIGKILL)
        wait_for("another maker", lambda gone=maker: daemon.maker() != gone)
        assert client.execute("x", "s")["result"] == {"text/plain": "1"}
    assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
    assert client.execute("6 * 7", "new")["result"] == {"text/plain": "42"}


def test_the_maker_killed_while_it_makes_a_box_is_answered_and_nothing_is_left(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("1", "first")
    maker = daemon.maker()
    os.kill(maker, signal.SIGSTOP)
    number = client.begin("execute", session="second", code="6 * 7")
    client.request("ping")
    os.kill(maker, signal.SIGKILL)
    try:
        assert client.finish(number)["result"] == {"text/plain": "42"}
    except DaemonError as refused:
        assert refused.code == "gone" and "try again" in refused.message
        assert client.execute("6 * 7", "second")["result"] == {"text/plain": "42"}


def test_the_vault_killed_costs_nothing_while_the_daemon_runs(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    (vault,) = daemon.vaults()
    os.kill(vault, signal.SIGKILL)
    wait_for("its end", lambda: is_gone(vault))
    assert client.execute("x", "s")["result"] == {"text/plain": "1"}
    assert client.execute("y = 2", "after")["status"] == "ok"
    client.execute("open('file', 'w').write('stays')", "s")
    daemon.kill()
    client = daemon.start().client()
    done = client.execute("open('file').read()", "s")
    assert done["result"] == {"text/plain": "'stays'"}, done
    assert client.execute("6 * 7", "after")["result"] == {"text/plain": "42"}


def test_the_vault_stopped_does_not_stop_the_daemon_for_ever(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    (vault,) = daemon.vaults()
    os.kill(vault, signal.SIGSTOP)
    try:
        assert client.execute("x", "s")["result"] == {"text/plain": "1"}
    finally:
        os.kill(vault, signal.SIGCONT)
    assert client.execute("6 * 7", "new")["result"] == {"text/plain": "42"}


@pytest.mark.parametrize("op", ["session.remove", "session.restart"])
def test_a_kernel_that_is_ended_while_it_starts_did_not_die(start_daemon: StartDaemon, op: str) -> None:
    """What ended it is told: the removal; and after a restart the next kernel does the runs."""
    daemon = start_daemon()
    told = set()
    for number in range(16):
        client, other = daemon.client(), daemon.client()
        runs = [client.begin("execute", session=f"s{number}", code="1") for _ in range(2)]
        time.sleep(number * 0.002)  # its box is made, then its Python starts
        other.request(op, session=f"s{number}")
        for run in runs:
            try:
                told.add(client.finish(run)["status"])
            except DaemonError as error:
                told.add(f"{error.code}: {error.message}")
    gone = {"gone: the session was removed"} if op == "session.remove" else set()
    assert told <= {"ok", "killed"} | gone and told >= (gone or {"ok"}), told
