"""Fixtures for all tests that run the program.

`glovebox` runs it in a fresh place, once as root and once as an ordinary user: a test that takes it runs twice. Tests
that make sense for one of them only take `root_glovebox` or `user_glovebox`.

The ordinary user is uid 61234, which exists nowhere. It has its own HOME and data directory. On this kind of host
no control groups are delegated to it, so the session makes them (tests/support/cgroups.py) and limits are enforced for
the user as well. Started as an ordinary user, the tests run as that user and those of root are skipped.

The scientific layer is built once into build/test-data (or found in $GLOVEBOX_TEST_DATA_DIR) and belongs to root. The
store refuses directories of other people, so tests marked `layer` run as root; `user_layer_glovebox` serves the few
that show the same for a user: its data directory has hard links to the files and directories of its own.

Daemons: `start_daemon` starts one in a fresh place, with control groups of its own, and proves afterwards that nothing
of it is left; `daemon` is one for all tests of a file, and `layer_daemon` one for the whole session, with the layer."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cgroups import TestGroups
from support.daemon import Daemon
from support.daemons import StartDaemon, link_images, make_daemons
from support.glovebox import REPOSITORY, USER_ID, Glovebox, Place, find_binary, reachable_binary

# In the background of a script SIGINT is ignored, and a program that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def binary() -> Path:
    path = find_binary()
    if not os.access(path, os.X_OK):
        pytest.exit(f"{path} is missing: run make first, or name the program in $GLOVEBOX", returncode=1)
    return path


@pytest.fixture(scope="session")
def groups() -> Iterator[dict[str, TestGroups]]:
    """Control groups of this session, one parent for each user; root's is left for glovebox itself to make."""
    made = {who: TestGroups(f"glovebox-test-{os.getpid()}-{who}") for who in ("root", "user")}
    if os.geteuid() == 0:
        made["user"].delegate(USER_ID, USER_ID)
    yield made
    if os.geteuid() == 0:
        for group in made.values():
            group.remove()


@pytest.fixture(params=["root", "user"])
def who(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _glovebox_for(who: str, binary: Path, groups: dict[str, TestGroups]) -> Iterator[Glovebox]:
    if who == "root" and os.geteuid() != 0:
        pytest.skip("needs root: run the tests with sudo")
    place = Place(who)
    yield Glovebox(reachable_binary(binary, place), place, groups[who])
    place.remove()


@pytest.fixture
def glovebox(who: str, binary: Path, groups: dict[str, TestGroups]) -> Iterator[Glovebox]:
    yield from _glovebox_for(who, binary, groups)


@pytest.fixture
def root_glovebox(binary: Path, groups: dict[str, TestGroups]) -> Iterator[Glovebox]:
    yield from _glovebox_for("root", binary, groups)


@pytest.fixture
def user_glovebox(binary: Path, groups: dict[str, TestGroups]) -> Iterator[Glovebox]:
    yield from _glovebox_for("user", binary, groups)


@pytest.fixture
def place(glovebox: Glovebox) -> Place:
    """The temporary directory of the user that `glovebox` runs as."""
    return glovebox.place


@pytest.fixture(scope="session")
def layer_data(binary: Path) -> Path:
    """A data directory whose image `host` has the scientific layer; built on first use, which takes a minute or two."""
    data = Path(os.environ.get("GLOVEBOX_TEST_DATA_DIR", REPOSITORY / "build/test-data"))
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (data / "images/host/python").is_dir():
        environment = {**os.environ, "GLOVEBOX_DATA_DIR": str(data)}
        command = [str(binary), "image", "build", "host"]
        built = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    return data


@pytest.fixture
def layer_glovebox(root_glovebox: Glovebox, layer_data: Path) -> Glovebox:
    """As `root_glovebox`, with the scientific layer. Its data directory is shared: change nothing in it."""
    root_glovebox.place.data = layer_data
    return root_glovebox


@pytest.fixture
def user_layer_glovebox(user_glovebox: Glovebox, layer_data: Path) -> Glovebox:
    """As `user_glovebox`, with the scientific layer as hard links (copies where the file systems differ)."""
    link_images(layer_data, user_glovebox.place)
    return user_glovebox


@pytest.fixture
def start_daemon(binary: Path) -> Iterator[StartDaemon]:
    """`start_daemon("--pool", "1")`: a daemon of this test's own."""
    yield from make_daemons(binary)


@pytest.fixture(scope="module")
def daemon(binary: Path) -> Iterator[Daemon]:
    """One daemon for all tests of a file: they must not disturb it, and each uses sessions of its own names."""
    for make in make_daemons(binary):
        yield make("--pool", "1")


@pytest.fixture(scope="session")
def layer_daemon(binary: Path, layer_data: Path) -> Iterator[Daemon]:
    """One daemon for the whole session, whose kernels have the scientific layer. Tests must not disturb it."""
    for make in make_daemons(binary, layer_data):
        yield make("--memory", "1g", "--df-bytes", "64k", "--np-bytes", "64k")
