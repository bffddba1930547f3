"""A client of the REST API on one kept-alive connection, as small as the client of the daemon's socket beside it."""

from __future__ import annotations

import json
import socket
from typing import Any


class HttpClient:
    def __init__(self, port: int, key: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
        self.buffer = bytearray()

    def send(self, method: str, path: str, body: bytes = b"", more: str = "") -> None:
        head = f"{method} {path} HTTP/1.1\r\n{self.head}{more}Content-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)

    def receive(self) -> tuple[int, bytes]:
        """An answer of known length."""
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            self._more()
        head = bytes(self.buffer[:end])
        status = int(head[9:12])
        at = head.lower().find(b"content-length:")
        size = int(head[at + 15 :].split(b"\r\n", 1)[0])
        del self.buffer[: end + 4]
        while len(self.buffer) < size:
            self._more()
        body = bytes(self.buffer[:size])
        del self.buffer[:size]
        return status, body

    def _more(self) -> None:
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionError("the service closed the connection")
        self.buffer += piece

    def ask(self, method: str, path: str, **fields: Any) -> dict[str, Any]:
        self.send(method, path, json.dumps(fields).encode(), "Content-Type: application/json\r\n")
        status, body = self.receive()
        answer: dict[str, Any] = json.loads(body)
        if status >= 300:
            raise RuntimeError(f"{status}: {answer}")
        return answer

    def close(self) -> None:
        self.socket.close()
