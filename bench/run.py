#!/usr/bin/env python3
"""Measures a cold `glovebox run -c 'print(42)'` beside bubblewrap running the same interpreter.

The two take turns, so that whatever else the machine does hits both alike; medians are compared. The numbers go to
build/bench.json. With --check the exit status is 1 where the promise (at most 1.5 times bubblewrap) is broken."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PROMISED_RATIO = 1.5
CODE = "print(42)"

GLOVEBOX = [str(REPOSITORY / "build/glovebox"), "run", "-c", CODE]
BUBBLEWRAP = (
    "bwrap --unshare-all --die-with-parent --new-session --clearenv --setenv PATH /usr/bin "
    "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 "
    "--proc /proc --dev /dev --tmpfs /tmp /usr/bin/python3 -c"
).split() + [CODE]
BARE = ["/usr/bin/python3", "-c", CODE]

CONTENDERS = {"glovebox": GLOVEBOX, "bubblewrap": BUBBLEWRAP, "no box": BARE}


def time_once(command: list[str]) -> float:
    """Milliseconds of one run; a run that does not print 42 is an error, not a fast run."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    elapsed = (time.perf_counter() - started) * 1000
    if done.stdout != "42\n":
        sys.exit(f"bench: {command[0]} did not print 42 (status {done.returncode}): {done.stderr.strip()}")
    return elapsed


def measure(rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for round_number in range(rounds + 3):
        for name, command in CONTENDERS.items():
            elapsed = time_once(command)
            if round_number >= 3:  # the first rounds only warm the page cache
                times[name].append(elapsed)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail where the promise is broken")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="how often each is run (default 40)")
    options = parser.parse_args()
    times = measure(max(5, options.rounds))
    report: dict[str, dict[str, float]] = {}
    print(f"{'':<12}{'median':>10}{'fastest':>10}{'p95':>10}   (milliseconds, {options.rounds} rounds)")
    for name, values in times.items():
        row = {
            "median": statistics.median(values),
            "fastest": min(values),
            "p95": statistics.quantiles(values, n=20)[-1],
        }
        report[name] = {key: round(value, 2) for key, value in row.items()}
        print(f"{name:<12}{row['median']:>10.1f}{row['fastest']:>10.1f}{row['p95']:>10.1f}")
    ratio = report["glovebox"]["median"] / report["bubblewrap"]["median"]
    print(f"\nglovebox takes {ratio:.2f} times as long as bubblewrap; promised: at most {PROMISED_RATIO}")
    (REPOSITORY / "build/bench.json").write_text(json.dumps({"cold_run_ms": report, "ratio": round(ratio, 3)}) + "\n")
    return 1 if options.check and ratio > PROMISED_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
