"""Every helper process of a daemon is watched and replaced; what it held or had to do is not lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from support.client import Client
from support.daemon import Daemon, cpu_seconds, is_gone, wait_for
from support.daemons import StartDaemon

KILLS = 20
HELPERS = ("vault", "maker", "reaper", "janitor", "meter", "audit")


def kill_helper(daemon: Daemon, name: str) -> int:
    """Kills it and waits for another; its process id."""
    pid = wait_for(f"a {name}", lambda: daemon.helper(name))
    os.kill(pid, signal.SIGKILL)

    def find_other() -> int:
        other = daemon.helper(name)
        return other if other not in (0, pid) else 0

    return int(wait_for(f"another {name}", find_other))


def value(client: Client, name: str) -> str:
    done = client.execute("x", name)
    assert done["status"] == "ok" and not done.get("variables_lost"), done
    return str(done["result"]["text/plain"])


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_variables_survive_a_dead_vault_and_then_a_dead_daemon(start_daemon: StartDaemon, end: str) -> None:
    daemon = start_daemon()
    client = daemon.client()
    for number in range(3):
        client.execute(f"x = {number}", f"s{number}")
    kill_helper(daemon, "vault")
    client.execute("x = 3", "s3")  # made after it
    getattr(daemon, end)()
    client = daemon.start().client()
    assert [value(client, f"s{number}") for number in range(4)] == ["0", "1", "2", "3"]


def test_a_stop_right_after_the_vault_died_loses_nothing(start_daemon: StartDaemon) -> None:
    """The daemon does not know of the death yet: it is stopped, the vault is killed, and the signal waits for it."""
    daemon = start_daemon()
    daemon.client().execute("x = 7", "s")
    vault = daemon.helper("vault")
    os.kill(daemon.pid, signal.SIGSTOP)
    os.kill(vault, signal.SIGKILL)
    wait_for("its end", lambda: is_gone(vault))
    os.kill(daemon.pid, signal.SIGTERM)
    os.kill(daemon.pid, signal.SIGCONT)
    assert daemon.process is not None and daemon.process.wait(60) == 0
    assert value(daemon.start().client(), "s") == "7"


def test_a_run_goes_on_when_the_vault_and_then_the_daemon_are_killed(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    client.begin("execute", session="s", code="import time\nfor x in range(20): time.sleep(0.1)\nx += 1")
    wait_for("the run", lambda: daemon.client().request("session.show", session="s")["state"] == "running")
    kill_helper(daemon, "vault")
    daemon.kill()
    client = daemon.start().client()
    wait_for("its end", lambda: client.request("session.show", session="s")["state"] == "idle")
    assert value(client, "s") == "20"


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_killed_twenty_times_is_back_each_time_and_nothing_is_lost(
    start_daemon: StartDaemon, name: str
) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    for number in range(KILLS):
        kill_helper(daemon, name)
        if number % 5 == 0:
            assert value(client, "s") == "1"
            assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
            client.execute("pass", f"removed-{number}")
            client.request("session.remove", session=f"removed-{number}")
    shown = client.request("status")["helpers"][name]
    assert (shown["state"], shown["restarts"]) == ("running", KILLS), shown
    lines = daemon.cli("status").stdout.splitlines()
    assert any(line.split(maxsplit=1) == [name, f"running, pid {shown['pid']}, {KILLS} restarts"] for line in lines)
    daemon.kill()
    assert value(daemon.start().client(), "s") == "1"


def test_ps_and_status_show_every_process_of_the_daemon(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--pool", "1")
    client = daemon.client()
    client.request("session.create", session="net", network={"allow": ["example.invalid:443"]})
    client.execute("x = 1", "net")
    status = wait_for("the nursery", lambda: (shown := client.request("status"))["nursery"] and shown)
    for name in ("remote", "instances"):
        assert status["helpers"].pop(name)["state"] == "off", "neither a remote nor an instance is in use"
    pids = {name: helper["pid"] for name, helper in status["helpers"].items()}
    pids["supervisor"] = status["nursery"]["supervisor_pid"]
    assert set(pids) == {"vault", "maker", "reaper", "janitor", "proxy", "meter", "audit", "supervisor"}
    lines = daemon.cli("status").stdout.splitlines()
    for name, pid in pids.items():
        words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        assert words == f"glovebox: {name} {daemon.data}", words
        assert any(line.split(maxsplit=1) == [name, f"running, pid {pid}"] for line in lines), lines
    assert "glovebox_kernel.nursery" in Path(f"/proc/{status['nursery']['pid']}/cmdline").read_text()


def test_the_proxy_killed_is_replaced_and_shown(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    assert client.request("status")["helpers"]["proxy"]["state"] == "off"
    network = {"allow": ["example.invalid:443"]}
    client.request("session.create", session="net", network=network)
    client.execute("x = 1", "net")
    for _ in range(3):
        kill_helper(daemon, "proxy")
    assert client.request("status")["helpers"]["proxy"]["restarts"] == 3


def test_boxes_that_ended_while_there_was_no_reaper_are_taken_apart_by_the_next(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    reaper = daemon.helper("reaper")
    os.kill(reaper, signal.SIGSTOP)
    for number in range(3):
        client.execute("pass", f"s{number}")
        client.request("session.remove", session=f"s{number}")
    groups = daemon.glovebox.groups
    assert len(list(groups.boxes())) > 0
    os.kill(reaper, signal.SIGKILL)
    wait_for("their groups to be gone", lambda: len(list(groups.boxes())) == 0)


def test_a_helper_that_exits_at_once_is_restarted_at_growing_intervals(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    for _ in range(8):
        kill_helper(daemon, "janitor")
    before, cpu = client.request("status")["helpers"]["janitor"]["restarts"], cpu_seconds(daemon.pid)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        with contextlib.suppress(ProcessLookupError):  # it may be gone at any moment
            if pid := daemon.helper("janitor"):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    restarts = client.request("status")["helpers"]["janitor"]["restarts"] - before
    assert 1 <= restarts <= 8, restarts
    assert cpu_seconds(daemon.pid) - cpu < 1.5


def test_a_vault_that_does_not_answer_is_replaced(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 5", "s")
    vault = daemon.helper("vault")
    os.kill(vault, signal.SIGSTOP)
    client.execute("pass", "other")  # its kernel is to be put there
    wait_for("another vault", lambda: daemon.helper("vault") not in (0, vault))
    assert is_gone(vault)
    daemon.kill()
    assert value(daemon.start().client(), "s") == "5"


def test_processes_say_who_they_are(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    for name in HELPERS:
        title = Path(f"/proc/{daemon.helper(name)}/cmdline").read_bytes().rstrip(b"\0").decode()
        assert title == f"glovebox: {name} {daemon.data}"
