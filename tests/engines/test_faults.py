"""Engines fail apart: one that is dead or hangs harms nobody but those who wait for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import engines
from support.client import DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon, make_daemons


@pytest.fixture(scope="module")
def own_docker() -> Iterator[engines.Engine]:
    """One that tests may kill."""
    with engines.docker() as engine:
        yield engine


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


@pytest.fixture
def daemon(start: StartDaemon, own_docker: engines.Engine) -> Daemon:
    return start("--docker-socket", str(own_docker.socket), "--engine-image", engines.IMAGE)


def test_a_hanging_dockerd_slows_nobody_else(daemon: Daemon, own_docker: engines.Engine) -> None:
    client = daemon.client()
    client.request("session.create", session="box", engine="docker")
    client.execute("x = 3", "box")
    client.execute("1", "native")
    assert own_docker.process is not None
    os.kill(own_docker.process.pid, signal.SIGSTOP)
    try:
        waiting = daemon.client()
        for i in range(6):  # more than the maker has in hand at a time
            waiting.request("session.create", session=f"w{i}", engine="docker")
            waiting.begin("execute", session=f"w{i}", code="1")
        begun = time.monotonic()
        assert client.execute("1 + 1", "native")["result"] == {"text/plain": "2"}
        assert client.execute("2", "fresh")["result"] == {"text/plain": "2"}, "a new native box"
        assert client.execute("x + 1", "box")["result"] == {"text/plain": "4"}, "a box that is there needs no dockerd"
        assert time.monotonic() - begun < 5
        assert client.request("status")["daemon"]["longest_turn_ms"] < 1000
    finally:
        os.kill(own_docker.process.pid, signal.SIGCONT)
    assert waiting.finish()["result"] == {"text/plain": "1"}


def test_boxes_outlive_their_dockerd_and_what_ended_is_swept(daemon: Daemon, own_docker: engines.Engine) -> None:
    client = daemon.client()
    for name in ("kept", "gone"):
        client.request("session.create", session=name, engine="docker")
        client.execute("x = 3", name)
    own_docker.stop()  # with live-restore; its containers stay
    assert client.execute("x + 1", "kept")["result"] == {"text/plain": "4"}
    with pytest.raises(DaemonError, match="engine docker is not there") as caught:
        client.request("session.create", session="new", engine="docker")
    assert caught.value.code == "unsupported"
    client.request("session.remove", session="gone")  # its box ends; its container waits for dockerd
    own_docker.start()
    assert client.execute("x + 2", "kept")["result"] == {"text/plain": "5"}, "live-restore"
    wait_for("one box to be left", lambda: len(own_docker.boxes()) == 1)
    client.request("session.remove", session="kept")
    wait_for("none to be left", lambda: not own_docker.boxes())


def test_boxes_of_a_daemon_and_a_vault_that_died_are_swept(daemon: Daemon, own_docker: engines.Engine) -> None:
    client = daemon.client()
    client.request("session.create", session="lost", engine="docker")
    client.execute("x = 1", "lost")
    assert len(own_docker.boxes()) == 1
    vaults = daemon.vaults()
    daemon.kill()
    for vault in vaults:
        os.kill(vault, signal.SIGKILL)
    client = daemon.start().client()
    wait_for("the box to be swept", lambda: not own_docker.boxes())
    done = client.execute("'x' in globals()", "lost")
    assert (done["result"]["text/plain"], done["variables_lost"]) == ("False", True), done
    assert len(own_docker.boxes()) == 1
