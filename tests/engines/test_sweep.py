"""The sweep takes what has ended, and nothing that an engine only calls so for a moment."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import options_of
from support import engines
from support.daemon import wait_for
from support.daemons import StartDaemon, make_daemons

# Incus now and then calls a container "Stopped" that runs or is being started: here it does so in every list.
CLIENT = """#!/bin/sh
case "$*" in
*"instances?recursion=1"*)
    {real} "$@" | sed 's/"status": *"Running"/"status":"Stopped"/g'
    touch {directory}/listed ;;
*) exec {real} "$@" ;;
esac
"""


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


def test_a_container_that_incus_calls_stopped_for_a_moment_stays(
    start: StartDaemon, service: Callable[[str], engines.Engine], tmp_path: Path
) -> None:
    engine, options = options_of(service, "incus")
    assert engine is not None
    (tmp_path / "incus").write_text(CLIENT.format(real=shutil.which("incus"), directory=tmp_path))
    (tmp_path / "incus").chmod(0o755)
    daemon = start(*options, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    daemon.client().execute("x = 41", "s")
    daemon.kill()
    (tmp_path / "listed").unlink(missing_ok=True)
    daemon.start()
    wait_for("the sweep", lambda: (tmp_path / "listed").exists())
    time.sleep(2)  # as long as it takes to remove one
    assert len(engine.boxes()) == 1
    assert daemon.client().execute("x + 1", "s")["result"] == {"text/plain": "42"}
