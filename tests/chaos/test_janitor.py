"""Removing and copying much, and being killed while doing so."""

from __future__ import annotations

import errno
import os
import platform
import signal
import time
from pathlib import Path

import pytest
from support.client import Client
from support.daemon import Daemon, _named, _parent, wait_for
from support.daemons import StartDaemon
from support.glovebox import slowness
from support.inject import Inject


def fill(client: Client, name: str, directories: int) -> None:
    """A thousand files in each directory: links to one, which costs as much to remove and less to make."""
    client.request("session.create", session=name)
    workspace = Path(client.request("session.show", session=name)["workspace"])
    for i in range(directories):
        directory = workspace / str(i)
        directory.mkdir()
        first = str(directory / "0")
        Path(first).touch()
        for n in range(1, 1000):
            os.link(first, f"{directory}/{n}")


def janitor(daemon: Daemon) -> int:
    named = "glovebox-janito"  # fifteen characters of its name
    return int(wait_for("a janitor", lambda: next(_named(named, lambda pid: _parent(pid) == daemon.pid), 0)))


@pytest.mark.timeout(240)
def test_removing_two_hundred_thousand_files_delays_no_other_run(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 41", "warm")
    fill(client, "huge", 200)
    state = daemon.data / "state" / client.request("session.show", session="huge")["id"]
    worst, meanwhile = 0.0, 0
    client.request("session.remove", session="huge")
    while state.exists():
        started = time.monotonic()
        assert client.execute("x", "warm")["result"] == {"text/plain": "41"}
        worst = max(worst, time.monotonic() - started)
        meanwhile += state.exists()
    assert meanwhile > 0 and worst < 1 * slowness(), (meanwhile, worst)


def test_a_janitor_that_is_killed_is_replaced_and_the_next_goes_on(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    for name in ("one", "two"):
        fill(client, name, 2)
    first = janitor(daemon)
    os.kill(first, signal.SIGSTOP)
    for name in ("one", "two"):
        client.request("session.remove", session=name)
    assert len(os.listdir(daemon.data / "state")) == 2
    assert client.execute("6 * 7", "beside")["result"] == {"text/plain": "42"}
    os.kill(first, signal.SIGKILL)
    assert janitor(daemon) != first or wait_for("another", lambda: janitor(daemon) != first)
    wait_for("the rest to go", lambda: len(os.listdir(daemon.data / "state")) == 1)


def test_a_daemon_killed_while_it_removes_is_finished_by_the_next(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    fill(client, "one", 2)
    os.kill(janitor(daemon), signal.SIGSTOP)
    client.request("session.remove", session="one")
    assert len(os.listdir(daemon.data / "state")) == 1
    daemon.kill()
    client = daemon.start().client()
    assert client.request("session.list")["sessions"] == []
    wait_for("the rest to go", lambda: os.listdir(daemon.data / "state") == [])
    assert os.listdir(daemon.data / "sessions") == []


LEAVE = "import os\nfor i in range({}): open(f'artifacts/{{i}}', 'w').write(str(i))\nprint('left')\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="optional: knows the calls of x86-64 only")
def test_many_files_of_a_run_are_copied_by_a_child(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(start=False)
    injected = Inject(daemon.glovebox.place.path / "control")
    daemon.wrapper = injected.wrapper
    client = daemon.start().client()
    injected.arm("glovebox-job")
    done = client.execute(LEAVE.format(3))
    assert len(done["artifacts"]) == 3 and injected.calls() == []
    done = client.execute(LEAVE.format(300))
    assert (done["status"], done["stdout"], len(done["artifacts"])) == ("ok", "left\n", 300), done["status"]
    assert len(injected.calls()) > 300
    copied = Path(next(item["host_path"] for item in done["artifacts"] if item["path"] == "/workspace/artifacts/7"))
    assert copied.read_text() == "7"
    # The kernel is gone by then, or dies while it is done.
    done = client.execute(LEAVE.format(300) + "os._exit(3)")
    assert (done["status"], done["exit_code"], len(done["artifacts"])) == ("error", 3, 300), done["status"]
    # A child that cannot do it is no reason to wait, or to fail. Its first calls only make it modest.
    found = []
    for place in range(1, 9):
        injected.arm("glovebox-job", 1, place, errno.ENOMEM)
        done = client.execute(LEAVE.format(300))
        assert injected.failed() is not None
        assert (done["status"], done["stdout"]) == ("ok", "left\n")
        found.append(len(done["artifacts"]))
    assert 0 in found and set(found) <= {0, 300}, found
    wait_for("the boxes to go", lambda: not daemon.kernels())


def test_outputs_are_kept_for_a_while_and_then_removed(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--keep-outputs", "1h", "--idle", "100ms")  # with which it sweeps ten times a second
    client = daemon.client()
    outputs = daemon.data / "outputs"
    kept, old = (client.execute(LEAVE.format(1))["run_id"] for _ in range(2))
    assert sorted(os.listdir(outputs)) == sorted([kept, old])
    hours_ago = time.time() - 2 * 3600
    os.utime(outputs / old, (hours_ago, hours_ago))
    daemon.kill()  # one that has just started looks at once, and then every six minutes
    daemon.start()
    wait_for("the old one to go", lambda: os.listdir(outputs) == [kept])
