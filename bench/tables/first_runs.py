"""Fifty users who all start their first pandas run in the same moment."""

from __future__ import annotations

import subprocess
import time

from context import Bench
from measure import Bar, Table
from tables.runs import PANDAS, SHAPE, runs

NAME = "first-runs"
TITLE = "50 users' first pandas run at once, until the last has its answer"
USERS = 50


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    of = runs(bench)
    command = [str(bench.glovebox), "run", "--quiet", "--socket", of.daemon.socket, "-c", PANDAS]
    last, single = [], []
    for _ in range(bench.rounds(5, 2)):
        of.wait()
        started = time.perf_counter()
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=of.environment, text=True)
            for _ in range(USERS)
        ]
        for process in processes:
            out, err = process.communicate()
            if out.strip() != SHAPE:
                raise RuntimeError(f"a run printed {out!r}, status {process.returncode}: {err[-200:]}")
            single.append((time.perf_counter() - started) * 1000)
        last.append((time.perf_counter() - started) * 1000)
    table.add("all 50 are done", "ours", last)
    table.add("one of them", "ours", single)
    table.bars = [Bar("all 50 are done", "at_most", 1000)]
    return table
