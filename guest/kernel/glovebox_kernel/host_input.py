"""Standard input of a run: read from the client that started the run, and only when the code reads it.

A client that offers its input sends a token along. The first read shows a display with that token; the client then
writes pieces into the session's own directory, `input-TOKEN-N` for N = 0, 1, …, each when the one before is gone: the
workspace shows code nothing that it did not make. An empty piece is the end.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import time
from typing import Any, Callable

MIME = "application/x-glovebox-input"
_DIRECTORY = "/run/session"  # the kernel's; the daemon knows it as state/<id>/kernel
_TOKEN = re.compile(r"[0-9a-f]{8,64}\Z")
_ASK_AGAIN_S = 2.0
_PAUSES_S = (0.001, 0.002, 0.005, 0.01, 0.02)


def token_check(token: Any) -> str | None:
    return token if isinstance(token, str) and _TOKEN.match(token) else None


class HostInput(io.RawIOBase):
    """The pieces, in order."""

    name = "<stdin>"

    def __init__(self, token: str, show: Callable[[dict[str, str]], None]) -> None:
        self._token = token
        self._show = show
        self._next = 0
        self._piece = b""
        self._ended = False
        self._asked_at = 0.0

    def readable(self) -> bool:
        return True

    def poll(self) -> bytes | None:
        """The next piece if it is there; b"" at the end, again and again."""
        if self._ended:
            return b""
        now = time.monotonic()
        if self._next == 0 and now - self._asked_at > _ASK_AGAIN_S:
            self._asked_at = now
            self._show({MIME: self._token})
        path = self._path(self._next)
        try:
            with open(path, "rb") as file:
                piece = file.read()
        except FileNotFoundError:
            return None
        self._next += 1
        self._ended = not piece
        with contextlib.suppress(OSError):
            os.unlink(path)
        return piece

    def readinto(self, buffer: Any) -> int:
        waits = 0
        while not self._piece and not self._ended:
            piece = self.poll()
            if piece is None:
                time.sleep(_PAUSES_S[min(waits // 10, len(_PAUSES_S) - 1)])
                waits += 1
            else:
                self._piece = piece
        taken = self._piece[: len(buffer)]
        buffer[: len(taken)] = taken
        self._piece = self._piece[len(taken) :]
        return len(taken)

    def finish(self) -> None:
        """Removes input that the code did not read."""
        for number in (self._next, self._next + 1):
            with contextlib.suppress(OSError):
                os.unlink(self._path(number))

    def _path(self, number: int) -> str:
        return f"{_DIRECTORY}/input-{self._token}-{number}"
