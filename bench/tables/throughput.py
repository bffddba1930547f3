"""Ephemeral isolated runs per second, four clients at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from context import Bench
from measure import Bar, Row, Skipped, Table
from peers import bubblewrap, docker, python
from peers.command import runner
from tables.ephemeral import CODE, Ephemeral

NAME = "throughput"
TITLE = "Ephemeral runs of `print(42)` per second, 4 clients"
CLIENTS = 4


def _rate(calls: list[Callable[[], None]], seconds: float) -> float:
    counts = [0] * len(calls)
    errors: list[Exception] = []
    stop_at = time.perf_counter() + seconds

    def work(number: int) -> None:
        try:
            while time.perf_counter() < stop_at and not errors:
                calls[number]()
                counts[number] += 1
        except Exception as error:  # noqa: BLE001 - the waiting thread reports it
            errors.append(error)

    started = time.perf_counter()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(counts) / (time.perf_counter() - started)


def _ours(bench: Bench) -> list[Callable[[], None]]:
    daemon = bench.daemon()
    return [
        bench.share(f"throughput {number}", lambda: Ephemeral(daemon, CODE, "42\n")).once for number in range(CLIENTS)
    ]


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE, unit="runs/s", higher_is_better=True)
    table.bars = [
        Bar("glovebox", "faster", 2.5, "bubblewrap"),
        Bar("glovebox", "faster", 40, "docker run, hardened"),
    ]
    who: list[tuple[str, str, Callable[[], list[Callable[[], None]]]]] = [
        ("glovebox", "ours", lambda: _ours(bench)),
        ("bubblewrap", "peer", lambda: [runner(bubblewrap.command(CODE), "42")] * CLIENTS),
        ("docker run, hardened", "peer", lambda: [runner(docker.run_command(bench, CODE), "42")] * CLIENTS),
        ("python3, no box", "limit", lambda: [runner(python.command(CODE), "42")] * CLIENTS),
    ]
    seconds = 1.0 if bench.quick else 3.0
    rows = {name: Row(name, role) for name, role, _ in who}
    for number in range(bench.rounds(6, 3)):
        for name, _, make in who:
            row = rows[name]
            if row.skipped or row.failed:
                continue
            try:
                rate = _rate(make(), seconds)
            except Skipped as missing:
                row.skipped = str(missing)
            except Exception as error:  # noqa: BLE001
                row.failed = f"{type(error).__name__}: {error}"
            else:
                if number > 0:
                    row.values.append(rate)
    table.rows.extend(rows.values())
    return table
