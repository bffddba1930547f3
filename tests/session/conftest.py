"""Daemons for tests: one for each test, whose socket and everything it keeps lie in the test's own data directory; or
one for a module, where starting it is most of the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.daemons import make_daemons
from support.glovebox import Glovebox


@pytest.fixture
def idle_glovebox(glovebox: Glovebox) -> Iterator[Glovebox]:
    """No daemon is running yet; what the test starts is ended with it."""
    yield glovebox
    stopped = glovebox("stop", "--end-sessions", timeout=90)
    assert stopped.returncode == 0, stopped.stderr


@pytest.fixture
def served_glovebox(idle_glovebox: Glovebox) -> Glovebox:
    """A daemon is running, with nothing imported beforehand and one kernel in the pool."""
    started = idle_glovebox("serve", "--background", "--pool", "1", "--preload", "")
    assert started.returncode == 0, started.stderr
    return idle_glovebox


@pytest.fixture(scope="module")
def pool_daemon(binary: Path) -> Iterator[Daemon]:
    """A daemon with two kernels in its pool, and a secret that no box may see."""
    for make in make_daemons(binary):
        yield make("--pool", "2", env={"SECRET": "sesame"})
