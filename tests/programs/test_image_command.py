"""Where the commands of an imported image start, and which one is its own: WORKDIR, ENTRYPOINT and CMD."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.daemons import make_daemons
from support.glovebox import Completed, Glovebox


def add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def make_image(glovebox: Glovebox, name: str, config: dict[str, object]) -> None:
    """As `docker save` writes it: busybox, and a directory of an application."""
    program = shutil.which("busybox", path="/bin:/usr/bin")
    assert program, "busybox is missing: run tools/setup.sh test"
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        add(archive, "bin/busybox", Path(program).read_bytes(), 0o755)
        for applet in ("sh", "cat", "pwd", "echo"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        add(archive, "srv/app/settings", b"of the image\n")
    path = glovebox.place.path / f"{name}.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, "layer.tar", layer.getvalue())
        add(archive, "config.json", json.dumps({"architecture": "amd64", "config": config}).encode())
        add(archive, "manifest.json", json.dumps([{"Config": "config.json", "Layers": ["layer.tar"]}]).encode())
    path.chmod(0o644)
    done = glovebox("image", "import", name, path)
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=["root", "user"], scope="module")
def daemon(binary: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    for make in make_daemons(binary):
        made = make("--pool", "1", "--preload", "json", who=request.param)
        own = {"WorkingDir": "/srv/app", "Entrypoint": ["sh", "-c"], "Cmd": ['cat settings; echo "$0"', "word"]}
        make_image(made.glovebox, "app", own)
        make_image(made.glovebox, "bare", {"WorkingDir": "/nowhere"})
        yield made


@pytest.fixture(params=["warm", "cold"])
def way(daemon: Daemon, request: pytest.FixtureRequest) -> list[str]:
    return ["--socket", daemon.socket] if request.param == "warm" else ["--no-daemon"]


def run(daemon: Daemon, way: list[str], image: str, *words: str) -> Completed:
    return daemon.glovebox("run", *way, "--image", image, *words)


def test_a_command_starts_in_the_workdir_of_the_image(daemon: Daemon, way: list[str]) -> None:
    assert run(daemon, way, "app", "--", "cat", "settings").stdout == "of the image\n"
    assert run(daemon, way, "app", "--", "pwd").stdout == "/srv/app\n"
    assert run(daemon, way, "app", "-l", "bash", "-c", "pwd").stdout == "/workspace\n"  # code has the workspace
    assert run(daemon, way, "bare", "--", "pwd").stdout == "/workspace\n"  # there is no such directory


def test_a_workspace_comes_before_the_images_directory(daemon: Daemon, way: list[str]) -> None:
    workspace = str(daemon.glovebox.place.make(f"its-own{way[0]}"))
    assert run(daemon, way, "app", "--workspace", workspace, "--", "pwd").stdout == "/workspace\n"


def test_dashes_alone_run_the_images_own_command(daemon: Daemon, way: list[str]) -> None:
    assert run(daemon, way, "app", "--").stdout == "of the image\nword\n"
    refused = run(daemon, way, "bare", "--")
    assert refused.returncode == 2 and "no command of its own" in refused.stderr
    refused = daemon.glovebox("run", *way, "--")
    assert refused.returncode == 2 and "no command follows --" in refused.stderr


def test_a_session_of_an_image_without_python_names_the_command_to_use(daemon: Daemon) -> None:
    done = daemon.glovebox("exec", "--socket", daemon.socket, "--image", "app", "demo", "--", "pwd")
    assert (
        done.returncode == 125
        and 'has no python3, which sessions need; run its commands with "glovebox run --image app' in done.stderr
    )


def test_an_archive_that_is_missing_is_wrong_usage(daemon: Daemon) -> None:
    done = daemon.glovebox("image", "import", "new", "/nowhere.tar")
    assert (done.returncode, done.stderr) == (2, "glovebox: there is no file /nowhere.tar\n")
