"""Every engine beside native: the first run of a new session, a warm run, an ephemeral run from the pool. `docker run`
and `podman run` of the same image, through the same API, are the measure."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from client import Client
from context import Bench
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import services
from tables.warm import is_two

NAME = "engines"
TITLE = "Engines: a new session's first run, a warm run, an ephemeral run from the pool"
POOL = 4

# Of each: the daemon, what a session asks for, and whose plain run it is compared with.
KINDS: dict[str, tuple[str, dict[str, str], tuple[str, str] | None]] = {
    "native": ("engines", {"engine": "native", "mode": "fresh"}, None),
    "docker": ("engines", {"engine": "docker"}, ("docker", "")),
    "podman": ("engines", {"engine": "podman"}, ("podman", "")),
    "docker with gVisor": ("engines", {"engine": "docker", "isolation": "gvisor"}, ("docker", "runsc")),
    "podman with gVisor": ("engines-gvisor", {"engine": "podman", "isolation": "gvisor"}, ("podman-gvisor", "runsc")),
}


class Sessions:
    """New sessions of one kind, and the last one, which stays for warm runs."""

    def __init__(self, bench: Bench, kind: str) -> None:
        name, self.fields, _ = KINDS[kind]
        podman = "podman-gvisor" if name == "engines-gvisor" else "podman"
        self.client: Client = services.daemon(bench, name, 0, podman=podman).connect()
        self.names = (f"{kind.replace(' ', '-')}-{number}" for number in itertools.count())
        self.last = ""
        self.memory_bytes = 0

    def remove_last(self) -> None:
        if self.last:
            self.client.request("session.remove", session=self.last)
            time.sleep(0.5)  # its box goes while nobody is timed
        self.last = ""

    def first_run(self) -> dict[str, Any]:
        self.last = next(self.names)
        self.client.request("session.create", session=self.last, **self.fields)
        done = self.client.execute("1+1", self.last)
        self.memory_bytes = done["usage"]["memory_peak_bytes"]
        return done

    def warm_run(self) -> dict[str, Any]:
        return self.client.execute("1+1", self.last)


def pooled(bench: Bench, engine: str) -> Callable[[], dict[str, Any]]:
    daemon = services.daemon(bench, f"engines-{engine}-pool", POOL, "--engine", engine)
    client = daemon.connect()
    daemon.wait_for_pool(client, 120)
    left = [POOL]

    def once() -> dict[str, Any]:
        left[0] -= 1
        return client.execute("1+1", None)

    def refill() -> None:
        if left[0] == 0:
            daemon.wait_for_pool(client, 120)
            left[0] = POOL

    once.refill = refill  # type: ignore[attr-defined]
    return once


def is_zero(status: object) -> bool:
    return status == 0


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    shared = services.services(bench)
    kinds = {kind: Sessions(bench, kind) for kind in KINDS}
    pools = {engine: pooled(bench, engine) for engine in ("native", "docker")}
    cold = []
    for kind, sessions in kinds.items():
        cold.append(
            Contender(f"{kind}, first run", sessions.first_run, "ours", before=sessions.remove_last, is_right=is_two)
        )
        plain = KINDS[kind][2]
        if plain:
            cold.append(Contender(f"{kind}, plain run", partial(shared.plain_run, *plain), is_right=is_zero))
    for engine, once in pools.items():
        refill = once.refill  # type: ignore[attr-defined]
        cold.append(Contender(f"{engine}, pooled run", Lazy(lambda once=once: once), "ours", refill, is_right=is_two))
    take_turns(table, cold, bench.rounds(9, 3), warm_up=1)
    warm = [Contender(f"{kind}, warm run", kinds[kind].warm_run, "ours", is_right=is_two) for kind in KINDS]
    take_turns(table, warm, bench.rounds(300, 60))
    for engine in ("docker", "podman"):
        table.bars += [
            Bar(f"{engine}, warm run", "within", 2, "native, warm run"),
            Bar(f"{engine}, first run", "within", 1.15, f"{engine}, plain run"),
        ]
    table.bars.append(Bar("docker, pooled run", "faster", 10, "docker, plain run"))
    peaks = ", ".join(f"{kind} {sessions.memory_bytes / (1 << 20):.0f} MiB" for kind, sessions in kinds.items())
    table.notes.append(f"memory of a box after its first run, the engine's own processes left out: {peaks}")
    table.notes.append("a plain run is create, start, wait and remove of a container with the same hardening")
    return table
