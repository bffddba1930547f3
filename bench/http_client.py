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
        self.buffer = b""

    def send(self, method: str, path: str, body: bytes = b"", more: str = "") -> None:
        head = f"{method} {path} HTTP/1.1\r\n{self.head}{more}Content-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)

    def receive(self) -> tuple[int, bytes]:
        """An answer of known length."""
        buffer = self.buffer
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            buffer += self._some()
        at = buffer.lower().find(b"content-length:", 0, end)
        body, end = end + 4, end + 4 + int(buffer[at + 15 : buffer.find(b"\r", at)])
        while len(buffer) < end:
            buffer += self._some()
        self.buffer = buffer[end:]
        return int(buffer[9:12]), buffer[body:end]

    def _some(self) -> bytes:
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionError("the service closed the connection")
        return piece

    def ask(self, method: str, path: str, /, **fields: Any) -> dict[str, Any]:
        self.send(method, path, json.dumps(fields).encode(), "Content-Type: application/json\r\n")
        status, body = self.receive()
        answer: dict[str, Any] = json.loads(body)
        if status >= 300:
            raise RuntimeError(f"{status}: {answer}")
        return answer

    def close(self) -> None:
        self.socket.close()
