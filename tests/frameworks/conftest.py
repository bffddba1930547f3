"""Adapters for agent frameworks, tried by the frameworks' own suites, over a daemon of the tests' own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.daemons import make_daemons
from support.glovebox import REPOSITORY, find_binary

sys.path.insert(0, str(REPOSITORY / "clients/python/src"))


@pytest.fixture(scope="session")
def binary() -> Path:
    """The one of tests/conftest.py, which pytest does not load: the pytest.ini here makes this the root."""
    return find_binary()


@pytest.fixture(scope="session")
def framework_daemon(binary: Path) -> Iterator[Daemon]:
    for make in make_daemons(binary):
        yield make("--pool", "1", "--memory", "1g")


@pytest.fixture(scope="session")
def socket_path(framework_daemon: Daemon) -> str:
    return framework_daemon.socket
