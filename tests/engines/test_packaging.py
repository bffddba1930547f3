"""Glovebox in a container: packaging/Dockerfile is built and run by dockerd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support import engines
from support.daemon import wait_for
from support.glovebox import REPOSITORY
from support.images import archive

pytestmark = pytest.mark.timeout(1800)  # the image is built with the first test
KEY = "a-key-of-the-tests-alone"
# What packaging/Dockerfile copies.
CONTEXT = "packaging meson.build meson_options.txt src guest images tools web docs/glovebox.1".split()
CONTEXT += ["tests/support", "tests/unit"]


def import_base(engine: engines.Engine, name: str, image: str) -> None:
    """An image with the name that the files use, which a registry would give elsewhere."""
    repository, tag = image.split(":")
    query = [("fromSrc", "-"), ("repo", f"docker.io/library/{repository}"), ("tag", tag)]
    where = "/images/create?" + urlencode(query)
    with archive(name).open("rb") as body:
        told = engine.api.ask("POST", where, body, "application/x-tar").read()
    assert b'"error"' not in told, told


def build(engine: engines.Engine) -> None:
    """`docker build --network host -t glovebox -f packaging/Dockerfile .`"""
    context = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the function
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name in CONTEXT:
            tar.add(REPOSITORY / name, name, filter=lambda member: None if "__pycache__" in member.name else member)
    query = {"t": "docker.io/library/glovebox:latest", "dockerfile": "packaging/Dockerfile", "networkmode": "host"}
    for tries_left in (2, 1, 0):  # it fetches packages, and a download may break
        context.seek(0)
        response = engine.api.ask("POST", f"/build?{urlencode(query)}", context, "application/x-tar", timeout=900)
        words = [json.loads(line) for line in response.read().decode().splitlines() if line.strip()]
        if not any("error" in word for word in words):
            return
        said = "".join(word.get("stream", "") for word in words)[-3000:]
        assert tries_left, said + str(words[-1])


@dataclass
class Packaged:
    engine: engines.Engine

    def run(self, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`docker ...` at this engine's socket."""
        program = shutil.which("docker")
        assert program, "docker is missing: run tools/setup.sh test"
        return subprocess.run(
            [program, "-H", f"unix://{self.engine.socket}", *options], capture_output=True, text=True, check=check
        )

    def inside(self, name: str, *words: str, check: bool = True) -> str:
        done = self.run("exec", name, *words, check=False)
        assert done.returncode == 0 or not check, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def pid(self, name: str) -> int:
        return int(self.run("inspect", "--format", "{{.State.Pid}}", name).stdout)

    def logs(self, name: str) -> str:
        told = self.run("logs", name, check=False)
        return told.stdout + told.stderr

    def daemon_pid(self, name: str) -> int:
        """Of the daemon below the container's first process, as the host sees it."""
        children = Path(f"/proc/{(first := self.pid(name))}/task/{first}/children")
        assert children.exists(), f"the container has ended: {self.logs(name)}"
        for child in children.read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"glovebox", b"serve"]:
                return int(child)
        raise AssertionError("no daemon in the container")


@pytest.fixture(scope="module", params=["docker"])
def packaged(request: pytest.FixtureRequest, service: Callable[[str], engines.Engine]) -> Packaged:
    engine = service(request.param)
    import_base(engine, "debian12-apt", "debian:12-slim")
    build(engine)
    return Packaged(engine)


@pytest.fixture
def container(packaged: Packaged) -> Iterator[Callable[..., str]]:
    """Starts a container of the image with these options; it is removed at the end."""
    names: list[str] = []

    def start(*options: str, words: tuple[str, ...] = (), entry: str = "") -> str:
        name = f"gb-{os.getpid()}-{len(names)}"
        names.append(name)
        entrypoint = ("--entrypoint", entry) if entry else ()
        packaged.run("run", "-d", "--name", name, "--network", "none", *options, *entrypoint, "glovebox", *words)
        return name

    yield start
    for name in names:
        packaged.run("rm", "-f", "-v", name, check=False)


OPTIONS = ("--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined")


def serves(packaged: Packaged, name: str) -> None:
    wait_for("the daemon", lambda: packaged.run("exec", name, "glovebox", "status", check=False).returncode == 0)


def test_a_session_outlives_its_daemon_and_nothing_is_weaker(packaged: Packaged, container: Callable[..., str]) -> None:
    name = container(*OPTIONS, "-e", f"SANDBOX_API_KEY={KEY}")
    serves(packaged, name)
    packaged.inside(name, "glovebox", "exec", "s", "-c", "x = 41")
    shown = json.loads(packaged.inside(name, "glovebox", "session", "show", "s", "--json"))
    assert shown["isolation"]["weaker"] == [] and shown["isolation"]["rootless"] is False, shown["isolation"]
    os.kill(packaged.daemon_pid(name), signal.SIGKILL)
    serves(packaged, name)
    assert packaged.inside(name, "glovebox", "exec", "s", "-c", "x + 1") == "42\n"
    before = packaged.daemon_pid(name)
    os.kill(packaged.pid(name), signal.SIGHUP)  # `docker kill --signal HUP`
    wait_for("another daemon", lambda: packaged.daemon_pid(name) != before)
    serves(packaged, name)
    assert packaged.inside(name, "glovebox", "exec", "s", "-c", "x + 2") == "43\n"
    zombies = [path for path in Path("/proc").glob("[0-9]*/stat") if f" Z {packaged.pid(name)} " in read(path)]
    assert not zombies
    begun = time.monotonic()
    packaged.run("stop", "-t", "60", name)
    assert time.monotonic() - begun < 30
    assert packaged.run("inspect", "--format", "{{.State.ExitCode}}", name).stdout == "0\n"


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_without_the_capability_boxes_without_proc_can_be_asked_for(
    packaged: Packaged, container: Callable[..., str]
) -> None:
    """The defaults of a container, but for the filter that forbids namespaces."""
    name = container("--security-opt", "seccomp=unconfined", entry="sleep", words=("1000",))
    refused = packaged.inside(name, "glovebox", "run", "-c", "print(1)", check=False)
    assert "--allow-weaker" in refused, refused
    doctor = packaged.inside(name, "glovebox", "doctor", check=False)
    assert "a new /proc was refused" in doctor and "only with --allow-weaker" in doctor, doctor
    code = (
        "import os, json, subprocess, threading, tempfile, asyncio, sqlite3, multiprocessing as m\n"
        "print(os.getuid(), os.listdir('/proc'), subprocess.check_output(['echo', 'hi']),"
        " m.get_context('fork').Pool(2).map(abs, [-1, -2]), open(tempfile.mkstemp()[1], 'w').write('abc'))"
    )
    told = json.loads(packaged.inside(name, "glovebox", "run", "--allow-weaker", "--json", "-c", code))
    assert told["stdout"] == "1000 [] b'hi\\n' [1, 2] 3\n", told
    assert any(text.startswith("proc: none") for text in told["isolation"]["weaker"]), told["isolation"]
    escapes = (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "print(libc.unshare(0x10000000), libc.unshare(0x20000), libc.mount(b'proc', b'/tmp', b'proc', 0, None),"
        " libc.umount2(b'/usr', 2))"
    )
    told = json.loads(packaged.inside(name, "glovebox", "run", "--allow-weaker", "--json", "-c", escapes))
    assert told["stdout"] == "-1 -1 -1 -1\n", told
