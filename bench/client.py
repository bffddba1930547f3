"""A client of the daemon, written from docs/PROTOCOL.md alone; standard library only."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any, Union

REQUEST, DATA, END, OUT, ERR, EVENT, ANSWER = range(1, 8)
HEADER = struct.Struct("<IBBH")
DATA_MAX = 1 << 20
SMALL_MAX = 64 << 10  # content that leaves together with its request
RECEIVE_MAX = 16 << 10
Bytes = Union[bytes, bytearray, memoryview]

# Made once: json.dumps and json.loads look at their options anew in every call.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().decode


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
        # The kernel's own time limits: with settimeout() Python asks poll() before every single call.
        limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.socket.connect(path or default_socket())
        self.number = 0
        self.buffer = b""
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
        message = self._pack(REQUEST, _encode(fields).encode())
        if content is None:
            self.socket.sendall(message)
            return
        if len(content) <= SMALL_MAX:
            self.socket.sendall(message + self._pack(DATA, content) + self._pack(END, b""))
            return
        self.socket.sendall(message)
        view = memoryview(content)
        for at in range(0, len(content), DATA_MAX):
            piece = view[at : at + DATA_MAX]
            sent = self.socket.sendmsg([HEADER.pack(len(piece), DATA, 0, self.number), piece])
            self.socket.sendall(piece[max(0, sent - HEADER.size) :])
        self.socket.sendall(self._pack(END, b""))

    def finish(self) -> dict[str, Any]:
        out: list[Bytes] = []
        err: list[Bytes] = []
        data: list[Bytes] = []
        self.events = []
        self.out = self.err = self.data = b""
        while True:
            kind, number, payload = self._receive()
            if number != self.number:
                raise ConnectionError(f"the daemon answered request {number} while {self.number} was asked")
            if kind == ANSWER:
                break
            if kind == OUT:
                out.append(memoryview(payload)[4:])
            elif kind == ERR:
                err.append(memoryview(payload)[4:])
            elif kind == DATA:
                data.append(payload)
            elif kind == EVENT:
                self.events.append(json.loads(payload))
        if out or err or data:
            self.out, self.err, self.data = b"".join(out), b"".join(err), b"".join(data)
        answer: dict[str, Any] = _decode(str(payload, "utf-8"))
        if answer.get("ok"):
            return answer
        error = answer.get("error") or {}
        raise DaemonError(str(error.get("code", "unknown")), str(error.get("message", answer)))

    def _pack(self, kind: int, payload: bytes) -> bytes:
        return HEADER.pack(len(payload), kind, 0, self.number) + payload

    def _receive(self) -> tuple[int, int, Bytes]:
        """The next message. A large one is received straight into its own memory."""
        buffer = self.buffer
        while len(buffer) < HEADER.size:
            buffer += self._some()
        size, kind, _zero, number = HEADER.unpack_from(buffer)
        end = HEADER.size + size
        have = len(buffer)
        if have == end:
            self.buffer = b""
            return kind, number, buffer[HEADER.size :]
        if have > end:
            self.buffer = buffer[end:]
            return kind, number, buffer[HEADER.size : end]
        payload = bytearray(size)
        payload[: have - HEADER.size] = buffer[HEADER.size :]
        self.buffer = b""
        self._receive_into(memoryview(payload)[have - HEADER.size :])
        return kind, number, payload

    def _receive_into(self, view: memoryview) -> None:
        while view:
            n = self.socket.recv_into(view)
            if n == 0:
                raise ConnectionError("the daemon closed the connection")
            view = view[n:]

    def _some(self) -> bytes:
        piece = self.socket.recv(RECEIVE_MAX)
        if not piece:
            raise ConnectionError("the daemon closed the connection")
        return piece

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

    def read_file_into(self, session: str, path: str, memory: memoryview) -> int:
        """The content goes into memory that the caller has; how many bytes that were."""
        self.begin("file.read", session=session, path=path)
        at = 0
        while True:
            while len(self.buffer) < HEADER.size:
                self.buffer += self._some()
            size, kind, _zero, _number = HEADER.unpack_from(self.buffer)
            if kind != DATA:
                self.finish()
                return at
            taken = self.buffer[HEADER.size : HEADER.size + size]
            self.buffer = self.buffer[HEADER.size + size :]
            memory[at : at + len(taken)] = taken
            self._receive_into(memory[at + len(taken) : at + size])
            at += size
