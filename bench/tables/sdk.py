"""The Python package as the client, beside jupyter_client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from context import REPOSITORY, SYSTEM_PYTHON, Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import jupyter
from tables.warm import back_to_back, pause

NAME = "sdk"
TITLE = "The Python package: `run_code`, `Sandbox.create()` to a pandas result, its import"
SOURCE = REPOSITORY / "clients/python/src"
PANDAS = "import pandas as pd\npd.DataFrame({'x': [1, 2, 3]}).x.sum()"


def _package() -> Any:
    if str(SOURCE) not in sys.path:
        sys.path.insert(0, str(SOURCE))
    import glovebox

    return glovebox


class Warm:
    """One sandbox of the pool's daemon."""

    def __init__(self, bench: Bench) -> None:
        daemon = bench.daemon()
        with daemon.connect() as client:
            daemon.wait_for_pool(client)
        self.sandbox = _package().Sandbox.create(socket=daemon.socket)
        self.sandbox.run_code("1+1")

    def stop(self) -> None:
        self.sandbox.kill()


def _warm(bench: Bench) -> Callable[[], Any]:
    return partial(bench.share("sdk", lambda: Warm(bench)).sandbox.run_code, "1+1")


class Fresh:
    """A new sandbox each time; the one before is removed outside of the timed call."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.made: Any = None

    def drop(self) -> None:
        if self.made is not None:
            self.made.kill()
        self.made = None
        pause()

    def once(self) -> str:
        self.made = _package().Sandbox.create(socket=self.bench.daemon().socket)
        return str(self.made.run_code(PANDAS).text)


def _import() -> float:
    """Milliseconds of `import glovebox` in a fresh interpreter, by its own clock."""
    code = "import time; t = time.perf_counter(); import glovebox; print((time.perf_counter() - t) * 1000)"
    environment = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([SYSTEM_PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    for label in ("after 5 ms", "back to back"):
        table.bars.append(Bar(f"run_code, {label}", "faster", 10, f"jupyter_client, {label}"))
    table.bars.append(Bar("create to pandas result", "at_most", 25))
    table.bars.append(Bar("import glovebox", "at_most", 40))
    who: list[tuple[str, str, Callable[[], Callable[[], Any]], Callable[[Any], bool]]] = [
        ("run_code", "ours", lambda: _warm(bench), lambda execution: execution.text == "2"),
        ("jupyter_client", "peer", lambda: partial(jupyter.kernel(bench).execute, "1+1"), lambda text: text == "2"),
    ]
    idle = [
        Contender(f"{name}, after 5 ms", Lazy(make), role, before=pause, is_right=is_right)
        for name, role, make, is_right in who
    ]
    take_turns(table, idle, bench.rounds(300, 40), warm_up=5)
    busy = [
        Contender(f"{name}, back to back", Lazy(lambda make=make: back_to_back(make())), role)  # type: ignore[misc]
        for name, role, make, _ in who
    ]
    take_turns(table, busy, bench.rounds(40, 8))
    fresh = Fresh(bench)
    right = {"6", "np.int64(6)"}
    take_turns(
        table,
        [Contender("create to pandas result", fresh.once, "ours", fresh.drop, is_right=lambda text: text in right)],
        bench.rounds(60, 15),
        warm_up=3,
    )
    fresh.drop()
    take_turns(table, [Contender("import glovebox", _import, "ours")], bench.rounds(30, 8), warm_up=2)
    return table
