"""Large files over HTTP, up and down, beside nginx; and what they cost the daemon in memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from context import API_KEY, Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import nginx

NAME = "transfer"
TITLE = "A large file over HTTP"


def _curl(*arguments: str) -> None:
    subprocess.run(["curl", "-sSf", "-o", "/dev/null", "-H", "Expect:", *arguments], check=True)


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    size = (100 if bench.quick else 500) * 1_000_000
    label = f"{size // 1_000_000} MB"
    source = bench.scratch / "large"
    with source.open("wb") as file:
        for _ in range(size // 1_000_000):
            file.write(bytes(1_000_000))
    daemon = bench.service()
    key = f"Authorization: Bearer {API_KEY}"

    def ours() -> str:
        return f"http://127.0.0.1:{daemon.api_port()}/sandbox/transfer/file?path=large"

    def theirs() -> str:
        return f"http://127.0.0.1:{nginx.server(bench).port}/large"

    def put(method: str, url: Callable[[], str], *more: str) -> Callable[[], Callable[[], None]]:
        return lambda: lambda: _curl("-X", method, "-T", str(source), *more, url())

    def get(url: Callable[[], str], *more: str) -> Callable[[], Callable[[], None]]:
        return lambda: lambda: _curl(*more, url())

    binary = ("-H", key, "-H", "Content-Type: application/octet-stream")
    for what in ("up", "down"):
        table.bars.append(Bar(f"glovebox, {what}, {label}", "within", 2, f"nginx, {what}, {label}"))
    before = daemon.memory_bytes()
    contenders = [
        Contender(f"glovebox, up, {label}", Lazy(put("POST", ours, *binary)), "ours"),
        Contender(f"nginx, up, {label}", Lazy(put("PUT", theirs)), "peer"),
        Contender(f"glovebox, down, {label}", Lazy(get(ours, "-H", key)), "ours"),
        Contender(f"nginx, down, {label}", Lazy(get(theirs)), "peer"),
    ]
    take_turns(table, contenders, bench.rounds(5, 2), warm_up=1)
    table.notes.append(f"The daemon's memory grew by {(daemon.memory_bytes() - before) / 1e6:.1f} MB meanwhile.")
    return table
