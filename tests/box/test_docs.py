"""The documents are true: every promise of docs/SECURITY.md has a test, and the README's commands work as typed."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from support.glovebox import Glovebox, slowness
from support.host_count import count_host, left_behind
from test_layers import LEVEL

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


def ways() -> list[tuple[str, list[tuple[str, str]]]]:
    """The tables in ARCHITECTURE.md that lead through the folders: direction, and rows of files and functions."""
    text = (REPOSITORY / "docs/ARCHITECTURE.md").read_text()
    text = text.split("## The way of a streamed")[1].split("## Processes")[0]
    tables = re.findall(r"^[A-Z].*, (up|down) to .*:\n\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len(tables) == text.count("\n|---"), "a table has no line above it that names its direction"
    rows = r"^\| [^|]+ \| (`[^|]+`) \| (`[^|]+`) \|$"
    return [(direction, re.findall(rows, table, re.MULTILINE)) for direction, table in tables]


def test_the_ways_through_the_folders_name_existing_functions() -> None:
    """Every file defines at least one of the functions of its row, and every function is defined there."""
    rows = [row for _, table in ways() for row in table]
    assert len(rows) >= 25, "the tables could not be read"
    for files, functions in rows:
        sources = {file: (REPOSITORY / "src" / file).read_text() for file in re.findall(r"`([^`]+)`", files)}
        names = re.findall(r"`([^`]+)`", functions)
        defined = {
            (file, name)
            for file, source in sources.items()
            for name in names
            if re.search(rf"^(?=\w)[^;(]*\b{name}\([^;{{]*\{{", source, re.MULTILINE)
        }
        assert {file for file, _ in defined} == set(sources), f"{files} | {functions}: a file has none of them"
        assert {name for _, name in defined} == set(names), f"{files} | {functions}: a function is missing"


def test_the_ways_through_the_folders_take_no_step_back() -> None:
    """A way down never enters a higher folder again, and a way up never a lower one. Layers are those of the drawing in
    ARCHITECTURE.md, which tests/box/test_layers.py enforces."""
    for direction, rows in ways():
        folders = [file.split("/")[0] for files, _ in rows for file in re.findall(r"`([^`]+)`", files)]
        levels = [LEVEL[folder] for folder in folders]
        assert levels == sorted(levels, reverse=direction == "down"), f"{direction}: {folders}"


def test_where_things_happen_names_existing_functions() -> None:
    text = (REPOSITORY / "docs/HACKING.md").read_text().split("## Where things happen")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| `([^|]+)` \| (`[^|]+`) \|$", text, re.MULTILINE)
    assert len(rows) >= 10, "the table could not be read"
    for file, names in rows:
        source = (REPOSITORY / file).read_text()
        for name in re.findall(r"`([^`]+)`", names):
            assert re.search(rf"^(?=\s*\w)[^;]*\b{name}\b[\[(]", source, re.MULTILINE), f"{file} has no {name}"


def test_table_of_steps_is_the_one_in_the_source() -> None:
    table = DOCUMENT.read_text().split("\n| step |")[1].split("\n\n")[0]
    written = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)
    source = (REPOSITORY / "src/box/seal/stage.c").read_text()
    steps = re.findall(r'^ {8}\{ "(\w+)", (?:step|rootfs)_\w+, ', source, re.MULTILINE)
    assert len(steps) > 15 and written == steps


def test_functions_on_the_way_of_a_request_exist() -> None:
    rows = re.findall(
        r"^\| [^|]+ \| (`\w+/[^|]+`) \| (`[^|]+`) \|$",
        (REPOSITORY / "docs/ARCHITECTURE.md").read_text(),
        re.MULTILINE,
    )
    assert len(rows) > 20, "the tables of docs/ARCHITECTURE.md could not be read"
    for files, functions in rows:
        source = "".join((REPOSITORY / "src" / name).read_text() for name in re.findall(r"`([^`]+)`", files))
        for function in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"^\w.*\b{function}\(", source, re.MULTILINE), f"{files} has no {function}"


NAMED_FILE = re.compile(r"(?<![\w./<\"%-])((?:[\w-]+/)+[\w-]+\.(?:c|h|py|md|sh))\b(?!\w)")


def test_files_that_comments_and_documents_name_exist() -> None:
    """src/session/run.c, or session/run.c: a name of a removed or renamed file leads a reader nowhere."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    files = listed.stdout.split()
    endings = {"/".join(path.split("/")[i:]) for path in files for i in range(path.count("/") + 1)}
    endings |= {"tests/fuzz/fuzz_NAME.c", "linux/pidfd.h"}
    wrong = [
        f"{path}: {name}"
        for path in files
        if path.endswith((".c", ".h", ".py", ".md", ".1"))
        for name in NAMED_FILE.findall((REPOSITORY / path).read_text(encoding="utf-8", errors="replace"))
        if name not in endings and not name.startswith("s/")  # "%s/..."
    ]
    assert not wrong, "\n".join(wrong)


