#!/usr/bin/env python3
"""Measures Glovebox beside its peers, in one run on one machine, all in turn.

Writes results.json, results.md and results.png to bench/results (with --quick: to build/bench). With --check the exit
status is 1 where a promise is broken; what could not be measured here is reported and breaks no promise."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report  # noqa: E402
from context import REPOSITORY, Bench, say  # noqa: E402
from measure import Skipped, Table  # noqa: E402
from tables import ALL  # noqa: E402


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a promise is broken")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller sizes: about two minutes")
    parser.add_argument("--only", action="append", metavar="TABLE", choices=[module.NAME for module in ALL], default=[])
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results go")
    return parser.parse_args()


def measure_all(bench: Bench, only: list[str]) -> list[Table]:
    tables = []
    for module in ALL:
        if only and module.NAME not in only:
            continue
        say(f"{module.NAME}: {module.TITLE}")
        started = time.monotonic()
        try:
            table = module.measure(bench)
        except Skipped as missing:
            table = Table(module.NAME, module.TITLE)
            table.skip("glovebox", "ours", str(missing))
        except Exception as error:  # noqa: BLE001 - one broken table must not cost the others
            table = Table(module.NAME, module.TITLE)
            table.fail("glovebox", "ours", f"{type(error).__name__}: {error}")
        tables.append(table)
        print(report.table_markdown(table), flush=True)
        say(f"{module.NAME} took {time.monotonic() - started:.0f} s")
    return tables


def summarize(tables: list[Table]) -> int:
    """Prints each promise that is not met. Returns how many are broken."""
    states = {"met": 0, "missed": 0, "unknown": 0}
    for table in tables:
        for verdict in table.judge():
            states[verdict.state] += 1
            if verdict.state != "met":
                measured = "" if verdict.measured is None else f" (measured: {report.number(verdict.measured)})"
                why = f": {verdict.why}" if verdict.why else ""
                print(f"{verdict.state}: {table.name}: {verdict.bar.text(table.unit)}{measured}{why}")
    broken = [f"{table.name}: {row.name}: {row.failed}" for table in tables for row in table.rows if row.failed]
    for line in broken:
        print(f"failed: {line}")
    print(f"{states['met']} promises kept, {states['missed']} broken, {states['unknown']} not measured here")
    ours = sum(1 for table in tables for row in table.rows if row.failed and row.role == "ours")
    return states["missed"] + ours


def main() -> int:
    options = parse()
    if not (REPOSITORY / "build/glovebox").exists():
        say("build/glovebox is missing: run make first")
        return 2
    directory = options.out or REPOSITORY / ("build/bench" if options.quick or options.only else "bench/results")
    before = report.machine()
    bench = Bench(options.quick)
    # A signal must not leave daemons behind: an exception runs what stands in `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        tables = measure_all(bench, options.only)
    finally:
        bench.close()
    why_no_plot = report.write(tables, directory, options.quick, before)
    if why_no_plot:
        say(f"no picture: {why_no_plot}")
    broken = summarize(tables)
    say(f"results are in {directory}")
    return 1 if options.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
