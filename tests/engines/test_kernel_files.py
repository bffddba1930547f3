"""The kernel's files in boxes of other engines: a copy in the data directory, compiled, and never an old one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import options_of
from support import engines
from support.client import Client
from support.daemons import StartDaemon, make_daemons
from support.glovebox import REPOSITORY

LOOK = """
import glovebox_kernel.main as main, importlib.util as util, os, sys
with open(main.__cached__, 'rb') as file, open(main.__file__, 'rb') as source:
    right = file.read(16) == util.MAGIC_NUMBER + b'\\3\\0\\0\\0' + util.source_hash(source.read())
(sys.version_info[:2], right, os.access(os.path.dirname(main.__cached__), os.W_OK))
"""


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


def host_python() -> str:
    done = subprocess.run(
        ["python3", "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("kind", ["docker", "podman", "incus"])
def test_a_kernel_starts_from_what_is_compiled(
    start: StartDaemon, service: Callable[[str], engines.Engine], kind: str
) -> None:
    client = start(*options_of(service, kind)[1]).client()
    for name in ("first", "second"):  # it is compiled while the first box is made
        told = client.execute(LOOK, name)
        assert told["status"] == "ok", told
    version, right, writable = eval(told["result"]["text/plain"])
    assert str(version) == host_python(), "the image of the tests has the Python of this host"
    assert right and not writable, told


def copy_kernel(to: Path) -> Path:
    shutil.copytree(REPOSITORY / "guest/kernel", to, ignore=shutil.ignore_patterns("__pycache__"))
    for directory, _, files in os.walk(to):
        Path(directory).chmod(0o755)
        for name in files:
            (Path(directory) / name).chmod(0o644)
    return to


def test_another_version_of_the_files_is_what_the_next_box_gets(
    start: StartDaemon, service: Callable[[str], engines.Engine], tmp_path: Path
) -> None:
    kernel = copy_kernel(tmp_path / "kernel")
    daemon = start(*options_of(service, "docker")[1], env={"GLOVEBOX_KERNEL_DIR": str(kernel)})
    client = daemon.client()

    def told(session: str) -> str:
        code = "import glovebox_kernel; getattr(glovebox_kernel, 'EDITION', 0)"
        return client.execute(code, session)["result"]["text/plain"]

    assert told("old") == "0"
    first = kernel / "glovebox_kernel/__init__.py"
    before = first.read_text()
    for edition in ("1", "2"):  # of one length, and perhaps of one second
        first.write_text(f"{before}\nEDITION = {edition}\n")
        assert told(f"new{edition}") == edition
    assert told("old") == "0", "a box keeps what it has imported"


def test_without_room_for_a_copy_the_files_themselves_are_shown(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    daemon = start(*options_of(service, "docker")[1])
    (daemon.data / "engine").mkdir(exist_ok=True)
    (daemon.data / "engine/kernel").write_text("not a directory")
    client: Client = daemon.client()
    assert client.execute("6 * 7", "s")["result"] == {"text/plain": "42"}
