"""Rows, tables and bars, and the only way to take times: all contenders in turn, round after round, so that other load
of the machine affects all alike."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


class Skipped(Exception):
    """Something is missing on this machine: the tables say so, and no promise is broken."""


class Lazy:
    """What costs much to set up, or cannot be had here: it is made in the warm-up round, and not before."""

    def __init__(self, make: Callable[[], Callable[[], object]]) -> None:
        self._make = make
        self._made: Callable[[], object] | None = None

    def get(self) -> Callable[[], object]:
        if self._made is None:
            self._made = self._make()
        return self._made


@dataclass
class Contender:
    """One who takes part in a measurement. `once` is timed; `before` is not. `once` may return the milliseconds itself,
    as a float, where it knows better than a clock around it. What it returns is looked at by `is_right`, afterwards."""

    name: str
    once: Callable[[], object] | Lazy
    role: str = "peer"  # ours, peer, limit
    before: Callable[[], None] | None = None
    every: int = 1  # slow ones take part in each n-th round only
    is_right: Callable[[Any], bool] | None = None


@dataclass
class Row:
    name: str
    role: str
    values: list[float] = field(default_factory=list)
    skipped: str = ""
    failed: str = ""

    def quantile(self, share: float) -> float:
        ordered = sorted(self.values)
        position = share * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    @property
    def p50(self) -> float:
        return statistics.median(self.values)


@dataclass
class Bar:
    """A promise. kind: `faster` (at least factor times better than the other), `within` (at most factor times the
    other), `at_most` and `at_least` (the factor is the number itself)."""

    ours: str
    kind: str
    factor: float
    other: str = ""

    def text(self, unit: str) -> str:
        if self.kind == "faster":
            return f"{self.ours}: at least {self.factor:g} × better than {self.other}"
        if self.kind == "within":
            return f"{self.ours}: at most {self.factor:g} × {self.other}"
        named = "" if unit == "as said" else f" {unit}"
        return f"{self.ours}: {self.kind.replace('_', ' ')} {self.factor:g}{named}"


@dataclass
class Verdict:
    bar: Bar
    state: str  # met, missed, unknown
    measured: float | None
    why: str = ""


@dataclass
class Table:
    name: str
    title: str
    unit: str = "ms"
    higher_is_better: bool = False
    rows: list[Row] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)

    def add(self, name: str, role: str, values: Iterable[float]) -> None:
        self.rows.append(Row(name, role, list(values)))

    def skip(self, name: str, role: str, why: str) -> None:
        self.rows.append(Row(name, role, skipped=why))

    def fail(self, name: str, role: str, why: str) -> None:
        self.rows.append(Row(name, role, failed=why))

    def judge(self) -> list[Verdict]:
        return [self._judge_one(bar) for bar in self.bars]

    def _judge_one(self, bar: Bar) -> Verdict:
        ours, other = self.row(bar.ours), self.row(bar.other) if bar.other else None
        if ours is None or ours.skipped:
            return Verdict(bar, "unknown", None, ours.skipped if ours else "not measured")
        if ours.failed or not ours.values:
            return Verdict(bar, "missed", None, ours.failed or "no value")
        if bar.kind in ("at_most", "at_least"):
            met = ours.p50 <= bar.factor if bar.kind == "at_most" else ours.p50 >= bar.factor
            return Verdict(bar, "met" if met else "missed", ours.p50)
        if other is None or not other.values:
            return Verdict(
                bar, "unknown", None, (other.skipped or other.failed) if other else "the peer was not measured"
            )
        times_better = ours.p50 / other.p50 if self.higher_is_better else other.p50 / ours.p50
        if bar.kind == "faster":
            return Verdict(bar, "met" if times_better >= bar.factor else "missed", times_better)
        return Verdict(bar, "met" if 1 / times_better <= bar.factor else "missed", 1 / times_better)


def take_turns(table: Table, contenders: list[Contender], rounds: int, warm_up: int = 2) -> None:
    """Adds a row per contender. One who fails is out of the race; the others go on.

    After the warm-up each round has another order: after a heavy one the processors are awake.
    """
    rows = {contender.name: Row(contender.name, contender.role) for contender in contenders}
    dice = random.Random(1)
    for number in range(-warm_up, rounds):
        for contender in dice.sample(contenders, len(contenders)) if number >= 0 else contenders:
            row = rows[contender.name]
            if row.failed or row.skipped or (number > 0 and number % contender.every):
                continue
            if number < -1 and contender.every > 1:
                continue  # one warm-up is enough for the slow ones
            try:
                once = contender.once.get() if isinstance(contender.once, Lazy) else contender.once
                if contender.before:
                    contender.before()
                started = time.perf_counter()
                returned = once()
                elapsed = (time.perf_counter() - started) * 1000
                if isinstance(returned, float):
                    elapsed = returned
                if contender.is_right and not contender.is_right(returned):
                    raise RuntimeError(f"it returned {str(returned)[:300]}")
            except Skipped as missing:
                row.skipped = str(missing)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other rows are worth having
                row.failed = f"{type(error).__name__}: {error}"
            else:
                if number >= 0:
                    row.values.append(elapsed)
    table.rows.extend(rows.values())
