"""A warm round trip over HTTP beside the same over the daemon's own socket."""

from __future__ import annotations

from collections.abc import Callable

from context import API_KEY, Bench
from http_client import HttpClient
from measure import Bar, Contender, Lazy, Table, take_turns
from tables.warm import back_to_back, pause

NAME = "rest"
TITLE = "`1+1` in a sandbox: HTTP, kept alive, and the UNIX socket"


def _http(bench: Bench) -> Callable[[], None]:
    client = HttpClient(bench.service().api_port(), API_KEY)

    def once() -> None:
        answer = client.ask("POST", "/sandbox/rest/execute", code="1+1")
        if answer["status"] != "ok":
            raise RuntimeError(str(answer))

    return once


def _socket(bench: Bench) -> Callable[[], None]:
    client = bench.service().connect()

    def once() -> None:
        if client.execute("1+1", "socket")["status"] != "ok":
            raise RuntimeError("1+1 failed")

    return once


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    for label in ("after 5 ms", "back to back"):
        table.bars.append(Bar(f"HTTP, {label}", "within", 1.5, f"UNIX socket, {label}"))
    who = [("HTTP", "ours", _http), ("UNIX socket", "limit", _socket)]
    idle = [
        Contender(f"{name}, after 5 ms", Lazy(lambda make=make: make(bench)), role, before=pause)  # type: ignore[misc]
        for name, role, make in who
    ]
    take_turns(table, idle, bench.rounds(400, 60), warm_up=5)
    busy = [
        Contender(f"{name}, back to back", Lazy(lambda make=make: back_to_back(make(bench))), role)  # type: ignore[misc]
        for name, role, make in who
    ]
    take_turns(table, busy, bench.rounds(60, 10))
    return table
