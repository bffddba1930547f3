"""Notebook syntax that is not Python: `!ls`, `%timeit`, `%%bash`, `df?`.

Nothing is looked for in code that compiles. Where the compiler finds a syntax error, the line that it names is looked
at: if it is one of these, a call of a function of this module takes its place, and the compiler tries again. So
strings, comments and continued lines need no further parser, and ordinary code pays nothing.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import re
import shlex
import sys
import time
from typing import Any, Callable

from glovebox_kernel.command import command_run
from glovebox_kernel.failure import install_hint
from glovebox_kernel.refusal import MagicError

_NAME = "__glovebox_magic__"
_LINES_MAX = 1000
_MODULE = r"[A-Za-z_]\w*"
_ASSIGNED = re.compile(r"(\s*[\w.,\[\]'\" *]+?\s*=\s*)([!%])(.*)", re.DOTALL)
_HELP = re.compile(r"(\s*)(\?{0,2})\s*([A-Za-z_][\w.\[\]'\"]*)\s*(\?{0,2})\s*\Z")
_PIP = re.compile(r"\s*(?:python3?(?:\.\d+)?\s+-m\s+)?pip3?\s+install\s+(.*)", re.DOTALL)
PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def magics_install() -> None:
    """Functions that a cell defines with a magic in them call it by this name, also after a sleep."""
    builtins.__dict__[_NAME] = _call


def magics_rewrite(source: str, error: SyntaxError) -> str | None:
    """The source with the line of the error replaced; None when that line is no magic."""
    magics_install()
    text = source.lstrip()
    if text.startswith("%%"):
        first, _, body = text.partition("\n")
        name, _, rest = first[2:].partition(" ")
        return f"{_NAME}('cell', {name!r}, {rest.strip()!r}, {body!r})"
    lines = source.split("\n")
    number = (error.lineno or 0) - 1
    if not 0 <= number < len(lines) or len(lines) > _LINES_MAX * 100:
        return None
    end = number + 1
    line = lines[number]
    while line.endswith("\\") and end < len(lines) and line.lstrip()[:1] in ("!", "%"):
        line = line[:-1] + " " + lines[end].lstrip()
        end += 1
    new = _rewrite_line(line)
    if new is None:
        return None
    # As many lines as before: tracebacks name them by number.
    return "\n".join([*lines[:number], new, *[""] * (end - number - 1), *lines[end:]])


def _rewrite_line(line: str) -> str | None:
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    if text.startswith("!"):
        return f"{indent}{_NAME}('shell', {text.lstrip('!').strip()!r})"
    if text.startswith("%"):
        name, _, rest = text[1:].partition(" ")
        return f"{indent}{_NAME}('line', {name!r}, {rest.strip()!r})"
    if assigned := _ASSIGNED.match(line):
        target, kind, rest = assigned.groups()
        if kind == "!":
            return f"{target}{_NAME}('capture', {rest.strip()!r})"
        name, _, rest = rest.partition(" ")
        return f"{target}{_NAME}('line', {name!r}, {rest.strip()!r})"
    asked = _HELP.match(line)
    if asked and (asked[2] or asked[4]):
        return f"{asked[1]}{_NAME}('help', {asked[3]!r}, {'??' in (asked[2], asked[4])})"
    return None


def _call(kind: str, *arguments: Any) -> Any:
    return {"shell": _shell, "capture": _capture, "line": _line, "cell": _cell, "help": _help}[kind](*arguments)


def _space() -> dict[str, Any]:
    return sys.modules["__main__"].__dict__


def _expand(text: str) -> str:
    """`{name}` is a variable of the session; what is none stays as it is."""
    space = _space()
    return re.sub(r"\{(\w+)\}", lambda found: str(space[found[1]]) if found[1] in space else found[0], text)


# Shell.


def _shell(command: str) -> None:
    _refuse_pip(command)
    sys.stdout.flush()
    sys.stderr.flush()
    _space()["_exit_code"] = command_run({"argv": ["", "-c", _expand(command)]})


def _capture(command: str) -> list[str]:
    import subprocess

    done = subprocess.run(["/bin/sh", "-c", _expand(command)], stdout=subprocess.PIPE, text=True, check=False)
    _space()["_exit_code"] = done.returncode
    return done.stdout.splitlines()


def _refuse_pip(command: str) -> None:
    """Without a network pip only fails, and late; packages come into a session from outside."""
    if (found := _PIP.match(command)) and not os.environ.get("https_proxy"):
        hint = install_hint(" ".join(word for word in found[1].split() if not word.startswith("-")))
        raise MagicError(f"this box has no network: install from outside with: {hint}")


# Help.


def _help(expression: str, in_full: bool) -> None:
    import inspect

    try:
        value = eval(expression, _space())
    except Exception as error:
        print(f"{expression}: {type(error).__name__}: {error}")
        return
    print(f"Type:      {type(value).__name__}")
    with contextlib.suppress(TypeError, ValueError):
        print(f"Signature: {expression}{inspect.signature(value)}")
    if not callable(value):
        text = repr(value)
        print(f"Value:     {text if len(text) <= 500 else text[:500] + ' ...'}")
    if in_full:
        with contextlib.suppress(TypeError, OSError):
            print(inspect.getsource(value))
            return
    print(inspect.getdoc(value) or "(no documentation)")


# Magics.


def _line(name: str, rest: str) -> Any:
    magic = _LINE.get(name)
    if magic is None:
        known = ", ".join("%" + one for one in sorted(_LINE))
        raise MagicError(f"there is no %{name} here; there are {known}, and !COMMAND for the shell")
    return magic(rest)


def _cell(name: str, rest: str, body: str) -> Any:
    magic = _CELL.get(name)
    if magic is None:
        known = ", ".join("%%" + one for one in sorted(_CELL))
        raise MagicError(f"there is no %%{name} here; there are {known}")
    return magic(rest, body)


def _run_code(code: str) -> Any:
    from glovebox_kernel.cell import CellCompiler

    cell = CellCompiler().compile(code)
    if cell.body is not None:
        eval(cell.body, _space())
    return eval(cell.last, _space()) if cell.last is not None else None


def _pip(rest: str) -> None:
    words = rest.split(None, 1)
    if words[:1] == ["install"]:
        _refuse_pip("pip " + rest)
    sys.stdout.flush()
    command_run({"argv": ["-m", "pip", *shlex.split(rest)], "python": True})


def _time(rest: str, body: str = "") -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    value = _run_code(rest + "\n" + body if body else rest)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"CPU time: {_seconds(cpu)}, wall time: {_seconds(wall)}")
    return value


def _timeit(rest: str, body: str = "") -> None:
    import timeit

    repeat, number, words = 7, 0, shlex.split(rest, posix=False)
    while words and words[0][:2] in ("-n", "-r"):
        option = words.pop(0)
        value = option[2:] or (words.pop(0) if words else "")
        if not value.isdigit():
            raise MagicError("%timeit takes -n NUMBER and -r NUMBER before the code")
        if option.startswith("-n"):
            number = int(value)
        else:
            repeat = int(value)
    code = rest if not rest.startswith("-") else " ".join(words)
    timer = timeit.Timer(body or code or "pass", code if body else "pass", globals=_space())
    if not number:
        number, _ = timer.autorange()
    times = [took / number for took in timer.repeat(max(repeat, 1), number)]
    mean = sum(times) / len(times)
    deviation = (sum((one - mean) ** 2 for one in times) / len(times)) ** 0.5
    print(
        f"{_seconds(mean)} ± {_seconds(deviation)} per loop (mean ± std. dev. of {len(times)} runs, {number:,} loops each)"
    )


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _cd(rest: str) -> None:
    os.chdir(os.path.expanduser(_expand(rest)) if rest else os.environ.get("HOME", "/"))
    print(os.getcwd())


def _env(rest: str) -> Any:
    if not rest:
        return dict(os.environ)
    name, separator, value = rest.partition("=")
    if separator:
        os.environ[name.strip()] = _expand(value.strip())
        return None
    return os.environ.get(name.strip())


def _who(_rest: str) -> None:
    names = [name for name in _space() if not name.startswith("_")]
    print("\t".join(sorted(names)) or "there are no variables yet")


def _whos(_rest: str) -> None:
    for name, value in sorted(_space().items()):
        if not name.startswith("_"):
            text = repr(value).replace("\n", " ")
            print(f"{name:16} {type(value).__name__:14} {text[:60]}")


def _run_file(rest: str) -> None:
    words = shlex.split(rest)
    if not words:
        raise MagicError("%run needs a file")
    import runpy

    before = sys.argv
    sys.argv = words
    try:
        space = runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = before
    _space().update({name: value for name, value in space.items() if not name.startswith("__")})


def _nothing(_rest: str) -> None:
    """Figures are shown anyway, and nothing needs loading."""


def _bash(rest: str, body: str) -> None:
    sys.stdout.flush()
    code = command_run({"argv": ["", "-c", body, "bash", *shlex.split(rest)]})
    _space()["_exit_code"] = code
    if code:
        raise MagicError(f"the script ended with status {code}")


def _write_file(rest: str, body: str) -> None:
    words = shlex.split(rest)
    append = "-a" in words
    names = [word for word in words if word != "-a"]
    if len(names) != 1:
        raise MagicError("%%writefile needs the name of a file")
    with open(os.path.expanduser(names[0]), "a" if append else "w") as file:
        file.write(body if body.endswith("\n") or not body else body + "\n")
    print(f"{'appended to' if append else 'wrote'} {names[0]}")


def _capture_cell(rest: str, body: str) -> None:
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        _run_code(body)
    if rest.strip().isidentifier():
        _space()[rest.strip()] = out.getvalue()


_LINE: dict[str, Callable[[str], Any]] = {
    "autoreload": _nothing,
    "cat": lambda rest: _shell("cat " + rest),
    "cd": _cd,
    "config": _nothing,
    "env": _env,
    "load_ext": _nothing,
    "ls": lambda rest: _shell("ls " + rest),
    "matplotlib": _nothing,
    "pip": _pip,
    "pwd": lambda _rest: os.getcwd(),
    "run": _run_file,
    "sx": _capture,
    "system": _capture,
    "time": _time,
    "timeit": _timeit,
    "who": _who,
    "whos": _whos,
}
_CELL: dict[str, Callable[[str, str], Any]] = {
    "bash": _bash,
    "capture": _capture_cell,
    "sh": _bash,
    "time": _time,
    "timeit": _timeit,
    "writefile": _write_file,
}
