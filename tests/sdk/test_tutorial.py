"""Every block of docs/TUTORIAL.md, in its order, in an environment that has the wheels and nothing of the tree.

A block of `sh` is run by bash, one of `python` by a Python that stays; a block of `text` after it is what it prints, to
the letter but for "…", which stands for anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cgroups import TestGroups
from support.daemons import link_images
from support.glovebox import REPOSITORY, Glovebox, Place
from support.wheels import make_wheel

DOCUMENT = REPOSITORY / "docs/TUTORIAL.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DRIVER = """
import contextlib, io, json, sys, traceback
namespace = {"__name__": "__main__"}
for line in sys.stdin:
    out, problem = io.StringIO(), ""
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(json.loads(line), "<tutorial>", "exec"), namespace)
        except BaseException:
            problem = traceback.format_exc()
    print(json.dumps([out.getvalue(), problem]), flush=True)
"""


def blocks() -> list[tuple[int, str, str, str | None]]:
    """Line, language, source, and what it prints; None: not said."""
    text, found = DOCUMENT.read_text(), []
    end = -1
    for block in FENCE.finditer(text):
        kind, body = block.groups()
        if kind in ("sh", "python"):
            found.append((text.count("\n", 0, block.start()) + 1, kind, body, None))
        else:
            assert kind == "text" and found and text[end : block.start()].strip() == "", f"nothing prints this:\n{body}"
            found[-1] = (*found[-1][:3], body)
        end = block.end()
    return found


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.rstrip("\n").split("…"))
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None


class Reader:
    """A user who types what the page says: a shell, and a Python that stays open."""

    def __init__(self, glovebox: Glovebox, python: Path, env: dict[str, str]) -> None:
        self.glovebox = glovebox
        self.environment = glovebox.environment(env)
        self.python = python
        self.process: subprocess.Popen[str] | None = None

    def run(self, kind: str, source: str) -> tuple[str, str]:
        if kind == "sh":
            command = ["bash", "--norc", "-euc", source]
            where: Any = self.glovebox.place.home
            done = subprocess.run(
                command, cwd=where, env=self.environment, capture_output=True, text=True, timeout=120, check=False
            )
            return done.stdout, done.stderr if done.returncode else ""
        if self.process is None:
            self.process = subprocess.Popen(
                [str(self.python), "-c", DRIVER], cwd=self.glovebox.place.home, env=self.environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(source) + "\n")
        self.process.stdin.flush()
        printed, problem = json.loads(self.process.stdout.readline())
        return printed, problem

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin
            self.process.stdin.close()
            self.process.wait(60)


@pytest.fixture
def reader(
    dist: Path, layer_data: Path, groups: dict[str, TestGroups], binary: Path, tmp_path: Path
) -> Iterator[Reader]:
    place = Place("root")
    link_images(layer_data, place)
    make_wheel(tmp_path, "humanize", "4.9", {"humanize/__init__.py": ""})
    venv = place.path / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin/python"
    pip = f'exec {sys.executable} -m pip --python {python} "$@" --quiet --no-index --find-links {dist}\n'
    (venv / "bin/pip").write_text("#!/bin/sh\n" + pip)
    (venv / "bin/pip").chmod(0o755)
    # pandas, numpy and pyarrow, to receive a table with; nothing of the package is among them
    site = next(path for path in map(Path, sys.path) if (path / "pandas").is_dir())
    beside = place.make("beside")
    for name in ("pandas", "numpy", "numpy.libs", "pyarrow", "dateutil", "six.py", "pytz", "tzdata"):
        if (site / name).exists():
            (beside / name).symlink_to(site / name)
    env = {
        "PATH": f"{venv}/bin:/usr/bin:/bin",
        "PYTHONPATH": str(beside),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "GLOVEBOX_POOL": "1",
    }
    reader = Reader(Glovebox(binary, place, groups["root"]), python, env)
    yield reader
    reader.close()
    stopped = reader.glovebox("stop", "--end-sessions", timeout=90)
    assert stopped.returncode == 0, stopped.stderr
    place.remove()


@pytest.mark.layer
def test_every_block_does_what_the_page_says(reader: Reader) -> None:
    found = blocks()
    assert len(found) >= 14
    for line, kind, source, expected in found:
        printed, problem = reader.run(kind, source)
        where = f"docs/TUTORIAL.md, line {line}:\n{source}\nprinted {printed!r}"
        assert not problem, f"{where}\n{problem}"
        assert matches(expected or "", printed), f"{where}\nand not {expected!r}"
    assert os.path.exists(reader.glovebox.place.home / "sales.png")
