"""Removing much, and being killed while doing so."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support.client import Client
from support.daemon import Daemon, _named, _parent, wait_for
from support.daemons import StartDaemon
from support.glovebox import slowness


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
    return int(wait_for("a janitor", lambda: next(_named("glovebox-sweep", lambda pid: _parent(pid) == daemon.pid), 0)))


@pytest.mark.timeout(240)
def test_removing_two_hundred_thousand_files_delays_nobody(start_daemon: StartDaemon) -> None:
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
