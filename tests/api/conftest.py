"""The service for tests: one for all tests of a file, or one for a test that needs options of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from support.daemons import StartDaemon, make_daemons
from support.service import Service, StartService, start_service


@pytest.fixture(scope="module")
def service(binary: Path) -> Iterator[Service]:
    """A service with the keys "ann" and "bob". Tests must not disturb it, and each uses user_ids of its own."""
    for make in make_daemons(binary):
        yield start_service(make("--pool", "1", start=False))


@pytest.fixture
def make_service(start_daemon: StartDaemon) -> StartService:
    """`make_service("--upload", "1m", keys=("ann",))`: a service of this test's own."""

    def start(*options: str, keys: Sequence[str] = ("ann", "bob"), env: Mapping[str, str] | None = None) -> Service:
        return start_service(start_daemon(*options, start=False, env=env), keys)

    return start
