"""An agent for each test, started as an ordinary process: what a box adds is tested with boxes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.agent import Agent
from support.glovebox import find_binary


@pytest.fixture
def agent() -> Iterator[Agent]:
    binary = find_binary().parent / "guest/agent"
    if not os.access(binary, os.X_OK):
        pytest.exit(f"{binary} is missing: run make first", returncode=1)
    agent = Agent(binary)
    yield agent
    agent.close()
