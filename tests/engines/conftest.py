"""Engines for tests, started once, and daemons that use them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import engines
from support import incus as incus_server
from support.client import Client
from support.daemon import Daemon, wait_for
from support.daemons import make_daemons

# How a daemon is told to use it: the engine, and options.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "native": ("native", ()),
    "docker": ("docker", ()),
    "podman": ("podman", ()),
    "docker-gvisor": ("docker", ("--engine-runtime", "runsc")),
    "podman-gvisor": ("podman", ("--engine-runtime", "runsc")),
    "incus": ("incus", ()),
}


@pytest.fixture(scope="session")
def service() -> Iterator[Callable[[str], engines.Engine]]:
    """Gives the engine of that name, started when it is first needed."""
    with contextlib.ExitStack() as stack:
        running: dict[str, engines.Engine] = {}

        def get(name: str) -> engines.Engine:
            if name not in running:
                makers = {"docker": engines.docker, "podman": engines.podman, "incus": incus_server.incus}
                makers["podman-gvisor"] = lambda: engines.podman("runsc")
                running[name] = stack.enter_context(makers[name]())
            return running[name]

        yield get


@dataclass
class Bench:
    """A daemon whose boxes one engine makes."""

    kind: str
    daemon: Daemon
    engine: engines.Engine | None  # None: native

    @property
    def is_gvisor(self) -> bool:
        return self.kind.endswith("gvisor")

    def client(self) -> Client:
        return self.daemon.client()

    def no_boxes(self) -> None:
        """Nothing is left at the engine."""
        if self.engine:
            engine = self.engine
            wait_for("the boxes to go", lambda: not engine.boxes())


def options_of(service: Callable[[str], engines.Engine], kind: str) -> tuple[engines.Engine | None, tuple[str, ...]]:
    name, more = KINDS[kind]
    if name == "native":
        return None, ("--engine", "native")
    engine = service(kind if kind == "podman-gvisor" else name)
    if name == "incus":
        return engine, ("--engine", name, "--incus-image", incus_server.IMAGE, "--incus-socket", str(engine.socket))
    return engine, ("--engine", name, "--engine-image", engines.IMAGE, f"--{name}-socket", str(engine.socket), *more)


@pytest.fixture(scope="module", params=list(KINDS))
def bench(request: pytest.FixtureRequest, binary: Path, service: Callable[[str], engines.Engine]) -> Iterator[Bench]:
    engine, options = options_of(service, request.param)
    for make in make_daemons(binary):
        made = Bench(request.param, make(*options), engine)
        yield made
    made.no_boxes()


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.client()
