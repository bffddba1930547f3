"""The smallest possible kernel: a Python loop that reads code from a UNIX socket and executes it."""

from __future__ import annotations

import socket
import struct
import subprocess

from context import SYSTEM_PYTHON, Bench

LOOP = """
import io, socket, struct, sys, contextlib
peer = socket.socket(fileno=int(sys.argv[1]))
space = {}
def exactly(n):
    data = b""
    while len(data) < n:
        piece = peer.recv(n - len(data))
        if not piece: sys.exit()
        data += piece
    return data
while True:
    code = exactly(struct.unpack("<I", exactly(4))[0]).decode()
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            value = eval(compile(code, "<cell>", "eval"), space)
        except SyntaxError:
            exec(compile(code, "<cell>", "exec"), space)
    answer = (printed.getvalue() + ("" if value is None else repr(value))).encode()
    peer.sendall(struct.pack("<I", len(answer)) + answer)
"""

ECHO = """
import socket, sys
peer = socket.socket(fileno=int(sys.argv[1]))
while True:
    data = peer.recv(64)
    if not data: sys.exit()
    peer.sendall(data)
"""


class Loop:
    def __init__(self, program: str) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [SYSTEM_PYTHON, "-c", program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def execute(self, code: str) -> bytes:
        data = code.encode()
        self.socket.sendall(struct.pack("<I", len(data)) + data)
        return self._exactly(struct.unpack("<I", self._exactly(4))[0])

    def ping(self) -> None:
        self.socket.sendall(b"ping")
        self._exactly(4)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the bare loop is gone")
            data += piece
        return bytes(data)

    def stop(self) -> None:
        self.socket.close()
        self.process.wait(10)


def loop(bench: Bench) -> Loop:
    return bench.share("bare loop", lambda: Loop(LOOP))


def echo(bench: Bench) -> Loop:
    return bench.share("echo", lambda: Loop(ECHO))
