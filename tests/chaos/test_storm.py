"""Small storms; `make soak` has the large ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from storm import KINDS, STYLES, Ledger, storm, summary
from support.daemons import StartDaemon


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "style"), [*((kind, "alone") for kind in KINDS), ("run", "forked"), ("wake", "forked")]
)
def test_l02_a_storm_of_kills_loses_doubles_and_invents_nothing(
    start_daemon: StartDaemon, tmp_path: Path, kind: str, style: str
) -> None:
    kills = int(os.environ.get("GLOVEBOX_STORM_KILLS", "25" if kind == "run" else "10"))
    ledger = Ledger(tmp_path / "ledger")
    storm(start_daemon(*STYLES[style]), ledger, kind, kills, 4, seed=20260 + KINDS.index(kind))
    assert not ledger.faults, summary(ledger) + "\n" + "\n".join(ledger.faults[:20])
    assert ledger.hits[kind] >= kills, summary(ledger)
    assert ledger.counts["checked"] == ledger.counts["acknowledged"] > 0
