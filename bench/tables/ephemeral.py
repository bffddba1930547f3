"""An ephemeral run through the daemon: a fresh sealed box and kernel for every call."""

from __future__ import annotations

from collections.abc import Callable

from client import Client
from context import Bench, Daemon
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import bubblewrap, docker, forker
from peers.command import runner

NAME = "ephemeral"
TITLE = "Ephemeral `print(42)` through the daemon: a fresh box for every call"
CODE = "print(42)"
PRELOADED = ["numpy", "pandas", "sklearn", "pyarrow", "matplotlib", "scipy"]


class Ephemeral:
    """Calls of one daemon by one client."""

    def __init__(self, daemon: Daemon, code: str, expected: str) -> None:
        self.daemon, self.code, self.expected = daemon, code, expected
        self.client: Client = daemon.connect()

    def once(self) -> None:
        answer = self.client.execute(self.code)
        if answer.get("status") != "ok" or answer.get("stdout") != self.expected:
            raise RuntimeError(f"the run answered {str(answer)[:300]}")

    def wait(self) -> None:
        self.daemon.wait_for_pool(self.client)

    def stop(self) -> None:
        self.client.close()


def ours(bench: Bench, name: str, pool: int, code: str, expected: str) -> Contender:
    def get() -> Ephemeral:
        return bench.share(f"{name} {code}", lambda: Ephemeral(bench.daemon(pool), code, expected))

    def make() -> Callable[[], None]:
        return get().once

    return Contender(name, Lazy(make), "ours", before=(lambda: get().wait()) if pool else None)


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    table.bars = [
        Bar("glovebox, pool ready", "faster", 15, "bubblewrap"),
        Bar("glovebox, pool ready", "faster", 150, "docker run, hardened"),
        Bar("glovebox, pool empty", "faster", 3, "bubblewrap"),
        Bar("glovebox, pool empty", "faster", 40, "docker run, hardened"),
    ]
    contenders = [
        ours(bench, "glovebox, pool ready", 2, CODE, "42\n"),
        ours(bench, "glovebox, pool empty", 0, CODE, "42\n"),
        Contender("bubblewrap", Lazy(lambda: runner(bubblewrap.command(CODE), "42"))),
        Contender("docker run, hardened", Lazy(lambda: runner(docker.run_command(bench, CODE), "42")), every=5),
        Contender("fork of a bare Python", Lazy(lambda: forker.forker(bench, []).once), "limit"),
    ]
    take_turns(table, contenders, bench.rounds(100, 20))
    table.notes.append("Code that imports nothing runs in a light kernel; the pandas cell below needs a full one.")
    return table
