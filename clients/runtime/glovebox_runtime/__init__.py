"""The Glovebox program and the files it needs, carried by a wheel. The package `glovebox` finds it by itself."""

from __future__ import annotations

import os
import sys


def program() -> str:
    """Where the program is."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "glovebox")


def main() -> None:
    """The command `glovebox`: becomes the program."""
    os.execv(program(), ["glovebox", *sys.argv[1:]])
