"""Many idle sessions: what each costs in memory, and whether one of them is slower for it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from client import Client
from context import Bench, Daemon
from measure import Bar, Contender, Row, Table, take_turns
from peers import bare_loop
from tables.warm import pause

NAME = "density"
TITLE = "Idle sessions with numpy and pandas loaded, each after a cell and a garbage collection"
CELL = (
    "import gc, numpy as np, pandas as pd\n"
    'df = pd.DataFrame({"x": np.arange(100)})\n'
    "total = int(df.x.sum())\n"
    "del df\n"
    "gc.collect()\n"
    "print(total)"
)
OURS_MEMORY = "MiB per session, by the fall of free memory"
OURS_DAEMON = "KB of the daemon per session"
OURS_FIRST = "warm 1+1 with one session, ms"
OURS_LAST = "warm 1+1 with all sessions, ms"
OURS_SLOWER = "warm 1+1 with all sessions, × of that with one"
OURS_IDLE = "CPU of the idle daemon, % of one core"


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")


def _check_memory() -> None:
    """A host that is made to swap, or worse, measures nothing."""
    if _free_bytes() < 3 << 30:
        raise RuntimeError("sessions take so much memory that less than 3 GiB are left: stopped")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _warm(bench: Bench, daemon: Daemon, name: str, rounds: int) -> tuple[Row, float]:
    """A session's times, and how they compare with a bare loop in turn with it: half a minute lies between the first
    session alone and all of them, and the machine may have become twice as slow or fast."""
    with daemon.connect() as client:
        client.execute("1+1", name)
        turns = Table("", "")
        contenders = [
            Contender("ours", partial(client.execute, "1+1", name), "ours", before=pause),
            Contender("bare loop", partial(bare_loop.loop(bench).execute, "1+1"), before=pause),
        ]
        take_turns(turns, contenders, rounds)
    ours, bare = turns.rows
    if ours.failed or bare.failed:
        raise RuntimeError(ours.failed or bare.failed)
    return ours, ours.p50 / bare.p50


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE, unit="as said")
    count = 50 if bench.quick else 1000
    table.bars = [
        Bar(OURS_MEMORY, "at_most", 4),
        Bar(OURS_SLOWER, "at_most", 1.3),
        Bar(OURS_DAEMON, "at_most", 20),
        Bar(OURS_IDLE, "at_most", 1),
    ]
    # Its own daemon, so that nothing of the other tables is in the numbers.
    daemon = bench.daemon(1)
    rounds = bench.rounds(200, 40)
    with daemon.connect() as client:
        daemon.wait_for_pool(client)  # so that the nursery is in none of the numbers, and the first session is like all
        names = [f"idle{number}" for number in range(count)]
        _open(client, names[:1])
        first, first_ratio = _warm(bench, daemon, names[0], rounds)
        time.sleep(1)
        free, own = _free_bytes(), daemon.memory_bytes()
        started = time.perf_counter()
        _open(client, names[1:])
        made_in = time.perf_counter() - started
        time.sleep(2)
        per_session = (free - _free_bytes()) / (count - 1)
        own_each = (daemon.memory_bytes() - own) / (count - 1)
        last, last_ratio = _warm(bench, daemon, names[count // 2], rounds)
        cpu, slept = _cpu_seconds(daemon.process.pid), 5.0 if not bench.quick else 2.0
        time.sleep(slept)
        busy = (_cpu_seconds(daemon.process.pid) - cpu) / slept * 100
        for name in names:
            client.request("session.remove", session=name)
    table.add(OURS_MEMORY, "ours", [per_session / (1 << 20)])
    table.add(OURS_DAEMON, "ours", [own_each / 1e3])
    table.add(OURS_FIRST, "ours", first.values)
    table.add(OURS_LAST, "ours", last.values)
    table.add(OURS_SLOWER, "ours", [last_ratio / first_ratio])
    table.add(OURS_IDLE, "ours", [busy])
    table.add("ms to make one session and run the cell", "ours", [made_in * 1000 / (count - 1)])
    table.notes.append(
        f"{count} sessions; for comparison, memory of each: docker 41 MB, ipykernel with pandas 79–90 MB"
    )
    table.notes.append("with all and with one session: each as against a bare loop in turn with it")
    return table


def _open(client: Client, names: list[str]) -> None:
    for name in names:
        _check_memory()
        answer = client.execute(CELL, name)
        if answer.get("stdout") != "4950\n":
            raise RuntimeError(f"session {name} answered {str(answer)[:300]}")
