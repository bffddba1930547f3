"""Making a system call of a running program fail: the test's side of `tests/support/inject --live`."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from support.glovebox import find_binary

HEAD = struct.Struct("=6I16s")
CALLS_MAX = 8192
KILL = 0xFFFFFFFF  # for an error: the process is killed when it is about to make the call

# Numbers of x86-64.
RENAMEAT, FSYNC, FDATASYNC, SENDMSG, SENDTO, WRITE, WRITEV = 264, 74, 75, 46, 44, 1, 20


class Inject:
    """Runs a program and lets one call at a time fail, of the processes with this name."""

    def __init__(self, control: Path) -> None:
        self.program = find_binary().parent / "tests/support/inject"
        assert os.access(self.program, os.X_OK), f"{self.program} is missing: run make"
        control.write_bytes(bytes(HEAD.size + 4 * CALLS_MAX))
        self.wrapper = (self.program, "--live", control, "--")
        with control.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def arm(self, name: str, depth: int = 1, index: int = 0, error: int = 0) -> None:
        """From now on calls of processes of this name in so many pid namespaces are counted, from 1, as far as they can
        fail; that of the index does. 0: none."""
        self.disarm()
        self.memory[: HEAD.size] = HEAD.pack(0, index, error, depth, 0, 0, name.encode())
        self.memory[:4] = struct.pack("=I", 1)

    def disarm(self) -> None:
        self.memory[:4] = bytes(4)

    def failed(self) -> int | None:
        """The number of the call that was made to fail."""
        number = int(HEAD.unpack(self.memory[: HEAD.size])[5])
        return number - 1 if number else None

    def calls(self) -> list[int]:
        count = HEAD.unpack(self.memory[: HEAD.size])[4]
        return list(struct.unpack_from(f"={count}i", self.memory, HEAD.size))
