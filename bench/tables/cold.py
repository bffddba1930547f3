"""A cold `glovebox run`: no daemon, nothing warm; everything made and taken apart again."""

from __future__ import annotations

from context import Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import bubblewrap, docker, python, runc
from peers.command import runner

NAME = "cold"
TITLE = "Cold one-shot: `print(42)`, nothing prepared"
CODE = "print(42)"


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    table.bars = [Bar("glovebox run", "within", 1.5, "bubblewrap")]
    ours = [str(bench.glovebox), "run", "-c", CODE]
    contenders = [
        Contender("glovebox run", runner(ours, "42", bench.environment), "ours"),
        Contender("bubblewrap", Lazy(lambda: runner(bubblewrap.command(CODE), "42"))),
        Contender("python3, no box", runner(python.command(CODE), "42"), "limit"),
        Contender("runc run", Lazy(lambda: runner(runc.command(bench, CODE), "42")), every=2),
        Contender("docker exec", Lazy(lambda: runner(docker.exec_command(bench, CODE), "42")), every=3),
        Contender("docker run, hardened", Lazy(lambda: runner(docker.run_command(bench, CODE), "42")), every=5),
    ]
    take_turns(table, contenders, bench.rounds(100, 20))
    table.notes.append("docker exec enters a container that runs already; all others start from nothing")
    return table
