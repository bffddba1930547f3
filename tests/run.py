#!/usr/bin/env python3
"""Runs the tests, part by part: `tests/run.py` for all, `tests/run.py unit box` for some.

One line for each part, the full output of what failed, and as the last line of all `N passed, N failed`. The exit
status is 0 only when nothing failed. With CI=true, warnings of the compilers are errors and a skipped test is a failure
unless its reason starts with "optional:"."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from runner.lint import docs, lint
from runner.machine import vm
from runner.native import fuzz, sanitizers, unit
from runner.outcome import Outcome
from runner.python import frameworks, kernel, pytest_part, sdk

PARTS: dict[str, tuple[str, Callable[[], Outcome]]] = {
    "lint": ("style of the sources", lint),
    "docs": ("documents are whole", docs),
    "unit": ("C unit tests", unit),
    "agent": ("the agent, on its own", lambda: pytest_part("agent", "tests/agent", 180)),
    "box": ("boxes, as root and as a user", lambda: pytest_part("box", "tests/box", 900)),
    "api": ("the HTTP server, over bare sockets", lambda: pytest_part("api", "tests/api", 480)),
    "nursery": ("kernels forked from a warm Python", lambda: pytest_part("nursery", "tests/nursery", 300)),
    "kernel": ("the Python kernel, without a box", kernel),
    "compat": ("the programs of the seeds", lambda: pytest_part("compat", "tests/compat", 400)),
    "frameworks": ("adapters, by the frameworks' own suites", frameworks),
    "session": ("the daemon and its sessions", lambda: pytest_part("session", "tests/session", 900)),
    "engines": ("one suite over every engine", lambda: pytest_part("engines", "tests/engines", 1500)),
    "sdk": ("the Python package, over socket and HTTP", sdk),
    "mcp": ("MCP, by its own tests and clients", lambda: pytest_part("mcp", "tests/mcp", 600)),
    "programs": ("every run means the same", lambda: pytest_part("programs", "tests/programs", 600)),
    "chaos": ("faults that the daemon survives", lambda: pytest_part("chaos", "tests/chaos", 900)),
    "escape": ("attempts to get out", lambda: pytest_part("escape", "tests/escape", 900)),
    "sanitizers": ("unit and smoke tests with ASan and UBSan", sanitizers),
    "fuzz": ("parsers of foreign bytes", fuzz),
    "vm": ("pure cgroup v2, in a virtual machine", vm),
}

WARNINGS_SHOWN = 10


def run_part(name: str) -> Outcome:
    """Runs one part and prints its line. A part that breaks is a failure of the part, not the end of the run."""
    started = time.monotonic()
    try:
        outcome = PARTS[name][1]()
    except Exception as problem:
        outcome = Outcome(failed=1, details=[f"{type(problem).__name__}: {problem}"])
    seconds = time.monotonic() - started
    skipped = f", {outcome.skipped} skipped" if outcome.skipped else ""
    verdict = "FAILED" if outcome.failed else "ok"
    counts = f"{outcome.passed} passed, {outcome.failed} failed{skipped}"
    print(f"{name:<11} {verdict:<7} {counts:<36} {seconds:6.1f} s  {PARTS[name][0]}", flush=True)
    for warning in outcome.warnings[:WARNINGS_SHOWN]:
        print(f"            advice: {warning}")
    for detail in outcome.details:
        print("\n".join(f"    {line}" for line in detail.rstrip().splitlines()), flush=True)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs Glovebox's tests.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of: {', '.join(PARTS)} (default: all)")
    chosen = parser.parse_args().parts or list(PARTS)
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    # A shell starts its background jobs with SIGINT ignored, which the tests of Ctrl-C would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # Ended from outside: leave through the `finally`s, which end what was started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    total = Outcome()
    for name in chosen:
        total.add(run_part(name))
    for name in total.flaky:
        print(f"flaky: {name} (failed once, passed when tried again: fix it)")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
