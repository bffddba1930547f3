"""A terminal with the program on it."""

from __future__ import annotations

import os
import pty
import select
import time

from support.glovebox import Glovebox, slowness


class Screen:
    def __init__(self, glovebox: Glovebox, *words: str, stdin: int | None = None) -> None:
        """`stdin`: a descriptor to read from in place of the terminal."""
        self.fd, theirs = pty.openpty()
        self.process = glovebox.popen(
            *words,
            stdin=theirs if stdin is None else stdin,
            stdout=theirs,
            stderr=theirs,
            env={"TERM": "xterm", "NO_COLOR": "1"},
        )
        os.close(theirs)
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def expect(self, text: bytes) -> bytes:
        """Waits for it; returns what came before."""
        deadline = time.monotonic() + 60 * slowness()
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], 1)
            assert time.monotonic() < deadline, self.seen
            if ready:
                self.seen += os.read(self.fd, 65536)
        before, _, self.seen = self.seen.partition(text)
        return before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)
