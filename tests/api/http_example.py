"""Starts build/tests/support/http-example, and sends it requests over bare sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("HTTP_EXAMPLE", REPOSITORY / "build/tests/support/http-example"))

# Far more than anything here takes; only a hang reaches it.
PATIENCE_S = 60


class Example:
    """A running example server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def stats(self) -> dict[str, Any]:
        status, body = self.ask(b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert status == 200, body
        return json.loads(body)

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """One request on a connection of its own, read to the close."""
        with self.connect() as client:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(request)
            return split(read_to_close(client))

    def memory_kib(self, field: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise AssertionError(f"no {field}")


def read_to_close(client: socket.socket) -> bytes:
    """Everything up to the end of the connection; a reset is an end too, a silence is a failure."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def split(answer: bytes) -> tuple[int, bytes]:
    """The status (0: nothing came) and the body, of one answer that is not chunked."""
    if not answer:
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


def read_answer(client: socket.socket) -> bytes:
    """One answer with a Content-Length."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = client.recv(1)
        assert piece, answer
        answer += piece
    head = answer.lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    while length > 0:
        piece = client.recv(length)
        assert piece, answer
        answer += piece
        length -= len(piece)
    return answer


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@contextlib.contextmanager
def example(*arguments: str, preexec_fn: Callable[[], None] | None = None) -> Iterator[Example]:
    process = subprocess.Popen(
        [PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=preexec_fn
    )
    assert process.stdin and process.stdout
    try:
        line = process.stdout.readline()
        assert line, "the example server did not start"
        yield Example(process, int(line))
    finally:
        process.stdin.close()
        try:
            status = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            process.stdout.close()
    assert status == 0, f"the example server ended with {status}"
