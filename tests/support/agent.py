"""Exchanges the frames of docs/PROTOCOL.md ("Host and agent") with an agent that was started outside of a box."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

START, SIGNAL, QUIT, INPUT, INPUT_END, RESIZE, ACK = range(1, 8)
READY, STARTED, FAILED, EXITED, OUTPUT, TAKEN, DONE, CHANGED = range(16, 24)
STAT, LIST, READ, WRITE, MOVE, REMOVE, MKDIR, WATCH, UNWATCH = range(32, 41)
STREAMS, TERMINAL = 1, 2
BEGIN, COMMIT, ABANDON = 1, 2, 4
CREATED, WRITTEN, CLOSED, ATTRIBUTES, REMOVED, MOVED_AWAY, MOVED_HERE, GONE, LOST = range(1, 10)
WINDOW = 256 << 10

# Far beyond what anything here takes on the slowest machine: it only turns a hang into a failure.
PATIENCE_S = 60


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def text(value: str | bytes | Path) -> bytes:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return u32(len(raw)) + raw


def texts(values: Sequence[str]) -> bytes:
    return u32(len(values)) + b"".join(text(value) for value in values)


@dataclass
class Frame:
    """A frame, and its fields to be read in order."""

    kind: int
    id: int
    payload: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        assert self.at + size <= len(self.payload), f"frame {self.kind} is too short"
        self.at += size
        return self.payload[self.at - size : self.at]

    def u32(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])

    def u64(self) -> int:
        return int(struct.unpack("<Q", self.take(8))[0])

    def bytes(self) -> bytes:
        return self.take(self.u32())

    def text(self) -> str:
        return self.bytes().decode()


class Failure(Exception):
    """FAILED, with the errno."""

    def __init__(self, code: int, step: str) -> None:
        super().__init__(f"{step}: {os.strerror(code)}")
        self.code = code


class Agent:
    """An agent, its socket, and what it reported of each process."""

    def __init__(self, binary: Path) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(PATIENCE_S)
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen([str(binary.resolve()), str(number)], pass_fds=[number], env={}, cwd="/")
        self.running: dict[int, int] = {}  # pids by id: outside a box they do not end with the agent
        assert self.receive().kind == READY

    def send(self, kind: int, id: int, payload: bytes = b"", fds: Sequence[int] = ()) -> None:
        header = struct.pack("<IHHI", len(payload), kind, 0, id)
        if fds:
            socket.send_fds(self.socket, [header], list(fds))
            self.socket.sendall(payload)
        else:
            self.socket.sendall(header + payload)

    def receive(self) -> Frame:
        size, kind, zero, id = struct.unpack("<IHHI", self.exactly(12))
        assert zero == 0 and size <= 1 << 20
        if kind == EXITED:
            self.running.pop(id, None)
        return Frame(kind, id, self.exactly(size))

    def exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = self.socket.recv(size)
            if not part:
                raise EOFError("the agent is gone")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def answer(self) -> Frame:
        frame = self.receive()
        if frame.kind == FAILED:
            raise Failure(frame.u32(), frame.text())
        return frame

    def ask(self, kind: int, payload: bytes, id: int = 1000) -> Frame:
        """One request and its answer, when nothing else is to be expected."""
        self.send(kind, id, payload)
        frame = self.answer()
        assert (frame.kind, frame.id) == (DONE, id)
        return frame

    def start(
        self, id: int, argv: Sequence[str], flags: bytes = b"", env: Sequence[str] = (), fds: Sequence[int] = ()
    ) -> int:
        environment = [f"PATH={os.environ['PATH']}", *env]
        self.send(START, id, text("/") + texts(argv) + texts(environment) + flags, fds)
        frame = self.answer()
        assert (frame.kind, frame.id) == (STARTED, id)
        self.running[id] = frame.u32()
        return self.running[id]

    def read_until(self, id: int, end: bytes) -> bytes:
        """Output of a terminal or of stream 1, until these bytes have come."""
        output = b""
        while end not in output:
            frame = self.answer()
            if frame.kind == TAKEN:
                continue
            assert (frame.kind, frame.id) == (OUTPUT, id), frame
            assert frame.u32() == 1
            output += frame.bytes()
        return output

    def finish(self, id: int, sent: int = 0) -> tuple[bytes, bytes, int]:
        """Both streams to the end, acknowledged as they come after the `sent` bytes before, and the wait status."""
        streams = {1: b"", 2: b""}
        while True:
            frame = self.answer()
            assert frame.id == id
            if frame.kind == EXITED:
                return streams[1], streams[2], frame.u32()
            if frame.kind == OUTPUT:
                streams[frame.u32()] += frame.bytes()
                self.send(ACK, id, u64(sent + len(streams[1]) + len(streams[2])))

    def close(self) -> int:
        """Ends the agent as a host does, and then what it started."""
        self.socket.close()
        status = self.process.wait(PATIENCE_S)
        for pid in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.running = {}
        return status
