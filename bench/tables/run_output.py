"""Much output of one `glovebox run`, through a pipe to a reader, beside a pipe without a box."""

from __future__ import annotations

import subprocess
import time

from context import Bench
from measure import Bar, Contender, Table, take_turns
from tables.runs import runs

NAME = "run-output"
TITLE = "100 MB of output of one run, into a pipe to cat"
SIZE = 100_000_000
CODE = (
    f"import sys\npiece = b'x' * (1 << 16)\nleft = {SIZE}\n"
    "while left > 0:\n    left -= sys.stdout.buffer.write(piece[:left])"
)


def _through(command: list[str], environment: dict[str, str]) -> float:
    """Milliseconds until cat has written all of it to nowhere."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment) as first:
        done = subprocess.run(["sh", "-c", "cat | wc -c"], stdin=first.stdout, capture_output=True, check=True)
    took = (time.perf_counter() - started) * 1000
    if int(done.stdout) != SIZE or first.returncode != 0:
        raise RuntimeError(f"{command[0]} gave {done.stdout!r} bytes, status {first.returncode}")
    return took


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    of = runs(bench)
    ours = [str(bench.glovebox), "run", "--quiet", "--socket", of.daemon.socket, "-c", CODE]
    contenders = [
        Contender("glovebox run", lambda: _through(ours, of.environment), "ours", before=of.wait),
        Contender("python3, no box", lambda: _through(["/usr/bin/python3", "-c", CODE], of.environment)),
    ]
    table.bars = [Bar("glovebox run", "within", 2, "python3, no box")]
    take_turns(table, contenders, bench.rounds(10, 4))
    return table
