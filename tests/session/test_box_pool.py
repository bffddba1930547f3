"""The box pool: sealed boxes that wait without a kernel, each for one run."""

from __future__ import annotations

import os
import signal

from support.client import OUT, Client
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon

WAIT = "import time\nprint('on', flush=True)\ntime.sleep(3600)"


def boxes(daemon: Daemon) -> set[str]:
    """Names of the control groups of this daemon's boxes."""
    return {path.name for path in daemon.glovebox.groups.boxes()}


def fill(daemon: Daemon, client: Client) -> set[str]:
    """Requests the same twice, which starts the pool. Returns the boxes in it."""
    for _ in range(2):
        assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
    return full(daemon, client)


def full(daemon: Daemon, client: Client) -> set[str]:
    """Waits until the pool holds two boxes and the daemon has no others."""

    def look() -> set[str] | None:
        found = boxes(daemon)
        return found if len(found) == 2 == pooled_boxes(client) and boxes(daemon) == found else None

    return set(wait_for("a full box pool and nothing else", look))


def pooled_boxes(client: Client) -> int:
    return int((client.request("status")["nursery"] or {}).get("box_pool", 0))


def begin(daemon: Daemon, **options: object) -> Client:
    """Starts a run that lasts until its caller disconnects."""
    caller = daemon.client()
    number = caller.begin("execute", ephemeral=True, stream=True, cancel_on_disconnect=True, code=WAIT, **options)
    kind, payload = next(caller.output(number))
    assert (kind, payload[4:]) == (OUT, b"on\n")
    return caller


def ready_daemon(start_daemon: StartDaemon) -> tuple[Daemon, Client]:
    daemon = start_daemon("--box-pool", "2")
    client = daemon.client()
    client.execute("1")
    wait_for("the nursery", lambda: (client.request("status").get("nursery") or {}).get("state") == "ready")
    return daemon, client


def test_a_run_takes_a_box_that_waited_and_it_is_never_used_again(start_daemon: StartDaemon) -> None:
    daemon, client = ready_daemon(start_daemon)
    seen: set[str] = set()
    for _ in range(3):
        waiting = fill(daemon, client)
        assert not waiting & seen, "a box was used twice"
        caller = begin(daemon)
        wait_for("another box in its place", lambda: len(boxes(daemon)) == 3 and pooled_boxes(client) == 2)
        assert waiting <= boxes(daemon), "none of those that waited was taken: one was made"
        caller.close()
        used = waiting - full(daemon, client)
        assert len(used) == 1
        seen |= used


def test_a_run_with_limits_of_its_own_gets_a_box_of_its_own(start_daemon: StartDaemon) -> None:
    daemon, client = ready_daemon(start_daemon)
    waiting = fill(daemon, client)
    caller = begin(daemon, limits={"pids": 21})
    # Those that waited were for others, and are gone.
    wait_for("the run's box alone", lambda: len(boxes(daemon)) == 1)
    assert not boxes(daemon) & waiting
    caller.close()


def test_boxes_that_died_are_not_given_out_and_those_of_a_dead_maker_are_cleared_away(
    start_daemon: StartDaemon,
) -> None:
    daemon, client = ready_daemon(start_daemon)
    waiting = fill(daemon, client)
    for pid in daemon.kernels():
        os.kill(pid, signal.SIGKILL)
    wait_for("the dead ones to go", lambda: not boxes(daemon) & waiting)
    assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
    waiting = full(daemon, client)
    os.kill(daemon.maker(), signal.SIGKILL)
    wait_for("the dead maker's boxes to go", lambda: not boxes(daemon) & waiting)
    assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
