"""An image store of its own, archives to import into it, and an index of one package."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOVEBOX = Path(os.environ.get("GLOVEBOX", ROOT / "build" / "glovebox")).absolute()
SECOND = 1.0  # what must happen soon happens within 60 of these, or the test fails


class Store:
    """A data directory of its own, and the program working on it."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.canary = directory / "canary"
        self.canary.mkdir()
        (self.canary / "secret").write_text("untouched")

    def environment(self, **more: str) -> dict[str, str]:
        hidden = ("GLOVEBOX_PYTHON", "PYTHONPATH", "PIP_INDEX_URL")
        kept = {key: value for key, value in os.environ.items() if key not in hidden}
        return {**kept, "GLOVEBOX_DATA_DIR": str(self.data), "GLOVEBOX_SHARED_DATA_DIR": "none", **more}

    def run(self, *args: str, stdin: bytes | None = None, **more: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(GLOVEBOX), "image", *args]
        environment = self.environment(**more)
        return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=100, env=environment)

    def start(self, *args: str, **more: str) -> subprocess.Popen[bytes]:
        # A shell's background job ignores SIGINT, and so would what it starts.
        command = ["env", "--default-signal=INT", str(GLOVEBOX), "image", *args]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment(**more))

    def ok(self, *args: str, **more: str) -> str:
        done = self.run(*args, **more)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def refused(self, *args: str, status: int = 125, **more: str) -> str:
        """The program refuses with one line, and changes nothing."""
        before = self.names()
        done = self.run(*args, **more)
        message = done.stderr.decode()
        assert done.returncode == status, (done.returncode, message)
        assert message.startswith("glovebox: ") and message.count("\n") == 1, message
        assert self.names() == before
        assert (self.canary / "secret").read_text() == "untouched"
        assert os.listdir(self.canary) == ["secret"]
        return message

    def names(self) -> set[str]:
        images = self.data / "images"
        return set(os.listdir(images)) - {".lock", "host"} if images.exists() else set()

    def show(self, name: str) -> dict:
        return json.loads(self.ok("show", name, "--json"))

    def rootfs(self, name: str = "x") -> Path:
        return self.data / "images" / name / "rootfs"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size, info.mtime = kind, link, mode, len(data), 1_000_000_000
    return info, data


def directory(name: str) -> Member:
    return member(name, kind=tarfile.DIRTYPE, mode=0o755)


def symlink(name: str, target: str) -> Member:
    return member(name, kind=tarfile.SYMTYPE, link=target)


def hardlink(name: str, target: str) -> Member:
    return member(name, kind=tarfile.LNKTYPE, link=target)


def tar(*members: Member, format: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    if not shutil.which("zstd"):
        pytest.skip("the zstd command is missing (apt install zstd)")
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True, timeout=60).stdout


@pytest.fixture
def put(store: Store, tmp_path: Path) -> Callable[[bytes], str]:
    def write(data: bytes) -> str:
        path = tmp_path / "image.tar"
        path.write_bytes(data)
        return str(path)

    return write


Put = Callable[[bytes], str]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60 * SECOND
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.02)


def wheel(directory: Path, version: str) -> None:
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(directory / f"tiny-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wheels(store: Store, tmp_path: Path) -> dict[str, str]:
    """An index of our own, so that no network is needed."""
    if not store.show("host").get("python"):
        pytest.skip("this host has no python3")
    place = tmp_path / "wheels"
    place.mkdir()
    wheel(place, "1.0")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place), "PIP_CONFIG_FILE": "/dev/null"}
