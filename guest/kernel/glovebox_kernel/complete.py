"""Completions for the Tab key."""

from __future__ import annotations

import rlcompleter
import sys

NAMES_MAX = 100


def complete(text: str) -> None:
    """Prints them, one to a line."""
    completer = rlcompleter.Completer(sys.modules["__main__"].__dict__)
    seen: dict[str, None] = {}
    for state in range(NAMES_MAX * 4):
        try:
            word = completer.complete(text, state)
        except Exception:
            break
        if word is None or len(seen) == NAMES_MAX:
            break
        name = word.rstrip("() \t:")
        if "__glovebox" not in name:
            seen[name] = None
    for name in seen:
        print(name)
