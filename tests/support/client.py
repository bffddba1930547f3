"""A client of the daemon, written from docs/PROTOCOL.md alone; standard library only."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

REQUEST, DATA, END, OUT, ERR, EVENT, ANSWER = range(1, 8)
HEADER = struct.Struct("<IBBH")
DATA_MAX = 1 << 20
WAIT_S = 120.0


class DaemonError(Exception):
    """The daemon refused: `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Client:
    """One connection. `request` sends one operation and waits for its answer; `begin` and `finish` are its halves, and
    several requests may be begun before the first is finished. A silence of `timeout` seconds raises TimeoutError."""

    def __init__(self, path: str, timeout: float = WAIT_S) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        self.number = 0
        self.buffer = bytearray()
        self.out = self.err = self.data = b""
        self.waiting: dict[int, list[tuple[int, bytes]]] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # requests

    def request(self, op: str, content: bytes | None = None, **fields: Any) -> dict[str, Any]:
        """The answer of one operation; DaemonError where it is an error. `content` follows as DATA … END."""
        return self.finish(self.begin(op, content, **fields))

    def begin(self, op: str, content: bytes | None = None, **fields: Any) -> int:
        self.number = self.number % 0xFFFF + 1
        fields["op"] = op
        self.send(REQUEST, json.dumps(fields).encode())
        if content is not None:
            view = memoryview(content)
            for at in range(0, len(content), DATA_MAX):
                self.send(DATA, view[at : at + DATA_MAX])
            self.send(END)
        return self.number

    def finish(self, number: int | None = None) -> dict[str, Any]:
        """Waits for the ANSWER; what came before it is in `out`, `err` and `data`."""
        parts: dict[int, list[bytes]] = {OUT: [], ERR: [], DATA: []}
        for kind, payload in self.messages(self.number if number is None else number):
            if kind == ANSWER:
                self.out, self.err, self.data = (b"".join(parts[key]) for key in (OUT, ERR, DATA))
                answer: dict[str, Any] = json.loads(payload)
                if answer.get("ok"):
                    return answer
                error = answer.get("error") or {}
                raise DaemonError(str(error.get("code", "unknown")), str(error.get("message", answer)))
            if kind in parts:
                parts[kind].append(payload[4:] if kind in (OUT, ERR) else payload)
        raise AssertionError("unreachable: messages() ends only by an exception")

    def messages(self, number: int) -> Iterator[tuple[int, bytes]]:
        """What belongs to one request, as it comes; what belongs to others is kept for them."""
        while True:
            kept = self.waiting.get(number)
            if kept:
                yield kept.pop(0)
                continue
            kind, whose, payload = self.receive()
            if whose == number:
                yield kind, payload
            else:
                self.waiting.setdefault(whose, []).append((kind, payload))

    # messages

    def send(self, kind: int, payload: bytes | memoryview = b"", number: int | None = None) -> None:
        self.socket.sendall(HEADER.pack(len(payload), kind, 0, self.number if number is None else number))
        if len(payload) > 0:
            self.socket.sendall(payload)

    def receive(self) -> tuple[int, int, bytes]:
        """One message: type, request, payload. ConnectionError when the daemon hangs up."""
        self._fill(HEADER.size)
        size, kind, _zero, number = HEADER.unpack_from(self.buffer)
        end = HEADER.size + size
        self._fill(end)
        payload = bytes(memoryview(self.buffer)[HEADER.size : end])
        del self.buffer[:end]
        return kind, number, payload

    def _fill(self, size: int) -> None:
        while len(self.buffer) < size:
            piece = self.socket.recv(max(65536, size - len(self.buffer)))
            if not piece:
                raise ConnectionError("the daemon closed the connection")
            self.buffer += piece

    # the usual operations, by name

    def execute(self, code: str, session: str | None = None, **fields: Any) -> dict[str, Any]:
        """Runs code in a session, or in a box of its own."""
        where = {"ephemeral": True} if session is None else {"session": session}
        return self.request("execute", code=code, **where, **fields)

    def write_file(self, session: str, path: str, content: bytes) -> dict[str, Any]:
        return self.request("file.write", content, session=session, path=path)

    def read_file(self, session: str, path: str, **fields: Any) -> bytes:
        self.request("file.read", session=session, path=path, **fields)
        return self.data
