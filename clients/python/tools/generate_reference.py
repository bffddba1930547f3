#!/usr/bin/env python3
"""Writes docs/PYTHON.md from the docstrings of the package. `--check` only compares."""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

CLIENT = Path(__file__).resolve().parent.parent
DOCUMENT = CLIENT.parent.parent / "docs/PYTHON.md"
WIDTH = 116
sys.path.insert(0, str(CLIENT / "src"))

import glovebox  # noqa: E402
from glovebox import errors, models  # noqa: E402

HEAD = """# The Python package

Generated from the docstrings of `clients/python` by `clients/python/tools/generate_reference.py`; edit those.
[TUTORIAL.md](TUTORIAL.md) shows how the parts work together, [COMING-FROM.md](COMING-FROM.md) their names in
other packages.

`AsyncSandbox` and its parts have the same methods as the classes below, as coroutines: `await sandbox.run_code(…)`,
`async with await AsyncSandbox.create() as sandbox`, `async for event in sandbox.stream(…)`. There, callbacks may be
coroutine functions. `arun` is the coroutine of `run`.

| variable | meaning |
|---|---|
| `GLOVEBOX_URL`, `GLOVEBOX_API_KEY` | a service, and its key; otherwise the daemon of this machine is used |
| `GLOVEBOX_SOCKET` | the daemon's socket |
| `GLOVEBOX_DATA_DIR` | the daemon's data directory; its socket is in there |
| `GLOVEBOX_PROGRAM` | the program to start the daemon with; otherwise `glovebox` in PATH, or the runtime wheel's |
| `GLOVEBOX_START` | `0`: start no daemon |
"""


def words(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def signature(name: str, function: Any) -> str:
    """In one line where it fits, else one parameter to a line."""
    whole = inspect.signature(function)
    parameters = [parameter for key, parameter in whole.parameters.items() if key not in ("self", "cls")]
    texts, is_keyword = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            if not any(other.kind is other.VAR_POSITIONAL for other in parameters):
                texts.append("*")
        texts.append(str(parameter).replace("'", ""))
    answer = whole.return_annotation
    end = "" if answer is inspect.Signature.empty else f" -> {str(answer).strip(chr(39))}"
    line = f"{name}({', '.join(texts)}){end}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){end}"
    return line.replace("builtins.list", "list").replace("List[", "list[")


def members(kind: type) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(kind).items() if not name.startswith("_")]


def class_text(name: str, kind: type, prefix: str) -> str:
    text = f"\n## {name}\n{words(kind)}\n"
    for member, value in members(kind):
        if isinstance(value, property):
            if value.__doc__:
                text += f"\n### `{prefix}{member}`\n{words(value)}\n"
        elif isinstance(value, classmethod):
            text += function_text(f"{name}.{member}", value.__func__)
        elif inspect.isfunction(value) and value.__doc__:
            text += function_text(prefix + member, value)
    return text


def function_text(name: str, function: Any) -> str:
    heading = name.rpartition(".")[2]
    return f"\n### `{heading}`\n```python\n{signature(name, function)}\n```\n{words(function)}\n"


def models_text() -> str:
    text = "\n## Results, events, descriptions\nPlain data: they print their fields and compare by them.\n"
    for value in vars(models).values():
        if not inspect.isclass(value) or value.__module__ != models.__name__ or value is models.Record:
            continue
        fields = ", ".join(f"`{name}`" for name in sorted(_fields(value)))
        text += f"\n### `{value.__name__}`\n{words(value)}\n\n{wrap('Fields: ' + fields + '.')}\n"
        for member, function in members(value):
            if inspect.isfunction(function) and function.__doc__:
                text += f"\n`{signature('.' + member, function)}`: {words(function)}\n"
    return text


def _fields(kind: type) -> set[str]:
    names = {name for name, value in members(kind) if isinstance(value, property)}
    return names | {name for name in getattr(kind, "__slots__", ()) if not name.startswith("_")}


def wrap(text: str, indent: str = "") -> str:
    wrapped = textwrap.wrap(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapped)


def errors_text() -> str:
    text = f"\n## Exceptions\n{words(errors)}\n\n"
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.GloveboxError):
            text += wrap(f"- `{value.__name__}`: {' '.join(words(value).split())}", "  ") + "\n"
    return text


def reference() -> str:
    text = HEAD
    text += class_text("Sandbox", glovebox.Sandbox, "sandbox.")
    text += class_text("Commands", glovebox.Commands, "sandbox.commands.")
    text += class_text("CommandHandle", glovebox.CommandHandle, "handle.")
    text += class_text("Files", glovebox.Files, "sandbox.files.")
    text += class_text("Artifacts", glovebox.Artifacts, "sandbox.artifacts.")
    text += class_text("EventStream", glovebox.EventStream, "events.")
    text += "\n## Functions\n" + function_text("glovebox.run", glovebox.run).lstrip("\n")
    text += models_text()
    text += errors_text()
    return text


def main() -> int:
    text = reference()
    if "--check" in sys.argv:
        if DOCUMENT.exists() and DOCUMENT.read_text() == text:
            return 0
        print("docs/PYTHON.md is stale; run clients/python/tools/generate_reference.py")
        return 1
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
