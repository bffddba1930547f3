"""`POST /run` of the service and `glovebox run`: every program prints the same and ends with the same status, but for
the few that docs/USAGE.md ("Programs and cells") explains."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemons import make_daemons
from support.programs import PROGRAMS, Program
from support.service import Service, start_service

# What shows the interpreter of a cell: its descriptors, `sys.path`, handlers, extra builtins and variables.
CELL = {
    "await_is_no_syntax", "signal_handlers", "stream_seekable", "streams", "output_surrogate", "path", "environment",
    "environment_passed_on", "descriptors", "builtins",
}  # fmt: skip


def _is_text(program: Program) -> bool:
    """JSON has no bytes."""
    return isinstance(program.code, str) and program.stdin.decode("utf-8", "ignore").encode() == program.stdin


COMPARED = [program for program in PROGRAMS if _is_text(program) and not program.needs]


@pytest.fixture(scope="module")
def service(binary: Path) -> Iterator[Service]:
    for make in make_daemons(binary):
        yield start_service(make("--pool", "4", start=False), ("ann",))


def _normal(text: str) -> str:
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", text)


def by_command(service: Service, program: Program) -> tuple[str, int]:
    glovebox = service.daemon.glovebox
    words = [
        str(glovebox.binary),
        "run",
        "--quiet",
        "--socket",
        str(service.daemon.socket),
        "-c",
        str(program.code),
        "one",
    ]
    done = subprocess.run(
        words,
        input=program.stdin,
        capture_output=True,
        env=glovebox.environment(),
        cwd=glovebox.place.home,
        check=False,
    )
    return _normal(done.stdout.decode("utf-8", "replace")), done.returncode


def by_request(service: Service, program: Program) -> tuple[str, int]:
    files = dict(program.files)
    body = {"code": program.code, "args": ["one"], "stdin": program.stdin.decode(), "files": files}
    answer = service.client("ann").post("/run", body)
    assert answer.status == 200, answer
    result: dict[str, Any] = answer.json()
    return _normal(result["stdout"]), result["exit_code"]


@pytest.mark.parametrize("program", COMPARED, ids=lambda program: program.name)
def test_a_request_is_a_program(service: Service, program: Program) -> None:
    if program.name in CELL:
        assert by_request(service, program) != by_command(service, program), f"{program.name} is the same by now"
    else:
        assert by_request(service, program) == by_command(service, program)
