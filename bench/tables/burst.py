"""A hundred ephemeral numpy runs, requested at the same moment."""

from __future__ import annotations

import time

from client import Client
from context import Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import forker

NAME = "burst"
TITLE = "100 ephemeral numpy runs started at once: until the last has answered"
RUNS = 100
CODE = "import numpy as np\nprint(int(np.arange(1000).sum()))"


def _once(bench: Bench) -> float:
    daemon = bench.daemon()
    clients = [daemon.connect() for _ in range(RUNS)]
    try:
        daemon.wait_for_pool(clients[0])
        started = time.perf_counter()
        for client in clients:
            client.begin("execute", ephemeral=True, code=CODE)
        failed = [why for why in map(_finish, clients) if why]
        elapsed = (time.perf_counter() - started) * 1000
    finally:
        for client in clients:
            client.close()
    if failed:
        raise RuntimeError(f"{len(failed)} of {RUNS} runs failed; the first: {failed[0]}")
    return elapsed


def _finish(client: Client) -> str:
    answer = client.finish()
    return "" if answer.get("stdout") == "499500\n" else str(answer)[:300]


def _forks(bench: Bench) -> float:
    one = forker.forker(bench, ["numpy"])
    return sum(one.once() for _ in range(RUNS))


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    table.bars = [Bar("glovebox, 100 runs", "at_most", 1000)]
    contenders = [
        Contender("glovebox, 100 runs", Lazy(lambda: lambda: _once(bench)), "ours"),
        Contender("100 forks of the same memory, one by one", lambda: _forks(bench), "limit"),
    ]
    take_turns(table, contenders, bench.rounds(8, 2), warm_up=1)
    return table
