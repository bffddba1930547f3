"""`glovebox image docker-build`, by real engines, on a base that was made here: no registry is needed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import engines
from support.daemons import StartDaemon, make_daemons

pytestmark = pytest.mark.timeout(600)  # two engines are started, and an image for them may have to be made
BASE = "science-base:1"  # as the standard base is after the first step
SMALL = ("--base", BASE, "--network", "host")


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


def build(binary: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(binary), "image", "docker-build", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, service: Callable[[str], engines.Engine]) -> engines.Engine:
    running = service(request.param)
    running.tag(engines.IMAGE, BASE)
    return running


def where(engine: engines.Engine) -> tuple[str, ...]:
    return ("--engine", engine.name, f"--{engine.name}-socket", str(engine.socket))


def test_the_image_is_built_and_serves_sessions(binary: Path, engine: engines.Engine, start: StartDaemon) -> None:
    done = build(binary, *where(engine), *SMALL, "--packages", "numpy", "--tag", "science:1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["engine"], told["image"], done.stderr) == (engine.name, "science:1", ""), "quiet in a pipe"
    assert told["bytes"] > 50 << 20 and len(told["id"]) >= 64, told
    client = start(f"--{engine.name}-socket", str(engine.socket)).client()
    client.request("session.create", session="science", engine=engine.name, image="science:1")
    done = client.execute("import numpy, sys, os; (int(numpy.arange(4).sum()), sys.prefix, os.getuid())", "science")
    assert done["status"] == "ok" and done["result"]["text/plain"] == "(6, '/opt/python', 1000)", done
    left = client.execute("import glob; glob.glob('/tmp/build*')", "science")
    assert left["result"]["text/plain"] == "[]", "what pip was told stays out of the image"


def test_progress_is_shown_on_a_terminal(binary: Path, engine: engines.Engine) -> None:
    master, slave = pty.openpty()
    words = (*where(engine), *SMALL, "--packages", "six", "--tag", "small:1")
    with subprocess.Popen([str(binary), "image", "docker-build", *words], stdout=subprocess.PIPE, stderr=slave) as run:
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # the last end of it is closed
                break
            if not piece:
                break
            shown += piece
        assert run.stdout is not None
        printed = run.stdout.read().decode()
        assert run.wait(60) == 0, shown
    os.close(master)
    assert b"\r\x1b[K" in shown and b"step 1/" in shown.lower() and b"Successfully tagged small:1" in shown, shown
    assert printed.startswith("image small:1: ") and f"--engine {engine.name} --engine-image small:1" in printed


def test_a_failed_build_prints_a_remedy(binary: Path, engine: engines.Engine) -> None:
    done = build(binary, *where(engine), *SMALL, "--packages", "there-is-no-such-package-of-this-name")
    assert done.returncode != 0 and done.stdout == "", done
    assert f"{engine.name} could not build the image" in done.stderr and "--verbose" in done.stderr, done.stderr
    done = build(binary, *where(engine), "--base", "localhost:1/no-such-image:7", "--packages", "six")
    assert done.returncode != 0 and "(--base)" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tag", "--privileged"), "is no name of an image"),
        (("--base", "a b"), "is no name of an image"),
        (("--packages", "-r/etc/passwd"), "is not a package"),
        (("--packages", "six", "--requirements", "/dev/null"), "not both"),
        (("--certificates", "/nonexistent"), "/nonexistent"),
        (("extra",), "takes options only"),
        (("--docker-socket", "/nonexistent/d.sock"), "systemctl start docker"),
    ],
)
def test_wrong_usage_is_an_error(
    binary: Path, service: Callable[[str], engines.Engine], words: tuple[str, ...], told: str
) -> None:
    done = build(binary, "--docker-socket", str(service("docker").socket), *words)
    assert done.returncode != 0 and told in done.stderr, done.stderr
