"""A client of the daemon, written from docs/PROTOCOL.md alone; standard library only. Nothing in it is tuned for the
measurements: requests and answers go through `json`, bytes through a buffered file."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

REQUEST, DATA, END, OUT, ERR, EVENT, ANSWER = range(1, 8)
HEADER = struct.Struct("<IBBH")
DATA_MAX = 1 << 20


class DaemonError(Exception):
    """The daemon refused: `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def default_socket() -> str:
    named = os.environ.get("GLOVEBOX_SOCKET")
    if named:
        return named
    if os.geteuid() == 0:
        return "/run/glovebox/glovebox.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return f"{runtime}/glovebox/glovebox.sock" if runtime else f"/tmp/glovebox-{os.geteuid()}/glovebox.sock"


class Client:
    """One connection. `request` sends one operation and waits for its answer; `begin` and `finish` are its halves."""

    def __init__(self, path: str | None = None, timeout: float = 300) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(path or default_socket())
        self.reader = self.socket.makefile("rb")
        self.number = 0
        self.out = b""
        self.err = b""
        self.data = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        self.reader.close()
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    def request(self, op: str, content: bytes | None = None, **fields: Any) -> dict[str, Any]:
        """The answer of one operation; DaemonError where it is an error. `content` follows as DATA … END."""
        self.begin(op, content, **fields)
        return self.finish()

    def begin(self, op: str, content: bytes | None = None, **fields: Any) -> None:
        self.number = self.number % 0xFFFF + 1
        message = self._pack(REQUEST, json.dumps({"op": op, **fields}).encode())
        if content is not None and len(content) <= DATA_MAX:
            message += self._pack(DATA, content) + self._pack(END)
        self.socket.sendall(message)
        if content is not None and len(content) > DATA_MAX:
            view = memoryview(content)
            for at in range(0, len(content), DATA_MAX):
                piece = view[at : at + DATA_MAX]
                self.socket.sendall(HEADER.pack(len(piece), DATA, 0, self.number))
                self.socket.sendall(piece)
            self.socket.sendall(self._pack(END))

    def _pack(self, kind: int, payload: bytes = b"") -> bytes:
        return HEADER.pack(len(payload), kind, 0, self.number) + payload

    def finish(self) -> dict[str, Any]:
        """Reads all messages of a request, up to its answer."""
        pieces: dict[int, list[bytes]] = {OUT: [], ERR: [], DATA: []}
        self.events = []
        while True:
            size, kind = self._receive_header()
            payload = self._read(size)
            if kind == ANSWER:
                break
            if kind in (OUT, ERR):
                pieces[kind].append(payload[4:])
            elif kind == DATA:
                pieces[DATA].append(payload)
            elif kind == EVENT:
                self.events.append(json.loads(payload))
        self.out, self.err, self.data = (b"".join(pieces[kind]) for kind in (OUT, ERR, DATA))
        answer: dict[str, Any] = json.loads(payload)
        if answer.get("ok"):
            return answer
        error = answer.get("error") or {}
        raise DaemonError(str(error.get("code", "unknown")), str(error.get("message", answer)))

    def _receive_header(self) -> tuple[int, int]:
        size, kind, _zero, number = HEADER.unpack(self._read(HEADER.size))
        if number != self.number:
            raise ConnectionError(f"the daemon answered request {number} while {self.number} was asked")
        return size, kind

    def _read(self, size: int) -> bytes:
        payload = self.reader.read(size)
        if len(payload) < size:
            raise ConnectionError("the daemon closed the connection")
        return payload

    # The operations that the tables need, by name.

    def execute(self, code: str, session: str | None = None, **fields: Any) -> dict[str, Any]:
        if session is None:
            return self.request("execute", code=code, ephemeral=True, **fields)
        return self.request("execute", code=code, session=session, **fields)

    def write_file(self, session: str, path: str, content: bytes) -> dict[str, Any]:
        return self.request("file.write", content, session=session, path=path)

    def read_file(self, session: str, path: str) -> bytes:
        self.request("file.read", session=session, path=path)
        return self.data

    def read_file_into(self, session: str, path: str, memory: memoryview) -> int:
        """Fills memory that the caller has; how many bytes there were."""
        self.begin("file.read", session=session, path=path)
        at = 0
        while True:
            size, kind = self._receive_header()
            if kind == ANSWER:
                json.loads(self._read(size))
                return at
            if self.reader.readinto(memory[at : at + size]) < size:
                raise ConnectionError("the daemon closed the connection")
            at += size
