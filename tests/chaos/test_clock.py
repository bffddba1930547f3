"""The time of day jumps; monotonic times and durations do not."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from support.client import Client
from support.daemon import wait_for
from support.daemons import StartDaemon
from support.glovebox import find_binary

DAY_S = 86400
WAIT = "import os, time\nprint('on', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)"


def told_age_s(client: Client, name: str) -> float:
    """How much older than now a session is by its own word."""
    client.request("session.create", session=name)
    return time.time() - int(client.request("session.show", session=name)["created"]) / 1000


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S, 1, -1])
def test_l14_a_jump_of_the_clock_neither_ends_a_run_nor_keeps_one_alive(start_daemon: StartDaemon, jump_s: int) -> None:
    daemon = start_daemon("--idle", "2s", start=False)
    clock = daemon.glovebox.place.write("clock", struct.pack("=q", 0))
    library = find_binary().parent / "tests/support/clock-jump.so"
    daemon.env |= {"LD_PRELOAD": str(library), "GLOVEBOX_TEST_CLOCK": str(clock)}
    client = daemon.start().client()
    client.execute("x = 41", "waits")
    workspace = Path(client.request("session.show", session="waits")["workspace"])
    waits = client.begin("execute", session="waits", code=WAIT, stream=True)
    next(client.output(waits))
    other = daemon.client()
    other.execute("import time", "ends")
    ends = other.begin("execute", session="ends", code="while True: time.sleep(0.01)", timeout_ms=1000)
    with clock.open("r+b") as file:  # never truncated: the daemon has it mapped
        file.write(struct.pack("=q", jump_s))
    if abs(jump_s) == DAY_S:
        assert abs(told_age_s(daemon.client(), "later") + jump_s) < 3600  # the jump was seen
    done = other.finish(ends)
    assert done["status"] == "timeout" and 1000 <= done["duration_ms"] < 60000, done
    (workspace / "go").touch()
    done = client.finish(waits)
    assert done["status"] == "ok" and 0 <= done["duration_ms"] < 60000, done
    # Two idle seconds are two seconds: it goes to sleep then, whatever the time of day.
    wait_for("it to sleep", lambda: client.request("session.show", session="waits")["state"] == "asleep")
    assert client.execute("x", "waits")["result"] == {"text/plain": "41"}
