"""A run means one thing: every program, without a daemon, from the pool and with an empty pool, as text and as JSON,
with each kind of option, does the same; and what plain python3 does, where that can be compared.

It is the whole product: each program with each setting, on all ways, in both formats."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.client import Client
from support.daemon import Daemon, wait_for
from support.daemons import make_daemons
from support.glovebox import Glovebox
from support.programs import PROGRAMS, Program

SETTINGS = ("plain", "workspace", "data", "mount", "env", "args", "script", "stdin")
# What nurseries import, so that the interpreter that is forked is not like a fresh one. All of them exist everywhere.
PRELOAD = "json,calendar,logging,asyncio,multiprocessing,concurrent.futures,decimal,unittest,email,sqlite3,random"
POOL = 6


@pytest.fixture(scope="module")
def pool(binary: Path) -> Iterator[Daemon]:
    for make in make_daemons(binary):
        yield make("--pool", str(POOL), "--box-pool", "4", "--preload", PRELOAD)


@pytest.fixture(scope="module")
def empty(binary: Path) -> Iterator[Daemon]:
    """It has a nursery, and forks each interpreter when it is asked for."""
    for make in make_daemons(binary):
        daemon = make("--pool", "0", "--box-pool", "0", "--preload", PRELOAD)
        daemon.cli("run", "-c", "import json")  # which asks for the interpreter that has it
        client = daemon.client()
        wait_for("the nursery", partial(_has_nursery, client))
        yield daemon


def _has_nursery(client: Client) -> bool:
    nurseries = client.request("status")
    return all(nurseries[kind] and nurseries[kind]["state"] == "ready" for kind in ("nursery", "light_nursery"))


def settings_of(program: Program) -> tuple[str, ...]:
    if program.needs:
        return (program.needs,)
    if isinstance(program.code, bytes):
        return ("script",)
    return tuple(setting for setting in SETTINGS if setting != "stdin" or not program.stdin)


CASES = [(program, setting) for program in PROGRAMS for setting in settings_of(program)]


class Case:
    """One program in one setting: its files, its command line, its input."""

    def __init__(self, glovebox: Glovebox, program: Program, setting: str) -> None:
        self.program = program
        self.directory = glovebox.place.path / "case"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.code = program.code if isinstance(program.code, bytes) else program.code.encode()
        for name, content in {**program.files, "other/data.txt": "given"}.items():
            path = self.directory / ("work" if setting != "script" else "script") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        (self.directory / "script").mkdir(exist_ok=True)
        (self.directory / "work").mkdir(exist_ok=True)
        self.script = self.directory / "script" / "program.py"
        self.script.write_bytes(self.code)
        self.stdin = self.code if setting == "stdin" else program.stdin
        work = self.directory / "work"
        as_text = ["-c", self.code.decode("utf-8", "replace")]
        self.options: list[str] = {
            "plain": as_text,
            "workspace": ["--workspace", str(work), *as_text],
            "data": ["--data", str(work), *as_text],
            "mount": ["--mount", f"{work}:/mnt/work", *as_text],
            "env": ["-e", "MINE=yes", *as_text],
            "args": [*as_text, "one", "--two", ""],
            "script": [str(self.script), "one"],
            "stdin": ["-", "one"],
            "module": ["--workspace", str(work), "-m", "tool", "one"],
        }[setting]
        self.plain: list[str] = {
            "script": [str(self.script), "one"],
            "stdin": ["-", "one"],
            "args": [*as_text, "one", "--two", ""],
            "module": ["-m", "tool", "one"],
        }.get(setting, as_text)
        self.directory_of_plain = self.directory / ("script" if setting == "script" else "work")

    def clean(self) -> None:
        shutil.rmtree(self.directory / "work" / "artifacts", ignore_errors=True)


def _normal(text: str, directory: Path | None = None) -> str:
    if directory is not None:
        text = text.replace(f"{directory}/script", "/run/code").replace(f"{directory}/work", "/workspace")
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", text)


def _run(glovebox: Glovebox, case: Case, *more: str) -> subprocess.CompletedProcess[bytes]:
    case.clean()
    return subprocess.run(
        [str(glovebox.binary), "run", *more, *case.options],
        input=case.stdin,
        capture_output=True,
        env=glovebox.environment(),
        cwd=glovebox.place.home,
        timeout=60,
        check=False,
    )


def as_text(glovebox: Glovebox, case: Case, *more: str) -> dict[str, Any]:
    done = _run(glovebox, case, "--quiet", *more)
    return {
        "stdout": _normal(done.stdout.decode("utf-8", "replace")),
        "stderr": _normal(done.stderr.decode("utf-8", "replace")),
        "exit_code": done.returncode,
    }


def as_json(glovebox: Glovebox, case: Case, *more: str) -> dict[str, Any]:
    done = _run(glovebox, case, "--json", *more)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["exit_code"] == done.returncode
    for clock in ("run_id", "duration_ms", "usage"):
        del result[clock]
    del result["isolation"]["uid_map"]
    for artifact in result["artifacts"]:
        del artifact["host_path"]
    result["stdout"], result["stderr"] = _normal(result["stdout"]), _normal(result["stderr"])
    return result


def by_plain_python(glovebox: Glovebox, case: Case) -> dict[str, Any]:
    """The same interpreter without any box, in the environment of a box."""
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": "/home/sandbox", "LC_CTYPE": "C.UTF-8", "TZ": "UTC",
        "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    done = subprocess.run(
        [os.path.realpath("/usr/bin/python3"), *case.plain],
        input=case.stdin,
        capture_output=True,
        env=environment,
        cwd=case.directory_of_plain,
        start_new_session=True,
        timeout=60,
        check=False,
    )
    return {
        "stdout": _normal(done.stdout.decode("utf-8", "replace"), case.directory),
        "stderr": _normal(done.stderr.decode("utf-8", "replace"), case.directory),
        "exit_code": done.returncode if done.returncode >= 0 else 128 - done.returncode,
    }


def _is_of_system(glovebox: Glovebox) -> bool:
    return not os.environ.get("GLOVEBOX_PYTHON")


@pytest.mark.parametrize(("program", "setting"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_program_is_the_same_on_every_way(pool: Daemon, empty: Daemon, program: Program, setting: str) -> None:
    glovebox = pool.glovebox
    case = Case(glovebox, program, setting)
    ways = {"pool": ("--socket", pool.socket), "empty": ("--socket", empty.socket)}
    text, whole = as_text(glovebox, case, "--no-daemon"), as_json(glovebox, case, "--no-daemon")
    if program.plain and _is_of_system(glovebox):
        assert text == by_plain_python(glovebox, case), "without a daemon, against plain python3"
    for way, options in ways.items():
        assert as_text(glovebox, case, *options) == text, way
        assert as_json(glovebox, case, *options) == whole, way
