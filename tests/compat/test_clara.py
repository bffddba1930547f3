"""Seed 003: a sandbox for each user of a chat, here or on another machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import engines
from support.daemon import wait_for
from support.daemons import make_daemons
from support.service import Service, start_service


@pytest.fixture(scope="module")
def service(binary: Path) -> Iterator[Service]:
    for make in make_daemons(binary):
        yield start_service(make(start=False), ("clara",))


@pytest.mark.parametrize("mode", ["native", "remote"])
def test_every_use_of_the_text(place: Path, service: Service, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    from glovebox.compat.clara import SandboxManager

    if mode == "remote":
        monkeypatch.setenv("SANDBOX_API_URL", f"http://127.0.0.1:{service.port}")
        monkeypatch.setenv("SANDBOX_API_KEY", service.keys["clara"])
    monkeypatch.setenv("SANDBOX_MODE", "auto")
    monkeypatch.setenv("DOCKER_SANDBOX_MEMORY", "256m")
    manager = SandboxManager()
    assert manager.mode == mode
    assert manager.execute("ann", "import math\nprint(math.pi)").stdout.startswith("3.14159")
    assert manager.shell("ann", "ls -la").exit_code == 0
    assert manager.shell("ann", "exit 3").exit_code == 3
    manager.save_file("ann", "output.txt", "saved")
    assert manager.read_file("ann", "output.txt") == "saved"
    assert "output.txt" in [info.name for info in manager.list_files("ann")]
    assert manager.execute("bob@example.org", "import os; print(os.path.exists('output.txt'))").stdout == "False\n"
    manager.delete_file("ann", "output.txt")
    assert manager.create("ann").info().limits.memory_bytes == 256 << 20
    assert len(manager.status()["sandboxes"]) == 2
    again = SandboxManager()
    assert again.destroy("ann") and again.destroy("bob@example.org") and not again.destroy("nobody")


def test_a_mode_that_cannot_work_is_refused_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glovebox import InvalidArgumentError, UnsupportedError
    from glovebox.compat.clara import SandboxManager

    for mode, kind in (("incus", UnsupportedError), ("remote", InvalidArgumentError), ("x", InvalidArgumentError)):
        monkeypatch.setenv("SANDBOX_MODE", mode)
        with pytest.raises(kind):
            SandboxManager()
    monkeypatch.delenv("SANDBOX_MODE")
    assert SandboxManager().mode == "native"
    SandboxManager().status()


def test_the_same_on_docker(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glovebox.compat.clara import SandboxManager

    with engines.docker() as engine:
        monkeypatch.setenv("SANDBOX_MODE", "docker")
        monkeypatch.setenv("DOCKER_SANDBOX_IMAGE", engines.IMAGE)
        monkeypatch.setenv("DOCKER_SANDBOX_MEMORY", "256m")
        monkeypatch.setenv("GLOVEBOX_DOCKER_SOCKET", str(engine.socket))
        manager = SandboxManager()
        assert manager.mode == "docker"
        assert manager.execute("ann", "import math; x = 1\nprint(math.pi)").stdout.startswith("3.14159")
        assert manager.shell("ann", "exit 3").exit_code == 3
        manager.save_file("ann", "output.txt", "saved")
        assert manager.execute("ann", "print(open('output.txt').read(), x)").stdout == "saved 1\n"
        assert manager.create("ann").isolation()["engine"] == "docker"
        assert {box["Image"] for box in engine.boxes()} == {engines.IMAGE}
        before = {box["Id"] for box in engine.boxes()}  # with those of the pool, which none of this removes
        assert manager.destroy("ann")
        wait_for("its box to go", lambda: before - {box["Id"] for box in engine.boxes()})
