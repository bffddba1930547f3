"""A client of the daemon, written from docs/PROTOCOL.md alone; standard library only."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterable
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
        self.number = 0
        self.buffer = bytearray()
        self.out = b""
        self.err = b""
        self.data = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    def request(self, op: str, content: bytes | None = None, **fields: Any) -> dict[str, Any]:
        """The answer of one operation; DaemonError where it is an error. `content` follows as DATA … END."""
        self.begin(op, content, **fields)
        return self.finish()

    def begin(self, op: str, content: bytes | None = None, **fields: Any) -> None:
        self.number = self.number % 0xFFFF + 1
        fields["op"] = op
        message = self._pack(REQUEST, json.dumps(fields).encode())
        if content is None:
            self.socket.sendall(message)
            return
        view = memoryview(content)
        self.socket.sendall(message)
        for at in range(0, len(content), DATA_MAX):
            piece = view[at : at + DATA_MAX]
            self.socket.sendall(HEADER.pack(len(piece), DATA, 0, self.number))
            self.socket.sendall(piece)
        self.socket.sendall(self._pack(END, b""))

    def finish(self) -> dict[str, Any]:
        out: list[bytes] = []
        err: list[bytes] = []
        data: list[bytes] = []
        self.events = []
        while True:
            kind, number, payload = self._receive()
            if number != self.number:
                raise ConnectionError(f"the daemon answered request {number} while {self.number} was asked")
            if kind == OUT:
                out.append(payload[4:])
            elif kind == ERR:
                err.append(payload[4:])
            elif kind == DATA:
                data.append(payload)
            elif kind == EVENT:
                self.events.append(json.loads(payload))
            elif kind == ANSWER:
                break
        self.out, self.err, self.data = _join(out), _join(err), _join(data)
        answer: dict[str, Any] = json.loads(payload)
        if answer.get("ok"):
            return answer
        error = answer.get("error") or {}
        raise DaemonError(str(error.get("code", "unknown")), str(error.get("message", answer)))

    def _pack(self, kind: int, payload: bytes) -> bytes:
        return HEADER.pack(len(payload), kind, 0, self.number) + payload

    def _receive(self) -> tuple[int, int, bytes]:
        self._fill(HEADER.size)
        size, kind, _zero, number = HEADER.unpack_from(self.buffer)
        end = HEADER.size + size
        if size > 65536:
            return kind, number, self._receive_large(size)
        self._fill(end)
        payload = bytes(self.buffer[HEADER.size : end])
        del self.buffer[:end]
        return kind, number, payload

    def _receive_large(self, size: int) -> bytes:
        """Straight into its own memory: a 100 MB file must not be measured by a client that copies it thrice."""
        payload = bytearray(size)
        have = len(self.buffer) - HEADER.size
        taken = min(have, size)
        payload[:taken] = self.buffer[HEADER.size : HEADER.size + taken]
        del self.buffer[: HEADER.size + taken]
        view = memoryview(payload)
        while taken < size:
            n = self.socket.recv_into(view[taken:])
            if n == 0:
                raise ConnectionError("the daemon closed the connection")
            taken += n
        return bytes(payload) if size < 4096 else payload  # type: ignore[return-value]

    def _fill(self, size: int) -> None:
        while len(self.buffer) < size:
            piece = self.socket.recv(65536)
            if not piece:
                raise ConnectionError("the daemon closed the connection")
            self.buffer += piece

    # The operations that the tables need, by name.

    def execute(self, code: str, session: str | None = None, **fields: Any) -> dict[str, Any]:
        if session is None:
            return self.request("execute", ephemeral=True, code=code, **fields)
        return self.request("execute", session=session, code=code, **fields)

    def write_file(self, session: str, path: str, content: bytes) -> dict[str, Any]:
        return self.request("file.write", content, session=session, path=path)

    def read_file(self, session: str, path: str) -> bytes:
        self.request("file.read", session=session, path=path)
        return self.data


def _join(pieces: Iterable[bytes]) -> bytes:
    listed = list(pieces)
    return listed[0] if len(listed) == 1 else b"".join(listed)
