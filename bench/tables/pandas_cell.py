"""An ephemeral cell that needs pandas: what a nursery saves."""

from __future__ import annotations

from context import Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import forker, python
from peers.command import runner
from tables import ephemeral

NAME = "pandas"
TITLE = "Ephemeral pandas cell: import, a DataFrame, its shape"
CODE = 'import pandas as pd\nprint(pd.DataFrame({"x": [1, 2, 3]}).shape)'


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    table.bars = [
        Bar("glovebox, pool ready", "faster", 150, "python3, no box"),
        Bar("glovebox, pool empty", "faster", 40, "python3, no box"),
    ]
    contenders = [
        ephemeral.ours(bench, "glovebox, pool ready", 2, CODE, "(3, 1)\n"),
        ephemeral.ours(bench, "glovebox, pool empty", 0, CODE, "(3, 1)\n"),
        Contender(
            "python3, no box",
            Lazy(lambda: runner(python.command(CODE), "(3, 1)", python.environment(bench))),
            every=4,
        ),
        Contender("fork of the same memory", Lazy(lambda: forker.forker(bench, ephemeral.PRELOADED).once), "limit"),
    ]
    take_turns(table, contenders, bench.rounds(80, 12))
    return table
