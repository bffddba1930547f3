"""The lower bound for every fork server: a Python process with the same modules loaded that forks, and nothing else."""

from __future__ import annotations

import subprocess

from context import SYSTEM_PYTHON, Bench
from peers import python

PROGRAM = """
import gc, os, sys, time
for name in sys.argv[1:]:
    __import__(name)
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    print((time.perf_counter() - started) * 1000, flush=True)
"""


class Forker:
    def __init__(self, bench: Bench, modules: list[str]) -> None:
        self.process = subprocess.Popen(
            [SYSTEM_PYTHON, "-c", PROGRAM, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=python.environment(bench) if modules else None,
        )
        self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the forking Python ended")
        return line

    def once(self) -> float:
        """Milliseconds of one fork and the end of the child, by its own clock."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._line())

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def forker(bench: Bench, modules: list[str]) -> Forker:
    return bench.share("forker " + " ".join(modules), lambda: Forker(bench, modules))
