"""Engines fail apart: one that is dead or hangs harms nobody but those who wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from support import engines
from support import incus as incus_server
from support.client import Client, DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon, make_daemons

Server = engines.Engine | incus_server.Incus


@pytest.fixture(scope="module", params=["docker", "podman", "incus"])
def own_engine(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One that tests may kill."""
    makers = {"docker": engines.docker, "podman": engines.podman, "incus": incus_server.incus}
    with makers[request.param]() as engine:
        yield engine


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


@pytest.fixture
def daemon(start: StartDaemon, own_engine: Server) -> Daemon:
    images = ("--engine-image", engines.IMAGE, "--incus-image", incus_server.IMAGE)
    return start(f"--{own_engine.name}-socket", str(own_engine.socket), *images)


def latency_ms(client: Client, session: str) -> float:
    """The median of some warm runs."""

    def measure() -> float:
        begun = time.perf_counter()
        assert client.execute("1 + 1", session)["status"] == "ok"
        return (time.perf_counter() - begun) * 1000

    measure()
    return median(measure() for _ in range(30))


def test_a_hanging_engine_delays_no_other_engine(daemon: Daemon, own_engine: Server) -> None:
    client = daemon.client()
    client.request("session.create", session="box", engine=own_engine.name)
    client.execute("x = 3", "box")
    usual = latency_ms(client, "native")
    assert own_engine.process is not None
    os.kill(own_engine.process.pid, signal.SIGSTOP)
    try:
        waiting = daemon.client()
        for i in range(6):  # more than the maker has in hand at a time
            waiting.request("session.create", session=f"w{i}", engine=own_engine.name)
            waiting.begin("execute", session=f"w{i}", code="1")
        begun = time.monotonic()
        assert client.execute("1 + 1", "native")["result"] == {"text/plain": "2"}
        assert client.execute("2", "fresh")["result"] == {"text/plain": "2"}, "a new native box"
        assert client.execute("x + 1", "box")["result"] == {"text/plain": "4"}, "a box that is there needs no engine"
        assert time.monotonic() - begun < 5
        now = latency_ms(client, "native")
        print(f"a warm native run: {usual:.2f} ms, and {now:.2f} ms beside a {own_engine.name} that hangs")
        assert now < 3 * usual + 5, (usual, now)
        assert client.request("status")["daemon"]["longest_turn_ms"] < 1000
    finally:
        os.kill(own_engine.process.pid, signal.SIGCONT)
    assert waiting.finish()["result"] == {"text/plain": "1"}


def test_boxes_outlive_their_engine_and_what_ended_is_swept(daemon: Daemon, own_engine: Server) -> None:
    client = daemon.client()
    for name in ("kept", "gone"):
        client.request("session.create", session=name, engine=own_engine.name)
        client.execute("x = 3", name)
    own_engine.stop()  # dockerd with live-restore; the containers stay
    assert client.execute("x + 1", "kept")["result"] == {"text/plain": "4"}
    with pytest.raises(DaemonError, match=f"engine {own_engine.name} is not there") as caught:
        client.request("session.create", session="new", engine=own_engine.name)
    assert caught.value.code == "unsupported"
    client.request("session.remove", session="gone")  # its box ends; its container waits for the engine
    own_engine.start()
    assert client.execute("x + 2", "kept")["result"] == {"text/plain": "5"}
    wait_for("one box to be left", lambda: len(own_engine.boxes()) == 1)
    client.request("session.remove", session="kept")
    wait_for("none to be left", lambda: not own_engine.boxes())


def test_boxes_of_a_daemon_and_a_vault_that_died_are_swept(daemon: Daemon, own_engine: Server) -> None:
    client = daemon.client()
    client.request("session.create", session="lost", engine=own_engine.name)
    client.execute("x = 1", "lost")
    assert len(own_engine.boxes()) == 1
    vaults = daemon.vaults()
    daemon.kill()
    for vault in vaults:
        os.kill(vault, signal.SIGKILL)
    client = daemon.start().client()
    wait_for("the box to be swept", lambda: not own_engine.boxes())
    done = client.execute("'x' in globals()", "lost")
    assert (done["result"]["text/plain"], done["variables_lost"]) == ("False", True), done
    assert len(own_engine.boxes()) == 1


def test_an_engine_killed_while_boxes_are_made_and_removed(daemon: Daemon, own_engine: Server) -> None:
    client = daemon.client()
    for name in ("kept", "gone1", "gone2"):
        client.request("session.create", session=name, engine=own_engine.name)
        client.execute("x = 3", name)
    waiting = [daemon.client() for _ in range(4)]
    for i, one in enumerate(waiting):
        one.request("session.create", session=f"new{i}", engine=own_engine.name)
        one.begin("execute", session=f"new{i}", code="6 * 7")
    for name in ("gone1", "gone2"):
        client.request("session.remove", session=name)
    time.sleep(0.2)  # in the middle of it
    own_engine.kill()
    for one in waiting:
        try:
            assert one.finish()["result"] == {"text/plain": "42"}
        except DaemonError as told:
            assert own_engine.name in str(told) or "box" in str(told), told
    assert client.execute("x + 1", "kept")["result"] == {"text/plain": "4"}
    own_engine.start()
    for i in range(len(waiting)):
        assert client.execute("6 * 7", f"new{i}")["result"] == {"text/plain": "42"}, "it can be asked for again"
    assert client.execute("x + 2", "kept")["result"] == {"text/plain": "5"}
    for name in ("kept", *(f"new{i}" for i in range(len(waiting)))):
        client.request("session.remove", session=name)

    def running() -> list[dict]:
        return [box for box in own_engine.boxes() if str(box.get("State") or box["status"]).lower() == "running"]

    wait_for("none to be running", lambda: not running())
    own_engine.clear()  # what had been created and not yet started is swept up after two minutes


@pytest.mark.parametrize("own_engine", ["docker", "podman"], indirect=True)
def test_a_full_disk_of_the_engine_is_an_error_with_a_remedy(daemon: Daemon, own_engine: Server) -> None:
    """Its disk is a file system in memory, which is made as small as what is on it."""
    client = daemon.client()
    client.request("session.create", session="full", engine=own_engine.name)
    place = os.statvfs(own_engine.directory)
    used = (place.f_blocks - place.f_bfree) * place.f_frsize

    def resize(size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", own_engine.directory], check=True)

    resize(str(used))
    try:
        with pytest.raises(DaemonError, match="disk is full; make room") as caught:
            client.execute("1", "full")
        assert caught.value.code == "no_space"
        assert client.execute("2", "native")["result"] == {"text/plain": "2"}
    finally:
        resize("8g")
    assert client.execute("6 * 7", "full")["result"] == {"text/plain": "42"}
