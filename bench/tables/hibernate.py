"""A session with a gigabyte of DataFrames goes to sleep and wakes again, beside writing and reading the same bytes."""

from __future__ import annotations

import os

from client import Client
from context import Bench
from measure import Bar, Contender, Lazy, Table, take_turns

NAME = "hibernate"
TITLE = "Hibernate and wake a session full of DataFrames"
OURS = "glovebox: sleep, then wake"
PLAIN = "plain write and read of the same bytes"


class Sleeper:
    def __init__(self, bench: Bench, mebibytes: int) -> None:
        self.client: Client = bench.daemon().connect()
        limits = {"memory_bytes": mebibytes * 4 << 20, "disk_bytes": mebibytes * 4 << 20}
        self.client.request("session.create", session="sleeper", limits=limits)
        rows = mebibytes * (1 << 20) // 8 // 4
        self._run("import numpy as np, pandas as pd")
        self._run(f"dfs = [pd.DataFrame({{'x': np.random.rand({rows})}}) for _ in range(4)]")
        self.expected = self._run("print(round(sum(df.x.sum() for df in dfs), 3))")

    def _run(self, code: str) -> str:
        answer = self.client.execute(code, "sleeper", timeout_ms=120_000)
        if answer.get("status") != "ok":
            raise RuntimeError(f"the session answered {str(answer)[:300]}")
        return str(answer["stdout"])

    def once(self) -> None:
        answer = self.client.request("session.hibernate", session="sleeper", depth="sleep")
        if answer.get("state") != "asleep":
            raise RuntimeError(f"it did not fall asleep: {str(answer)[:300]}")
        if self._run("print(round(sum(df.x.sum() for df in dfs), 3))") != self.expected:
            raise RuntimeError("it woke with other numbers")

    def stop(self) -> None:
        self.client.request("session.remove", session="sleeper")
        self.client.close()


class Plain:
    """The same bytes to a new file beside it, back into memory, and the file is removed: as that of a sleep."""

    def __init__(self, bench: Bench, mebibytes: int) -> None:
        bench.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = bench.data_dir / "plain.bin"
        self.bytes = os.urandom(1 << 20) * mebibytes

    def once(self) -> None:
        with open(self.path, "wb", buffering=0) as file:
            view = memoryview(self.bytes)
            at = 0
            while at < len(view):
                at += file.write(view[at : at + (64 << 20)]) or 0
        back = self.path.read_bytes()
        self.path.unlink()
        if len(back) != len(self.bytes):
            raise RuntimeError("read less than was written")

    def stop(self) -> None:
        self.path.unlink(missing_ok=True)


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    mebibytes = 512 if bench.quick else 1024
    table.bars = [Bar(OURS, "within", 1.5, PLAIN)]
    contenders = [
        Contender(OURS, Lazy(lambda: bench.share("sleeper", lambda: Sleeper(bench, mebibytes)).once), "ours"),
        Contender(PLAIN, Lazy(lambda: bench.share("plain", lambda: Plain(bench, mebibytes)).once), "limit"),
    ]
    take_turns(table, contenders, bench.rounds(6, 3), warm_up=1)
    table.notes.append(f"{mebibytes} MiB; neither waits for the disk: what sleeps is no safer than memory was")
    return table