def test_every_part_of_the_tests_is_documented() -> None:
    parts = re.findall(r'^    "(\w+)": \(', (REPOSITORY / "tests/run.py").read_text(), re.MULTILINE)
    table = (REPOSITORY / "docs/HACKING.md").read_text().split("| part | what it does |")[1].split("\n\n")[0]
    assert sorted(parts) == sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


README = REPOSITORY / "README.md"
# Commands that build the program, or need the Internet.
NOT_HERE = ("make ", "glovebox session install ", "glovebox run --allow-host ")


def readme_commands() -> list[str]:
    """The lines after `$` in the README's blocks, with their continuation lines."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    console = "".join(text for language, text in blocks if not language)
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", console, re.MULTILINE)
    assert len(commands) >= 10, "the README's commands could not be read"
    return [command for command in commands if not command.startswith(NOT_HERE)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_readme_commands_work_as_typed(glovebox: Glovebox) -> None:
    glovebox.own_socket()
    work = glovebox.place.make("work")
    shutil.copytree(REPOSITORY / "examples", work / "examples")
    os.chmod(work / "examples", 0o755)
    script = "set -e\n" + "\n".join(readme_commands()).replace("8080", str(free_port()))
    environment = glovebox.environment()
    environment["PATH"] = f"{glovebox.binary.parent}:{environment['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120 * slowness(),
            check=False,
            preexec_fn=glovebox._become,
        )
    finally:
        glovebox("stop", "--end-sessions")
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    lines = done.stdout.splitlines()
    assert lines[0] == "42" and "6" in lines and "primes.py" in lines, done.stdout
    assert any('"stdout":"42\\n"' in line for line in lines), done.stdout


def test_recording_for_the_readme_is_made_of_what_the_commands_print() -> None:
    picture = (REPOSITORY / "docs/demo.svg").read_text()
    scene = (REPOSITORY / "tools/record_demo.py").read_text()
    commands = re.findall(r"^    \(\"(glovebox .*?)\", \d+,", scene, re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        first = command.split(" -c ")[0]
        assert first in picture, f"docs/demo.svg lacks {first}: run tools/record_demo.py"
    # a line that is too long wraps between two words
    lines = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    text = html.unescape(" ".join(re.sub("<[^>]*>", "", line) for line in lines))
    for command in (command.replace('\\"', '"') for command in commands):
        assert command in text, f"docs/demo.svg lacks {command}: run tools/record_demo.py"
    assert "raise --memory or process" in text
    for shown in re.findall(r', \d+, "(.+)"\),$', scene, re.MULTILINE):
        assert shown in text, f"docs/demo.svg lacks {shown}: run tools/record_demo.py"


@pytest.mark.layer
def test_the_demonstration_runs_and_leaves_nothing(layer_glovebox: Glovebox) -> None:
    """What `make demo` runs once the program is built."""
    place = layer_glovebox.place
    temporary = place.make("demo-tmp")
    before, runs = count_host(layer_glovebox), layer_glovebox.environment()
    figure = REPOSITORY / "build/demo/artifacts/heating.png"
    figure.unlink(missing_ok=True)
    done = subprocess.run(
        ["/usr/bin/python3", str(REPOSITORY / "tools/demo.py")],
        env={**runs, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=90 * slowness(),
        check=False,
    )
    assert done.returncode == 0 and str(figure) in done.stdout and "Warning" not in done.stdout, done
    assert figure.read_bytes().startswith(b"\x89PNG"), "it can be looked at"
    assert list(temporary.iterdir()) == []
    assert left_behind(layer_glovebox, before) == {}


def test_commands_in_the_translations_exist(glovebox: Glovebox) -> None:
    tables = json.loads(glovebox("help", "--tables").stdout)
    verbs = {verb["name"]: {part["name"] for part in verb.get("verbs") or []} for verb in tables["verbs"]}
    commands = re.findall(r"`glovebox ([^`]+)`", (REPOSITORY / "docs/COMING-FROM.md").read_text())
    assert len(commands) > 15
    for words in (command.split() for command in commands):
        assert words[0] in verbs and (not verbs[words[0]] or words[1] in verbs[words[0]]), words
