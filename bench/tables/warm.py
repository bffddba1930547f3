"""A round trip to an idle kernel: `1+1` in a session, as an agent does it (after a pause) and back to back."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from client import Client
from context import Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import bare_loop, jupyter

NAME = "warm"
TITLE = "Warm round trip: `1+1` in a session"
CALLS = 50


class Session:
    """One session of the pool's daemon and a connection to it."""

    def __init__(self, bench: Bench, name: str) -> None:
        daemon = bench.daemon()
        self.client: Client = daemon.connect()
        self.name = name
        daemon.wait_for_pool(self.client)  # before it a session gets an unprepared kernel
        self.client.execute("1+1", self.name)

    def stop(self) -> None:
        self.client.close()


def session(bench: Bench, name: str = "warm") -> Session:
    return bench.share(f"session {name}", lambda: Session(bench, name))


def is_two(answer: dict[str, Any]) -> bool:
    return answer["status"] == "ok" and answer["result"] == {"text/plain": "2"}


def back_to_back(call: Callable[[], object]) -> Callable[[], float]:
    """Milliseconds per call of a burst: taken one by one, each call would have been preceded by a pause."""

    def once() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        return (time.perf_counter() - started) * 1000 / CALLS

    return once


def pause() -> None:
    time.sleep(0.005)


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    who: list[tuple[str, str, Callable[[], Callable[[], Any]], Callable[[Any], bool] | None]] = [
        ("glovebox", "ours", lambda: partial(session(bench).client.execute, "1+1", "warm"), is_two),
        ("ipykernel", "peer", lambda: partial(jupyter.kernel(bench).execute, "1+1"), lambda text: text == "2"),
        ("bare loop", "peer", lambda: partial(bare_loop.loop(bench).execute, "1+1"), lambda text: text == b"2"),
        ("socket ping-pong", "limit", lambda: bare_loop.echo(bench).ping, None),
    ]
    table.bars = [
        Bar("glovebox, after 5 ms", "faster", 12, "ipykernel, after 5 ms"),
        Bar("glovebox, back to back", "faster", 25, "ipykernel, back to back"),
    ]
    idle = [
        Contender(f"{name}, after 5 ms", Lazy(make), role, before=pause, is_right=is_right)
        for name, role, make, is_right in who
    ]
    take_turns(table, idle, bench.rounds(400, 60), warm_up=5)
    busy = [
        Contender(f"{name}, back to back", Lazy(lambda make=make: back_to_back(make())), role)  # type: ignore[misc]
        for name, role, make, _ in who
    ]
    take_turns(table, busy, bench.rounds(60, 10))
    return table
