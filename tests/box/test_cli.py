"""The command line: an error is one clear sentence, with exit status 2 or 125, and nothing is changed."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOVEBOX = str(Path(os.environ.get("GLOVEBOX", ROOT / "build" / "glovebox")).absolute())
USAGE, NOT_STARTED = 2, 125
NOBODY = 65534


def clean_environment(**extra: str) -> dict[str, str]:
    """The caller's environment without its own defaults for glovebox, but with where its data are."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GLOVEBOX_") or k == "GLOVEBOX_DATA_DIR"}
    return kept | extra


def call(
    *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    if "input" not in more:
        more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        [GLOVEBOX, *words],
        cwd=cwd,
        env=clean_environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=60,
        **more,
    )


def assert_refused(result: subprocess.CompletedProcess[str], status: int, *said: str) -> None:
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert re.fullmatch(r"glovebox: [^\n]+\n", result.stderr), "one line: " + repr(result.stderr)
    for part in said:
        assert part in result.stderr


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory to work in, which the test must leave as it prepared it."""
    (tmp_path / "hello.py").write_text("print('hello')\n")
    (tmp_path / "directory").mkdir()
    (tmp_path / "nul.py").write_bytes(b"print(1)\0\n")
    (tmp_path / "notebook.ipynb").write_text('{"cells": []}')
    with open(tmp_path / "huge.py", "wb") as file:
        file.truncate((4 << 20) + 1)
    before = sorted(tmp_path.rglob("*"))
    yield tmp_path
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--memry", "1g"], "unknown option --memry; did you mean --memory?"),
        (["--nothing-like-it"], "--help lists the options"),
        (["--memory"], "needs a value"),
        (["--workspace", "--quiet"], "needs a value, but --quiet follows"),
        (["--memory", "0"], "out of range"),
        (["--memory", "-1"], "is not a size"),
        (["--memory", "99e99"], "is not a size"),
        (["--memory", "12x"], "is not a size"),
        (["--memory", ""], "is not a size"),
        (["--cpus", "0"], "out of range"),
        (["--cpus", "-1"], "is not a number"),
        (["--pids", "0"], "out of range"),
        (["--pids", "99e99"], "is not a whole number"),
        (["--timeout", "0"], "out of range"),
        (["--timeout", "12x"], "is not a time"),
        (["--tmp-size", "0"], "out of range"),
        (["--disk", "-1"], "is not a size"),
        (["--network", "allow"], "--allow-host"),
        (["--language", "cobol"], "is not one of python, bash, sh"),
        (["--mount", "nowhere"], "SRC:DST[:ro|rw]"),
        (["--mount", ".:/x:rx"], "neither ro nor rw"),
        (["--env", "NOT_SET_ANYWHERE"], "is not set here"),
        (["--env", "A-B=1"], "is not a variable name"),
        (["--quiet", "--verbose"], "contradict each other"),
        # of docker run
        (["-it"], "standard input and output are passed on always"),
        (["--rm"], "the box is removed at the end anyway"),
        (["-d"], "for a box that stays: glovebox exec NAME"),
        (["-w", "/srv"], "--workspace DIR shows a directory there"),
        (["--read-only"], "leave it out"),
        (["-m", "512m"], "to limit the memory: --memory 512m"),
        (["-p", "80:80"], "takes no connections from outside"),
        (["--gpus", "all"], "unknown option --gpus; a box has no GPU"),
    ],
)
def test_wrong_option_is_refused_as_usage(place: Path, words: list[str], said: str) -> None:
    assert_refused(call("run", *words, cwd=place), USAGE, said)
    # the same before code that would otherwise run
    if len(words) == 2 and not words[1].startswith("--"):
        assert_refused(call("run", *words, "-c", "print(1)", cwd=place), USAGE, said)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["missing.py"], USAGE, ["there is no file missing.py", "-c CODE"]),
        (["ls"], USAGE, ["there is no file ls", "-- ls"]),
        (["print(1)"], USAGE, ["there is no file print(1)", "if it is code, write -c before it"]),
        (["python3"], USAGE, ['leave "python3" out']),
        (["/data:/x"], USAGE, ["--mount /data:/x"]),
        (["hello.py/x"], NOT_STARTED, ["cannot read hello.py/x"]),
        (["directory"], USAGE, ["directory is a directory"]),
        (["notebook.ipynb"], USAGE, ["is a notebook", "jupyter nbconvert --to script notebook.ipynb"]),
        (["nul.py"], USAGE, ["NUL byte at offset 8"]),
        (["huge.py"], USAGE, ["larger than 4 MiB"]),
        ([""], USAGE, ["is empty"]),
        (["--"], USAGE, ["no command follows --"]),
        (["-l", "bash", "--", "ls"], USAGE, ["--language is for code"]),
        ([], USAGE, ["no code was given and standard input is empty"]),
    ],
)
def test_unreadable_code_is_refused(place: Path, words: list[str], status: int, said: list[str]) -> None:
    assert_refused(call("run", *words, cwd=place), status, *said)


def test_code_without_permission_is_refused() -> None:
    # Root reads everything, so as root an ordinary user is needed, and a place that this user can reach.
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        program = place / "glovebox"
        shutil.copy(GLOVEBOX, program)
        (place / "secret.py").write_text("print(1)\n")
        (place / "secret.py").chmod(0)
        identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        result = subprocess.run(
            [str(program), "run", "secret.py"],
            cwd=place,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            **identity,
        )
    assert_refused(result, NOT_STARTED, "you may not read secret.py")


def test_unknown_image_is_refused(place: Path) -> None:
    assert_refused(call("run", "--image", "no-such-image", "-c", "1", cwd=place), NOT_STARTED, "no-such-image")


def test_forbidden_mount_is_refused(place: Path) -> None:
    assert_refused(call("run", "--mount", "/etc:/mnt/etc", "-c", "1", cwd=place), NOT_STARTED, "/etc")


def test_piped_code_with_nul_is_refused(place: Path) -> None:
    for words in ([], ["-"]):
        assert_refused(call("run", *words, cwd=place, input="a\0"), USAGE, "standard input has a NUL byte")


def test_nothing_to_run_on_a_terminal_shows_the_forms() -> None:
    controller, terminal = pty.openpty()
    try:
        result = call("run", stdin=terminal)
    finally:
        os.close(controller)
        os.close(terminal)
    assert result.returncode == USAGE
    assert "nothing to run" in result.stderr and "glovebox run [OPTION...] -c CODE" in result.stderr


def test_malformed_variable_is_named() -> None:
    for variable in ("MEMORY", "CPUS", "PIDS", "TIMEOUT", "TMP_SIZE", "DISK", "DISK_FILES", "NETWORK", "ALLOW_WEAKER"):
        result = call("run", "-c", "1", env={f"GLOVEBOX_{variable}": "12x"})
        assert_refused(result, USAGE, f"GLOVEBOX_{variable}", "12x")


@pytest.mark.parametrize(
    ("words", "status", "name"),
    [
        (["run", "--json", "nofile.py"], USAGE, "usage"),
        (["run", "--json", "--memory", "x", "-c", "1"], USAGE, "usage"),
        (["run", "--memory", "x", "--json", "-c", "1"], USAGE, "usage"),
        (["run", "--json", "--image", "nope", "-c", "1"], NOT_STARTED, "not_found"),
        (["image", "show", "--json", "nope"], NOT_STARTED, "not_found"),
        (["session", "show", "nope", "--json", "--socket", "/nowhere.sock"], NOT_STARTED, "not_found"),
    ],
)
def test_json_is_one_object_too_if_nothing_was_run(words: list[str], status: int, name: str) -> None:
    done = call(*words)
    answer = json.loads(done.stdout)
    error = answer["error"]
    assert (done.returncode, answer["exit_code"], answer["status"], error["name"]) == (status, status, "error", name)
    assert done.stderr == f"glovebox: {error['value']}\n"


def test_json_of_the_programs_own_words_changes_no_message() -> None:
    for words in (["run", "nofile.py", "--json"], ["run", "--memory", "x", "--", "echo", "--json"]):
        done = call(*words)
        assert done.returncode == USAGE and done.stdout == ""


def test_control_characters_in_messages_are_harmless() -> None:
    result = call("run", "--\x1b[31mred\n")
    assert_refused(result, USAGE, "?[31mred?")


def test_unknown_verb_suggests_the_nearest() -> None:
    assert_refused(call("rnu"), USAGE, 'did you mean "run"?')
    assert_refused(call("zzzzzz"), USAGE, "lists the verbs")
    assert_refused(call("daemon"), USAGE, "glovebox serve --background")
    assert_refused(call("help", "imgae"), USAGE, 'did you mean "image"?')
    assert_refused(call("help", "nope"), USAGE, "lists the verbs")
    assert_refused(call("exce"), USAGE, 'did you mean "exec"?')
    assert_refused(call("pull", "python:3.12"), USAGE, "docker save IMAGE | glovebox image import NAME -")
    assert_refused(call("list"), USAGE, "glovebox session ls, or glovebox image list")
    assert_refused(call("rm"), USAGE, "glovebox session rm NAME, or glovebox image rm NAME")
    assert_refused(call("--frob"), USAGE, "unknown option --frob")
    assert_refused(call("--json", "status"), USAGE, "options follow the verb; write: glovebox status --json")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["exec", "-it", "demo", "bash"], "glovebox repl NAME"),
        (["ps", "-a"], "all sessions and runs are listed"),
        (["ps", "-aq"], "-q lists the ids of all"),
        (["serve", "-d"], "--background"),
        (["session", "ls", "-q"], "--names"),
        (["session", "stop", "demo"], "glovebox session hibernate NAME"),
        (["session", "start", "demo"], "glovebox exec demo"),
        (["session", "kill", "demo"], "glovebox kill NAME"),
        (["image", "lst"], 'did you mean "list"?'),
        (["session", "install", "demo", "-r", "all.txt"], "glovebox image build --requirements FILE"),
        (["session", "install", "demo", "attrs", "--upgrade"], "'attrs>=23'"),
        (["image", "pull", "python"], "glovebox image import NAME -"),
    ],
)
def test_words_of_docker_and_pip_are_answered_with_ours(words: list[str], said: str) -> None:
    assert_refused(call(*words), USAGE, said)


def test_file_in_place_of_a_verb_is_explained(place: Path) -> None:
    assert_refused(call("hello.py", cwd=place), USAGE, "glovebox run hello.py")


def test_no_verb_shows_the_overview_as_a_mistake() -> None:
    result = call()
    assert result.returncode == USAGE and result.stdout == ""
    assert "Usage: glovebox VERB" in result.stderr


def test_help_is_printed_for_every_verb() -> None:
    assert re.fullmatch(r"glovebox \d+\.\d+\.\d+\S*\n", call("--version").stdout)
    assert call("--help").stdout == call("help").stdout
    for verb in tables()["verbs"]:
        result = call("help", verb["name"])
        assert result.returncode == 0 and result.stderr == ""
        assert result.stdout.startswith("Usage\n")
    assert call("run", "--help").stdout == call("help", "run").stdout


def test_a_part_of_a_verb_has_help_of_its_own() -> None:
    assert call("image", "--help").stdout == call("help", "image").stdout
    for verb in tables()["verbs"]:
        for part in verb["verbs"] if verb["name"] != "completion" else []:
            result = call(verb["name"], part["name"], "--help")
            assert result.returncode == 0 and f"glovebox {verb['name']} {part['name']}" in result.stdout, result
            assert all(f"--{option['name']}" in result.stdout for option in part["options"]), result.stdout
            assert len(result.stdout) < len(call(verb["name"], "--help").stdout)


def test_help_on_a_full_disk_fails() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [GLOVEBOX, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=clean_environment()
        )
    assert result.returncode == NOT_STARTED
    assert "cannot write to standard output" in result.stderr


def help_on_a_terminal(**variables: str) -> str:
    """What `glovebox --help` writes when a terminal reads it; the last end to close gives EIO to the reader."""
    controller, terminal = pty.openpty()
    with subprocess.Popen([GLOVEBOX, "--help"], stdout=terminal, env=clean_environment(**variables)) as process:
        os.close(terminal)
        written = b""
        try:
            while piece := os.read(controller, 4096):
                written += piece
        except OSError as error:
            assert error.errno == errno.EIO
        finally:
            os.close(controller)
        assert process.wait(timeout=60) == 0
    return written.decode()


def test_colour_only_on_a_terminal_and_not_with_no_color() -> None:
    assert "\x1b[" in help_on_a_terminal(TERM="xterm", NO_COLOR="")
    assert "\x1b[" not in help_on_a_terminal(TERM="xterm", NO_COLOR="1")
    assert "\x1b[" not in help_on_a_terminal(TERM="dumb", NO_COLOR="")
    assert "\x1b[" not in call("--help", env={"TERM": "xterm", "NO_COLOR": ""}).stdout


def test_closed_standard_descriptors_are_survived() -> None:
    for closed in ("0<&-", "1>&-", "0<&- 1>&- 2>&-"):
        result = subprocess.run(
            ["bash", "--norc", "-c", f'"$0" run {closed}', GLOVEBOX],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
        )
        assert result.returncode == USAGE
        assert "standard input is empty" in result.stderr or "2>&-" in closed


def tables() -> dict[str, Any]:
    result = call("help", "--tables")
    assert result.returncode == 0
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def every_option() -> Iterator[dict[str, Any]]:
    for verb in tables()["verbs"]:
        yield from verb["options"]
        for part in verb["verbs"]:
            yield from part["options"]


def test_help_and_man_page_name_every_option() -> None:
    manual = (ROOT / "docs" / "glovebox.1").read_text()
    seen = 0
    for option in every_option():
        seen += 1
        assert re.search(rf"Fl -{re.escape(option['name'])}(?![\w-])", manual), (
            f"--{option['name']} is not in the manual"
        )
        if option["letter"]:
            assert re.search(rf"Fl {option['letter']}\b", manual), f"-{option['letter']} is not in the manual"
        for variable in filter(None, (option["variable"], option["alias"])):
            assert re.search(rf"Ev {variable}( ,.*)?\n", manual), f"{variable} is not in the manual"
    assert seen > 20
    # and the manual has no option that is gone
    known = {option["name"] for option in every_option()} | {"help", "version"}
    assert set(re.findall(r"Fl -([a-z][\w-]*)", manual)) <= known


def test_older_names_work_and_no_help_shows_them() -> None:
    assert_refused(call("serve", "--stock", "65"), USAGE, "--box-pool: ", "choose from 0 to 64")
    assert_refused(call("serve", env={"GLOVEBOX_STOCK": "65"}), USAGE, "GLOVEBOX_STOCK: ", "choose from 0 to 64")
    assert not re.search("stock", call("serve", "--help").stdout + (ROOT / "docs/glovebox.1").read_text(), re.I)


def complete(*words: str) -> list[str]:
    script = (
        'source <("$1" completion bash) || exit 9; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _glovebox; '
        '((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"'
    )
    result = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", GLOVEBOX, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
    )
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return result.stdout.splitlines()


def test_bash_completes_verbs_and_options(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "input.py").touch()
    assert complete("glovebox", "ru") == ["run"]
    assert complete("glovebox", "run", "--mem") == ["--memory"]
    assert complete("glovebox", "run", "-l", "") == ["python", "bash", "sh"]
    assert complete("glovebox", "run", "--language", "=", "b") == ["bash"]
    assert complete("glovebox", "run", "-c", "") == []
    assert complete("glovebox", "run", "--workspace", f"{tmp_path}/in") == [f"{tmp_path}/inner"]
    assert sorted(complete("glovebox", "run", f"{tmp_path}/in")) == [f"{tmp_path}/inner", f"{tmp_path}/input.py"]
    assert complete("glovebox", "image", "im") == ["import"]
    assert complete("glovebox", "image", "list", "--n") == ["--names"]
    assert complete("glovebox", "help", "doc") == ["doctor"]


def test_completion_for_an_unknown_shell_is_refused() -> None:
    for words in (["tcsh"], [], ["bash", "zsh"], ["--"]):
        assert_refused(call("completion", *words), USAGE, "glovebox completion bash")


def test_fish_completes_verbs_and_options(tmp_path: Path) -> None:
    def complete_fish(line: str) -> list[str]:
        script = f"{GLOVEBOX} completion fish | source; complete -C '{line}'"
        environment = {**clean_environment(), "HOME": str(tmp_path), "PATH": f"{Path(GLOVEBOX).parent}:/usr/bin:/bin"}
        command = ["fish", "--no-config", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return [text.split("\t")[0] for text in done.stdout.splitlines()]

    assert complete_fish("glovebox ru") == ["run"]
    assert complete_fish("glovebox run --mem") == ["--memory"]
    assert sorted(complete_fish("glovebox run --language ")) == ["bash", "python", "sh"]
    assert complete_fish("glovebox image im") == ["import"]
    assert "--names" in complete_fish("glovebox image list --")


def test_zsh_completes_verbs_and_options(tmp_path: Path) -> None:
    """In a real zsh on a terminal: only there its completion runs."""
    primary, secondary = pty.openpty()
    environment = {
        **clean_environment(),
        "HOME": str(tmp_path),
        "PATH": f"{Path(GLOVEBOX).parent}:/usr/bin:/bin",
        "TERM": "xterm",
    }
    with subprocess.Popen(["zsh", "-f", "-i"], stdin=secondary, stdout=secondary, stderr=secondary, env=environment,
                          start_new_session=True) as shell:  # fmt: skip
        os.close(secondary)
        seen = b""

        def expect(text: bytes) -> None:
            nonlocal seen
            deadline = time.monotonic() + 60
            while text not in seen:
                ready, _, _ = select.select([primary], [], [], 1)
                assert time.monotonic() < deadline, seen
                seen += os.read(primary, 65536) if ready else b""
            seen = seen[seen.index(text) + len(text) :]

        set_up = "autoload -Uz compinit; compinit -u; source <(glovebox completion zsh); unsetopt zle_bracketed_paste"
        os.write(primary, f"{set_up}; PS1='> '; echo read''y\n".encode())
        expect(b"ready")
        os.write(primary, b"echo glovebox doct\t")
        os.write(primary, b"\x15glovebox doct\t--js\t")
        expect(b"glovebox doctor")
        expect(b"--json")
        os.write(primary, b"\x15glovebox image imp\t")
        expect(b"glovebox image import")
        shell.kill()
    os.close(primary)
