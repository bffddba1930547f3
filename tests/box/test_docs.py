"""docs/SECURITY.md promises nothing that no test holds it to."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs/SECURITY.md"
PROMISE = re.compile(r"^- \*\*(P\d+)\*\* ([^`]+?)\n  (`[^`]*`)$", re.MULTILINE)


def promises() -> list[tuple[str, str, str]]:
    found = PROMISE.findall(DOCUMENT.read_text())
    assert len(found) >= 30, "the table of promises could not be read"
    return found


def test_promises_are_numbered_without_gaps() -> None:
    assert [number for number, _, _ in promises()] == [f"P{n}" for n in range(1, len(promises()) + 1)]


def test_every_promise_is_one_sentence_and_names_a_test() -> None:
    for number, promise, test in promises():
        assert promise.endswith(".") and ". " not in promise, f"{number} is not one sentence: {promise}"
        assert re.fullmatch(r"`test_\w+\.py::test_\w+`", test), f"{number} names no test: {test}"


def test_every_test_named_exists() -> None:
    named = re.findall(r"(test_\w+\.py)::(test_\w+)", DOCUMENT.read_text())
    assert len(named) >= len(promises()), "the table of resources names tests, too"
    for file, test in named:
        source = "".join(path.read_text() for path in (REPOSITORY / "tests").glob(f"*/{file}"))
        assert re.search(rf"^def {test}\(", source, re.MULTILINE), f"{file} has no {test}"


def test_table_of_walls_is_the_one_in_the_source() -> None:
    table = DOCUMENT.read_text().split("\n| step |")[1].split("\n\n")[0]
    written = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)
    source = (REPOSITORY / "src/box/seal/stage.c").read_text()
    steps = re.findall(r'^ {8}\{ "(\w+)", (?:step|furnish)_\w+, ', source, re.MULTILINE)
    assert len(steps) > 15 and written == steps
