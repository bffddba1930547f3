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
from support.daemons import StartDaemon, make_daemons
from support.remote import Remote, serve_remote

# How a daemon is told to use it: the engine, and options.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "native": ("native", ()),
    "docker": ("docker", ()),
    "podman": ("podman", ()),
    "docker-gvisor": ("docker", ("--engine-runtime", "runsc")),
    "podman-gvisor": ("podman", ("--engine-runtime", "runsc")),
    "remote": ("remote", ()),
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
    engine: engines.Engine | None  # None: native, or a remote
    remote: Remote | None = None

    @property
    def is_gvisor(self) -> bool:
        return self.kind.endswith("gvisor")

    def client(self) -> Client:
        return self.daemon.client()

    def show(self, session: str) -> dict:
        """The session, as whoever operates the host of its box sees it."""
        shown = self.client().request("session.show", session=session)
        return self.remote.show(shown["id"]) if self.remote else shown

    def beside(self, start: StartDaemon, tmp_path: Path, *options: str, env: dict[str, str] | None = None) -> Client:
        """Another daemon of the same kind; the options and variables are those of the host of its boxes."""
        if not self.remote:
            return start(*self.daemon.options, *options, env=env).client()
        (tmp_path / "tls").mkdir()
        remote = Remote(start, tmp_path / "tls", "--allow-read", "/tmp", *options, env=env)
        return start("--engine", "remote", *remote.options, env=remote.env).client()

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
def bench(
    request: pytest.FixtureRequest,
    binary: Path,
    service: Callable[[str], engines.Engine],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    if request.param == "remote":
        for make in make_daemons(binary):
            directory = tmp_path_factory.mktemp("remote")
            with serve_remote(make, directory, "--allow-read", "/tmp") as remote:
                yield Bench("remote", make("--engine", "remote", *remote.options, env=remote.env), None, remote)
        return
    engine, options = options_of(service, request.param)
    for make in make_daemons(binary):
        made = Bench(request.param, make(*options), engine)
        yield made
    made.no_boxes()


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.client()
