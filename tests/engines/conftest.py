"""Engines for tests, started once, and daemons that use them."""

from __future__ import annotations

import contextlib
import os
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
    "incus": ("incus", ()),
    "incus-remote": ("incus", ()),
    "remote": ("remote", ()),
}
# Hosts with KVM that works are told by this: see docs/HACKING.md.
if os.environ.get("GLOVEBOX_TEST_INCUS_VM"):
    KINDS["incus-vm"] = ("incus-vm", ())


@pytest.fixture(scope="session")
def service() -> Iterator[Callable[[str], engines.Engine]]:
    """Gives the engine of that name, started when it is first needed."""
    with contextlib.ExitStack() as stack:
        running: dict[str, engines.Engine] = {}

        def get(name: str) -> engines.Engine:
            if name not in running:
                makers = {"docker": engines.docker, "podman": engines.podman, "incus": incus_server.incus}
                makers |= {"incus-remote": incus_server.incus_remote, "incus-vm": incus_server.incus_vm}
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

    @property
    def is_instance(self) -> bool:
        """Each session is in an instance with a Glovebox of its own."""
        return self.kind in ("incus-remote", "incus-vm")

    @property
    def engine_name(self) -> str:
        return KINDS[self.kind][0]

    @property
    def isolation(self) -> str:
        return "gvisor" if self.is_gvisor else "vm" if self.kind == "incus-vm" else "container"

    @property
    def is_elsewhere(self) -> bool:
        """The processes and files of its boxes are not this host's, as far as the daemon can tell."""
        return self.kind == "remote" or self.is_instance

    def client(self) -> Client:
        return self.daemon.client()

    def show(self, session: str) -> dict:
        """The session, as whoever operates the host of its box sees it."""
        shown = self.client().request("session.show", session=session)
        if self.kind == "incus-remote":
            return self.engine.session_inside(shown["id"])  # type: ignore[union-attr]
        return self.remote.show(shown["id"]) if self.remote else shown

    def beside(self, start: StartDaemon, tmp_path: Path, *options: str, env: dict[str, str] | None = None) -> Client:
        """Another daemon of the same kind; the options and variables are those of the host of its boxes."""
        if not self.remote:
            return start(*self.daemon.options, *options, env={**self.daemon.env, **(env or {})}).client()
        (tmp_path / "tls").mkdir()
        remote = Remote(start, tmp_path / "tls", "--allow-read", "/tmp", *options, env=env)
        return start("--engine", "remote", *remote.options, env=remote.env).client()

    def clear(self) -> None:
        """Instances are large, and outlive the daemon with the files of their sessions."""
        with self.daemon._connect() as client:
            for session in client.request("session.list")["sessions"]:
                client.request("session.remove", session=session["name"])

    def no_boxes(self) -> None:
        """Nothing is left at the engine."""
        if self.engine:
            engine = self.engine
            wait_for("the boxes to go", lambda: not engine.boxes())


def options_of(service: Callable[[str], engines.Engine], kind: str) -> tuple[engines.Engine | None, tuple[str, ...]]:
    name, more = KINDS[kind]
    if name == "native":
        return None, ("--engine", "native")
    engine = service(kind if kind in ("podman-gvisor", "incus-remote") else name)
    if kind == "incus-remote":
        return engine, ("--engine", name, "--incus-image", incus_server.IMAGE)
    if name.startswith("incus"):
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
        env = getattr(engine, "remote_env", None) if request.param == "incus-remote" else None
        made = Bench(request.param, make(*options, env=env), engine)
        yield made
        if made.is_instance:
            made.clear()
            made.no_boxes()
    made.no_boxes()


@pytest.fixture
def client(bench: Bench) -> Iterator[Client]:
    yield bench.client()
    if bench.is_instance:
        bench.clear()
