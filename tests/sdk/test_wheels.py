"""The wheels: built, looked at, installed into an empty environment without an index, used as root and as a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cgroups import TestGroups
from support.glovebox import Glovebox, Place

TWO_LINES = "from glovebox import Sandbox; print(Sandbox.create().run_code('6*7').text)"


@pytest.fixture(scope="module")
def empty_python(dist: Path) -> Iterator[Path]:
    """The Python of a virtual environment that has the two wheels and nothing else, and no compiler to help itself."""
    with tempfile.TemporaryDirectory(prefix="glovebox-test-venv-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", place], check=True)
        python = Path(place) / "bin/python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        environment = {"PATH": "/nowhere", "CC": "/bin/false", "HOME": place}
        wanted = ["--no-index", "--find-links", str(dist), "--only-binary", ":all:", "glovebox-sandbox"]
        done = subprocess.run([*pip, *wanted], env=environment, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield python


def test_the_tags_are_true_and_the_files_are_there(dist: Path) -> None:
    client, runtime = sorted(dist.glob("*.whl"))
    assert client.name.endswith("-py3-none-any.whl")
    assert "-py3-none-manylinux_2_" in runtime.name, "auditwheel found a tag that older hosts take"
    names = zipfile.ZipFile(client).namelist()
    assert "glovebox/py.typed" in names and "glovebox/_aio/sandbox.py" in names
    assert not [name for name in names if "test" in name or name.endswith((".c", ".so"))]
    archive = zipfile.ZipFile(runtime)
    assert "glovebox_runtime/share/glovebox/kernel/glovebox_kernel/main.py" in archive.namelist()
    assert archive.getinfo("glovebox_runtime/bin/glovebox").external_attr >> 16 & 0o111 == 0o111
    command = [sys.executable, "-m", "auditwheel", "show", str(runtime)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert runtime.name.rpartition("-")[2].removesuffix(".whl").split(".")[0] in shown.replace("\n", " ")


@pytest.mark.parametrize("who", ["root", "user"])
def test_two_lines_are_enough(empty_python: Path, groups: dict[str, TestGroups], who: str) -> None:
    place = Place(who)
    python = Glovebox(empty_python, place, groups[who])
    program = Glovebox(empty_python.parent / "glovebox", place, groups[who])
    try:
        done = python("-W", "error", "-c", TWO_LINES, cwd=place.home)
        assert (done.stdout, done.stderr) == ("42\n", "")
        looked = json.loads(python("-m", "glovebox", "--json").stdout)
        assert looked["program"]["how"] == "wheel" and looked["daemon"]["running"], looked
        assert looked["daemon"]["sandboxes"] == 0, "the nameless sandbox went with its program"
        shown = python("-m", "glovebox")
        assert "of the runtime wheel" in shown.stdout and "doctor" in shown.stdout, shown.stdout + shown.stderr
        assert program("--version").stdout.startswith("glovebox ")
    finally:
        stopped = program("stop", "--end-sessions", timeout=90)
        place.remove()
    assert stopped.returncode == 0, stopped.stderr
