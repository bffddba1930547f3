"""A peer that is a command: run and checked; the caller times it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable


def runner(command: list[str], expected: str, env: dict[str, str] | None = None) -> Callable[[], None]:
    """A run that does not print what it should is an error, not a fast run."""

    def once() -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, stdin=subprocess.DEVNULL)
        if done.stdout.strip() != expected:
            printed = f"{done.stdout[:60]!r}, status {done.returncode}: {done.stderr[-200:]}"
            raise RuntimeError(f"{command[0]} printed {printed}")

    return once
