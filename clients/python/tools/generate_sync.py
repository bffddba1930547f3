#!/usr/bin/env python3
"""Makes glovebox/_sync of glovebox/_aio: the same code without `async` and `await`. `--check` only compares.

Tokens are replaced, so texts and comments stay as they are, but for the names of classes in them."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src/glovebox"
BY_HAND = {"__init__.py", "io.py"}
NAMES = {
    "AsyncIterator": "Iterator",
    "AsyncIterable": "Iterable",
    "StopAsyncIteration": "StopIteration",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "arun": "run",
}
# What means something only while it may be awaited.
LINES = [
    (re.compile(r"Awaitable\[T\]"), "T"),
    (re.compile(r"\bAwaitable, "), ""),
]
CLASS = re.compile(r"\bAsync(?=[A-Z])")


def convert(source: str) -> str:
    lines = source.splitlines(keepends=True)
    out: list[str] = []
    line, column = 1, 0  # where the last token ended
    drops_space = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            continue
        at_line, at_column = token.start
        gap = lines[at_line - 1][column if at_line == line else 0 : at_column]
        out.append(gap[1:] if drops_space else gap)
        drops_space = token.type == tokenize.NAME and token.string in ("async", "await")
        if not drops_space:
            out.append(convert_token(token))
        line, column = token.end
    result = "".join(out)
    for pattern, replacement in LINES:
        result = pattern.sub(replacement, result)
    return result


def convert_token(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return CLASS.sub("", NAMES.get(token.string, token.string))
    return prose(token.string) if token.type in (tokenize.STRING, tokenize.COMMENT) else token.string


def prose(text: str) -> str:
    text = text.replace("async with await ", "with ").replace("print((await sandbox", "print((sandbox")
    text = text.replace('print((sandbox.run_code("x + 1")).text)', 'print(sandbox.run_code("x + 1").text)')
    text = re.sub(r"\bawait ", "", text)
    return CLASS.sub("", text)


def tidy(source: str) -> str:
    """A name that is imported twice now is imported once."""

    def once(match: re.Match[str]) -> str:
        names = sorted(set(match[2].split(", ")), key=lambda name: (not name.isupper(), not name[0].isupper(), name))
        return f"{match[1]}{', '.join(names)}\n"

    return re.sub(r"^(from (?:typing|collections\.abc) import )([^(\n]+)\n", once, source, flags=re.M)


def main() -> int:
    stale = []
    for path in sorted((PACKAGE / "_aio").glob("*.py")):
        if path.name in BY_HAND:
            continue
        header = f"# Generated from _aio/{path.name} by tools/generate_sync.py: change that one.\n"
        text = header + tidy(convert(path.read_text()))
        target = PACKAGE / "_sync" / path.name
        if target.exists() and target.read_text() == text:
            continue
        stale.append(path.name)
        if "--check" not in sys.argv:
            target.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"stale: {', '.join(stale)}; run clients/python/tools/generate_sync.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
