"""Files through the agent: into a session's directory and back."""

from __future__ import annotations

import os
from collections.abc import Callable

from context import Bench
from measure import Bar, Contender, Table, lazily, take_turns
from tables.warm import session

NAME = "files"
TITLE = "File put and get through the daemon"
SMALL = 1 << 10


def _put(bench: Bench, content: bytes) -> Callable[[], None]:
    of = session(bench)

    def once() -> None:
        of.client.write_file(of.name, f"/workspace/file{len(content)}", content)

    return once


def _get(bench: Bench, content: bytes) -> Callable[[], None]:
    of = session(bench)
    of.client.write_file(of.name, f"/workspace/file{len(content)}", content)

    def once() -> None:
        if len(of.client.read_file(of.name, f"/workspace/file{len(content)}")) != len(content):
            raise RuntimeError("the file came back shorter")

    return once


def _plain(bench: Bench, content: bytes, back: bool) -> Callable[[], None]:
    path = bench.scratch / f"plain{len(content)}"
    path.write_bytes(content)

    def once() -> None:
        if back:
            path.read_bytes()
        else:
            path.write_bytes(content)

    return once


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    large = (16 if bench.quick else 100) * 1_000_000
    for size, label in ((SMALL, "1 KB"), (large, f"{large // 1_000_000} MB")):
        content = os.urandom(min(size, 1 << 20)) * max(1, size // (1 << 20) + 1)
        content = content[:size]
        # 1 GB/s, said as a time so that one table has one unit.
        bar_ms = 0.5 if size == SMALL else large / 1e9 * 1000
        table.bars += [
            Bar(f"glovebox put, {label}", "at_most", bar_ms),
            Bar(f"glovebox get, {label}", "at_most", bar_ms),
        ]
        contenders = [
            Contender(f"glovebox put, {label}", lazily(lambda content=content: _put(bench, content)), "ours"),
            Contender(f"glovebox get, {label}", lazily(lambda content=content: _get(bench, content)), "ours"),
            Contender(f"plain write, {label}", lazily(lambda content=content: _plain(bench, content, False)), "limit"),
            Contender(f"plain read, {label}", lazily(lambda content=content: _plain(bench, content, True)), "limit"),
        ]
        take_turns(table, contenders, bench.rounds(100, 20) if size == SMALL else bench.rounds(10, 4))
    return table
