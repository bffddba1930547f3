"""The Python package, over both ways to a daemon of the tests' own: its socket, and the REST service."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Callable, TypeVar

import pytest
from support.daemons import make_daemons
from support.glovebox import REPOSITORY, Glovebox
from support.service import Service, start_service

sys.path.insert(0, str(REPOSITORY / "clients/python/src"))

from glovebox import AsyncSandbox, Sandbox  # noqa: E402

T = TypeVar("T")
Where = dict[str, Any]


@pytest.fixture(scope="module")
def service(binary: Path) -> Iterator[Service]:
    for make in make_daemons(binary):
        yield start_service(make("--pool", "1", start=False), ("ann",))


@pytest.fixture(params=["socket", "http"])
def where(request: pytest.FixtureRequest, service: Service) -> Where:
    """The arguments that lead to the daemon; a test with it runs twice."""
    if request.param == "socket":
        return {"socket": service.daemon.socket}
    return {"url": f"http://127.0.0.1:{service.port}", "api_key": service.keys["ann"]}


@pytest.fixture
def sandbox(where: Where) -> Iterator[Sandbox]:
    with Sandbox.create(**where) as made:
        yield made


@pytest.fixture
def with_async(where: Where) -> Callable[[Callable[[AsyncSandbox], Coroutine[Any, Any, T]]], T]:
    """Runs a coroutine function with an AsyncSandbox of its own."""

    def run(work: Callable[[AsyncSandbox], Coroutine[Any, Any, T]]) -> T:
        async def whole() -> T:
            async with await AsyncSandbox.create(**where) as made:
                return await work(made)

        return asyncio.run(whole())

    return run


@pytest.fixture
def idle_place(root_glovebox: Glovebox) -> Iterator[dict[str, str]]:
    """The environment of a place where no daemon runs yet; what is started there is ended."""
    environment = root_glovebox.environment({"GLOVEBOX_PROGRAM": str(root_glovebox.binary)})
    yield {name: value for name, value in environment.items() if name.startswith("GLOVEBOX_")}
    stopped = root_glovebox("stop", "--end-sessions", timeout=90)
    assert stopped.returncode == 0, stopped.stderr


@pytest.fixture(scope="session")
def dist() -> Iterator[Path]:
    """A directory with both wheels."""
    with tempfile.TemporaryDirectory(prefix="glovebox-test-dist-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        command = [sys.executable, str(REPOSITORY / "tools/wheels.py"), place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield Path(place)
