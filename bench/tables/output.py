"""Much output: one megabyte at once, and in 16,000 lines, until the client has all of it."""

from __future__ import annotations

from collections.abc import Callable

from context import Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import bare_loop, jupyter
from tables.warm import Session, session

NAME = "output"
TITLE = "1 MB printed in a session, until the client has it"
# The code, how many bytes it prints, and how many times faster than ipykernel it must be.
CASES = {
    "at once": ('print("x" * 999_999)', 1_000_000, 3),
    "16,000 lines": ('for number in range(16_000):\n    print("x" * 61)', 16_000 * 62, 5),
}


def _ours(of: Session, code: str, size: int) -> Callable[[], None]:
    def once() -> None:
        of.client.execute(code, of.name, stream=True)
        _check("glovebox", len(of.client.out), size)

    return once


def _check(who: str, got: int, expected: int) -> None:
    if got != expected:
        raise RuntimeError(f"{who} gave {got} bytes of {expected}")


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    for label, (code, size, factor) in CASES.items():
        table.bars.append(Bar(f"glovebox, {label}", "faster", factor, f"ipykernel, {label}"))

        def ours(code: str = code, size: int = size) -> Callable[[], None]:
            return _ours(session(bench), code, size)

        def theirs(code: str = code, size: int = size) -> None:
            _check("ipykernel", len(jupyter.kernel(bench).execute(code)), size)

        def bare(code: str = code, size: int = size) -> None:
            _check("the bare loop", len(bare_loop.loop(bench).execute(code)), size)

        contenders = [
            Contender(f"glovebox, {label}", Lazy(ours), "ours"),
            Contender(f"ipykernel, {label}", theirs),
            Contender(f"bare loop, {label}", bare, "limit"),
        ]
        take_turns(table, contenders, bench.rounds(60, 10))
    return table
