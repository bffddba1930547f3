"""Daemons for the tests of MCP, and a peer for each transport and era."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.daemons import StartDaemon, make_daemons
from support.mcp import LEGACY, MODERN, HttpPeer, Peer, StdioPeer
from support.service import Service, start_service


@pytest.fixture(scope="module")
def service(binary: Path) -> Iterator[Service]:
    """A service with the keys "ann" and "bob", for all tests of a file."""
    for make in make_daemons(binary):
        yield start_service(make(start=False))


@pytest.fixture(scope="module")
def conformance_service(binary: Path) -> Iterator[Service]:
    """The same with the tools, prompts and resources that the conformance tests want."""
    for make in make_daemons(binary):
        yield start_service(make(start=False, env={"GLOVEBOX_TEST_MCP_FIXTURES": "1"}))


@pytest.fixture
def own_service(start_daemon: StartDaemon) -> Service:
    """A service of this test's own."""
    return start_service(start_daemon(start=False))


@pytest.fixture
def stdio(service: Service) -> Iterator[Callable[..., StdioPeer]]:
    """`stdio("--workspace", "…", era=MODERN)`: a server that is ended with the test."""
    made: list[StdioPeer] = []

    def start(*options: str, era: str = LEGACY) -> StdioPeer:
        made.append(StdioPeer(service.daemon, era, *options))
        return made[-1]

    yield start
    for peer in made:
        if peer.process.poll() is None:
            peer.close()


@pytest.fixture(params=["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"])
def peer(request: pytest.FixtureRequest, service: Service) -> Iterator[Peer]:
    transport, era = request.param.split("-")
    version = MODERN if era == "modern" else LEGACY
    made = StdioPeer(service.daemon, version) if transport == "stdio" else HttpPeer(service, version)
    yield made
    if isinstance(made, HttpPeer):
        made.call("close_sandbox", sandbox="default")
    made.close()
