"""Every example of docs/API.md, run against a real service in the order in which it stands there.

A block of `sh` is run; a block of `json` or `text` that follows it is what it prints: JSON as far as it is shown, text
to the letter, and "…" stands for anything. All of it is one shell, as it would be for a reader."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.glovebox import slowness
from support.service import StartService
from support.wheels import make_wheel

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/API.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Example:
    line: int
    script: str
    kind: str = ""  # of what is expected: "json", "text", or "" for nothing
    expected: str = ""


def examples() -> list[Example]:
    text, found = DOCUMENT.read_text(), []
    end = -1
    for block in FENCE.finditer(text):
        kind, body = block.groups()
        if kind == "sh":
            found.append(Example(text.count("\n", 0, block.start()) + 1, body))
        elif kind in ("json", "text"):
            assert found and text[end : block.start()].strip() == "", f"nothing prints this:\n{body}"
            found[-1].kind, found[-1].expected = kind, body
        end = block.end()
    return found


def contains(actual: Any, expected: Any) -> bool:
    """Has `actual` all that is shown?"""
    if expected == "…":
        return actual is not None
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            key in actual and contains(actual[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(expected)
            and all(contains(one, other) for one, other in zip(actual, expected, strict=True))
        )
    return type(actual) is type(expected) and actual == expected


def check(example: Example, printed: str) -> None:
    where = f"docs/API.md, line {example.line}:\n{example.script}\nprinted {printed!r}"
    if example.kind == "json":
        assert contains(json.loads(printed), json.loads(example.expected)), where
    elif example.kind == "text":
        pattern = ".*".join(re.escape(part) for part in example.expected.rstrip("\n").split("…"))
        assert re.fullmatch(pattern, printed.rstrip("\n")), where
    else:
        assert '"code":"' not in printed, f"{where}: an unexpected error"


def find_missing(paths: list[str]) -> None:
    """Has every path of the table an example? One that needs the world outside may be shown without being run."""
    text = DOCUMENT.read_text()
    for path in paths:
        pattern = re.escape(path).replace(r"\{user_id\}", r"\w+").replace(r"\{run_id\}", r"\$RUN")
        assert re.search(rf"\$URL{pattern}(?![\w/])", text), f"docs/API.md has no example of {path}"


def test_examples_give_the_answers_of_the_page(make_service: StartService, tmp_path: Path) -> None:
    make_wheel(tmp_path, "humanize", "4.9", {"humanize/__init__.py": ""})
    wheels = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    service = make_service("--pool", "1", keys=("reader",), env=wheels)
    found = examples()
    find_missing(service.stranger().get("/openapi.json").json()["paths"])
    script = "set -eu\n" + "".join(f"{{\n{example.script}}} > {number}.out\n" for number, example in enumerate(found))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
        "KEY": service.keys["reader"],
        "URL": f"http://127.0.0.1:{service.port}",
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120 * slowness(),
        check=False,
    )
    outputs = [tmp_path / f"{number}.out" for number in range(len(found))]
    for example, output in zip(found, outputs, strict=True):
        if output.exists():
            check(example, output.read_text())
    assert done.returncode == 0, done.stderr
