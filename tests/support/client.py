"""The client of the benchmarks, with what tests need besides: several requests under way, and messages one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from client import ANSWER, DATA, END, ERR, EVENT, HEADER, OUT, REQUEST, DaemonError
from client import Client as PlainClient

__all__ = ["ANSWER", "DATA", "END", "ERR", "EVENT", "HEADER", "OUT", "REQUEST", "Client", "DaemonError"]

WAIT_S = 120.0


class Client(PlainClient):
    """One connection. A silence of `timeout` seconds raises TimeoutError, a hang-up ConnectionError."""

    def __init__(self, path: str, timeout: float = WAIT_S) -> None:
        super().__init__(path, timeout)
        self.waiting: dict[int, list[tuple[int, bytes]]] = {}
        self.received = bytearray()

    def request(self, op: str, content: bytes | None = None, **fields: Any) -> dict[str, Any]:
        """The answer of one operation; DaemonError where it is an error. `content` follows as DATA … END."""
        return self.finish(self.begin(op, content, **fields))

    def begin(self, op: str, content: bytes | None = None, **fields: Any) -> int:
        """Sends one operation; its number, for `finish` and `messages`."""
        super().begin(op, content, **fields)
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

    def output(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The same without events: only the output and the answer."""
        return ((kind, payload) for kind, payload in self.messages(number) if kind != EVENT)

    def messages(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The messages of one request, as they arrive; those of other requests are kept for them."""
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

    def send(self, kind: int, payload: bytes = b"", number: int | None = None) -> None:
        """One message, as malformed as the test wants it."""
        self.socket.sendall(HEADER.pack(len(payload), kind, 0, self.number if number is None else number) + payload)

    def receive(self) -> tuple[int, int, bytes]:
        """One message: type, request, payload."""
        size, kind, _zero, number = HEADER.unpack(self._read(HEADER.size))
        return kind, number, self._read(size)

    def _read(self, size: int) -> bytes:
        """From the socket, not from a file object: that could not be read again after a TimeoutError."""
        while len(self.received) < size:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the daemon closed the connection")
            self.received += piece
        piece, self.received = bytes(self.received[:size]), self.received[size:]
        return piece

    def read_file(self, session: str, path: str, **fields: Any) -> bytes:
        self.request("file.read", session=session, path=path, **fields)
        return self.data
