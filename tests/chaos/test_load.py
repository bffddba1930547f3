"""Hundreds of sessions are created and removed."""

from __future__ import annotations

import os

import pytest
from support.client import DaemonError
from support.daemon import memory_of, wait_for
from support.daemons import StartDaemon

MIB = 1 << 20
AT_ONCE = 40
TURNS = 260


@pytest.mark.timeout(240)
def test_l16_hundreds_of_sessions_made_and_removed_leave_everything_as_it_was(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--preload", "this")
    client = daemon.client()
    client.execute("1", "first")
    wait_for("the nursery", lambda: (client.request("status")["nursery"] or {}).get("state") == "ready")
    client.request("session.remove", session="first")
    wait_for("its state to go", lambda: os.listdir(daemon.data / "state") == [] and not daemon.kernels())
    descriptors, memory = daemon.descriptors(), memory_of(daemon.pid)

    numbers = [client.begin("execute", session=f"s{i}", code=f"x = {i}") for i in range(AT_ONCE)]
    for number in numbers:
        assert client.finish(number)["status"] == "ok"
    for i in range(TURNS):  # beside them; every fourth runs something
        if i % 4 == 0:
            assert client.execute("6 * 7", f"t{i}")["result"] == {"text/plain": "42"}
        else:
            client.request("session.create", session=f"t{i}")
        client.request("session.remove", session=f"t{i}")
        with pytest.raises(DaemonError):
            client.request("session.show", session=f"t{i}")
    for i in range(AT_ONCE):
        assert client.execute("x", f"s{i}")["result"] == {"text/plain": str(i)}
    assert len(client.request("session.list")["sessions"]) == AT_ONCE
    for i in range(AT_ONCE):
        client.request("session.remove", session=f"s{i}")

    wait_for("their state to go", lambda: os.listdir(daemon.data / "state") == [] and not daemon.kernels())
    assert os.listdir(daemon.data / "sessions") == []
    wait_for("descriptors to be closed", lambda: daemon.descriptors() <= descriptors)
    assert memory_of(daemon.pid) < memory + 16 * MIB
