"""Every engine beside native: the first run of a new session, a warm run, an ephemeral run from the pool. `docker run`
and `podman run` of the same image, through the same API, are the measure. A remote Glovebox is behind a network with a
delay, and the measure is a request to its HTTP API through the same network."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from client import Client
from context import API_KEY, Bench, say
from http_client import HttpClient
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import delayed_network, services
from tables.warm import is_two

NAME = "engines"
TITLE = "Engines: a new session's first run, a warm run, an ephemeral run from the pool"
POOL = 2

# For each: the daemon, the options of a session, and the plain run that it is compared with.
KINDS: dict[str, tuple[str, dict[str, str], tuple[str, str] | None]] = {
    "native": ("engines", {"engine": "native", "mode": "fresh"}, None),
    "docker": ("engines", {"engine": "docker"}, ("docker", "")),
    "podman": ("engines", {"engine": "podman"}, ("podman", "")),
    "docker with gVisor": ("engines", {"engine": "docker", "isolation": "gvisor"}, ("docker", "runsc")),
    "podman with gVisor": ("engines-gvisor", {"engine": "podman", "isolation": "gvisor"}, ("podman-gvisor", "runsc")),
    "incus": ("engines", {"engine": "incus"}, None),
    "remote": ("engines-remote", {"engine": "remote", "mode": "fresh"}, None),
}
SLOW = ("gVisor", "incus")  # measured in every second round


def network(bench: Bench) -> delayed_network.DelayedNetwork:
    """To the REST API of a second daemon."""
    return bench.share("delayed network", lambda: delayed_network.DelayedNetwork(bench.service().api_port()))


class Sessions:
    """New sessions of one kind, and the last one, which stays for warm runs."""

    def __init__(self, bench: Bench, kind: str) -> None:
        name, self.fields, _ = KINDS[kind]
        podman = "podman-gvisor" if name == "engines-gvisor" else "podman"
        more = ("--remote-url", f"http://127.0.0.1:{network(bench).port}") if kind == "remote" else ()
        self.client: Client = services.daemon(bench, name, 0, *more, podman=podman).connect()
        self.names = (f"{kind.replace(' ', '-')}-{number}" for number in itertools.count())
        self.last = ""
        self.memory_bytes = 0

    def remove_last(self) -> None:
        if self.last:
            self.client.request("session.remove", session=self.last)
            time.sleep(0.5)  # its box is removed outside of the timed calls
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


def add_difference(table: Table) -> None:
    """What the remote adds to a run: of each round, less the median of a native run."""
    native, remote = table.row("native, warm run"), table.row("remote, warm run")
    if native and remote and native.values and remote.values:
        middle = statistics.median(native.values)
        table.add("remote, added to a warm run", "ours", [value - middle for value in remote.values])


def is_zero(status: object) -> bool:
    return status == 0


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    shared = services.services(bench)
    kinds = {kind: Sessions(bench, kind) for kind in KINDS if services.needed_by(kind) in shared.of}
    say("filling the pools")
    pools = {engine: pooled(bench, engine) for engine in ("native", "docker", "podman")}
    say("first runs")
    cold = []
    for kind, sessions in kinds.items():
        every = 2 if kind.endswith(SLOW) else 1
        name, once = f"{kind}, first run", sessions.first_run
        cold.append(Contender(name, once, "ours", sessions.remove_last, every, is_two))
        plain = KINDS[kind][2]
        if plain:
            once = partial(shared.plain_run, *plain)
            cold.append(Contender(f"{kind}, plain run", once, every=every, is_right=is_zero))
    for engine, once in pools.items():
        refill = once.refill  # type: ignore[attr-defined]
        cold.append(Contender(f"{engine}, pooled run", Lazy(lambda once=once: once), "ours", refill, is_right=is_two))
    take_turns(table, cold, bench.rounds(7, 3), warm_up=1)
    say("warm runs")
    warm = [Contender(f"{kind}, warm run", kinds[kind].warm_run, "ours", is_right=is_two) for kind in kinds]
    http = HttpClient(network(bench).port, API_KEY)
    warm.append(Contender("remote, HTTP round trip", lambda: http.ask("GET", "/health")))
    take_turns(table, warm, bench.rounds(300, 60))
    add_difference(table)
    for engine in ("docker", "podman"):
        table.bars += [
            Bar(f"{engine}, warm run", "within", 2, "native, warm run"),
            Bar(f"{engine}, first run", "within", 1.15, f"{engine}, plain run"),
        ]
        table.bars.append(Bar(f"{engine}, pooled run", "faster", 10, f"{engine}, plain run"))
    table.bars.append(Bar("remote, added to a warm run", "within", 1.25, "remote, HTTP round trip"))  # two would be 2
    table.notes.append(f"the network to the remote delays each way by {delayed_network.DELAY_S * 1000:g} ms")
    peaks = ", ".join(f"{kind} {sessions.memory_bytes / (1 << 20):.0f} MiB" for kind, sessions in kinds.items())
    table.notes.append(f"memory of a box after its first run, without the engine's own processes: {peaks}")
    table.notes.append("a plain run is create, start, wait and remove of a container with the same hardening")
    return table
