"""The nursery dies, hangs or cannot start: sessions are not affected, and kernels start cold until another one is
ready."""

from __future__ import annotations

import os
import signal

import pytest
from support.client import Client
from support.daemon import Daemon, is_gone, process_state, wait_for
from support.daemons import StartDaemon

FORKED = "import sys; 'this' in sys.modules"  # imported by the nursery here, and by nothing else


def is_forked(client: Client, name: str) -> bool:
    return bool(client.execute(FORKED, name)["result"] == {"text/plain": "True"})


def ready_nursery(client: Client, other_than: int = 0) -> int:
    """The process id of a nursery that kernels are forked from."""

    def look() -> int:
        nursery = client.request("status")["nursery"] or {"state": "none"}
        return int(nursery["pid"]) if nursery["state"] == "ready" and nursery["pid"] != other_than else 0

    return int(wait_for("a nursery", look))


@pytest.fixture
def client(start_daemon: StartDaemon) -> Client:
    """Of a daemon whose nursery is ready."""
    daemon: Daemon = start_daemon("--preload", "this")
    client = daemon.client()
    client.execute("x = 41", "keeps")
    ready_nursery(client)
    assert is_forked(client, "before")
    return client


def test_l03_killed_while_idle_and_again_another_is_there_at_once(client: Client) -> None:
    for turn in range(3):
        nursery = ready_nursery(client)
        os.kill(nursery, signal.SIGKILL)
        # While there is none: cold, or forked already from the next one; never an error.
        assert client.execute("6 * 7", f"meanwhile{turn}")["result"] == {"text/plain": "42"}
        ready_nursery(client, nursery)
        assert is_forked(client, f"after{turn}")
        assert client.execute("x", "keeps")["result"] == {"text/plain": "41"}
        assert client.execute(FORKED, "before")["result"] == {"text/plain": "True"}


def test_l03_killed_while_it_forks_the_kernel_is_made_without_it(client: Client) -> None:
    nursery = ready_nursery(client)
    os.kill(nursery, signal.SIGSTOP)  # in the middle of a fork, as far as the maker can tell
    wait_for("it to stop", lambda: process_state(nursery) == "T")
    number = client.begin("execute", session="new", code="6 * 7")
    assert client.execute("x", "keeps")["result"] == {"text/plain": "41"}
    os.kill(nursery, signal.SIGKILL)
    assert client.finish(number)["result"] == {"text/plain": "42"}
    ready_nursery(client, nursery)
    assert is_forked(client, "after")


def test_l04_one_that_hangs_is_killed_and_replaced_and_kernels_are_made_meanwhile(client: Client) -> None:
    nursery = ready_nursery(client)
    os.kill(nursery, signal.SIGSTOP)
    numbers = [client.begin("execute", session=f"new{i}", code="6 * 7") for i in range(3)]
    assert client.execute("x", "keeps")["result"] == {"text/plain": "41"}
    for number in numbers:
        assert client.finish(number)["result"] == {"text/plain": "42"}
    wait_for("its end", lambda: is_gone(nursery))
    ready_nursery(client, nursery)
    assert is_forked(client, "after")
