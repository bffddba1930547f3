"""The programs of the seeds, over a daemon that they start themselves, as a user's program does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.glovebox import REPOSITORY, Glovebox

sys.path.insert(0, str(REPOSITORY / "clients/python/src"))


@pytest.fixture
def place(root_glovebox: Glovebox, layer_data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of this test's own and an environment in which nothing runs yet. What is started is ended."""
    own = root_glovebox.environment({"GLOVEBOX_PROGRAM": str(root_glovebox.binary)})
    for name, value in own.items():
        if name.startswith(("GLOVEBOX_", "XDG_")) or name in ("HOME", "TMPDIR"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOVEBOX_SHARED_DATA_DIR", str(layer_data))
    monkeypatch.chdir(root_glovebox.place.path)
    yield root_glovebox.place.path
    stopped = root_glovebox("stop", "--end-sessions", timeout=90)
    assert stopped.returncode == 0, stopped.stderr
