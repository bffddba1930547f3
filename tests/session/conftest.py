from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.daemons import make_daemons


@pytest.fixture(scope="module")
def pool_daemon(binary: Path) -> Iterator[Daemon]:
    """A daemon with two kernels in its pool, and a secret that nobody may see."""
    for make in make_daemons(binary):
        yield make("--pool", "2", env={"SECRET": "sesame"})
