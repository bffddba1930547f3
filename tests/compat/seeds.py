"""The code examples of the seeds, taken from the seed files themselves."""

from __future__ import annotations

import ast
import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest
from support.glovebox import REPOSITORY

# What a user changes: the import root.
ROOTS = {
    "000": {
        "sandbox.sandbox_util": "glovebox.compat.kernellite.sandbox_util",
        "generated_tools.pandastool": "glovebox.compat.kernellite.pandastool",
    },
    "001": {},
    "002": {"dolphin_mcp": "glovebox.compat.dolphin"},
    "003": {},
    "004": {"sandbox": "glovebox.compat.container"},
}


def seed_text(number: str) -> str:
    directory = Path(os.environ.get("GLOVEBOX_SEEDS", REPOSITORY.parent / "shared/seeds"))
    found = sorted(directory.glob(f"{number}_*.txt"))
    if not found:
        reason = f"the seed {number} is not in {directory}; GLOVEBOX_SEEDS names another directory"
        pytest.skip(reason if os.environ.get("CI") else f"optional: {reason}")
    return found[0].read_text(encoding="utf-8")


def python_blocks(number: str) -> list[str]:
    """Every fenced block of Python, with the import roots replaced."""
    blocks = re.findall(r"^[ \t]*```python\n(.*?)^[ \t]*```", seed_text(number), re.DOTALL | re.MULTILINE)
    return [_with_roots(block, number) for block in blocks]


def block_with(number: str, words: str) -> str:
    """The one block with these words in it."""
    (block,) = [block for block in python_blocks(number) if words in block]
    return block


def _with_roots(block: str, number: str) -> str:
    for old, new in ROOTS[number].items():
        block = re.sub(rf"^(\s*(?:from|import)\s+){re.escape(old)}\b", rf"\g<1>{new}", block, flags=re.MULTILINE)
    return block


async def execute(block: str, namespace: dict[str, Any]) -> None:
    """Runs a block as a notebook would: top-level `await` works."""
    code = compile(block, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    done = eval(code, namespace)
    if inspect.iscoroutine(done):
        await done
