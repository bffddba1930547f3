"""Files through the agent: into a session's directory and back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial

from client import DaemonError
from context import Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from tables.warm import session

NAME = "files"
TITLE = "File put and get through the daemon"
SMALL = 1 << 10


def _put(bench: Bench, content: bytes) -> Callable[[], None]:
    of = session(bench)

    def once() -> None:
        of.client.write_file(of.name, f"/workspace/new{len(content)}", content)

    return once


def _remove(bench: Bench, size: int) -> None:
    """What the last round wrote. To replace a file that is there makes the disk work, which is not ours to measure."""
    of = session(bench)
    with contextlib.suppress(DaemonError):
        of.client.request("file.remove", session=of.name, path=f"/workspace/new{size}")
    (bench.scratch / f"new{size}").unlink(missing_ok=True)


def _get(bench: Bench, content: bytes) -> Callable[[], None]:
    of = session(bench)
    path = f"/workspace/file{len(content)}"
    memory = bytearray(content)
    of.client.write_file(of.name, path, content)
    if of.client.read_file(of.name, path) != content:
        raise RuntimeError("the file came back changed")

    def once() -> None:
        if of.client.read_file_into(of.name, path, memoryview(memory)) != len(content):
            raise RuntimeError("the file came back shorter")

    return once


def _plain(bench: Bench, content: bytes, back: bool) -> Callable[[], None]:
    new = bench.scratch / f"new{len(content)}"
    path = bench.scratch / f"plain{len(content)}"
    if back:
        path.write_bytes(content)
    memory = bytearray(content)

    def once() -> None:
        if not back:
            new.write_bytes(content)
            return
        with path.open("rb", buffering=0) as file:
            file.readinto(memory)

    return once


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    table.notes.append("For us and for the plain ones alike: a put makes a new file, a get fills memory that is there.")
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
        remove = partial(_remove, bench, size)
        contenders = [
            Contender(f"glovebox put, {label}", Lazy(partial(_put, bench, content)), "ours", before=remove),
            Contender(f"glovebox get, {label}", Lazy(partial(_get, bench, content)), "ours"),
            Contender(f"plain write, {label}", Lazy(partial(_plain, bench, content, False)), "limit", before=remove),
            Contender(f"plain read, {label}", Lazy(partial(_plain, bench, content, True)), "limit"),
        ]
        take_turns(table, contenders, bench.rounds(100, 20) if size == SMALL else bench.rounds(10, 4))
    return table
