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
RECEIVE_MAX = 479  # what Python keeps small objects for; the rest of a longer message follows in one piece
Bytes = Union[bytes, bytearray, memoryview]


_dumps = json.JSONEncoder(separators=(",", ":")).encode
_quote = json.encoder.encode_basestring_ascii
_scan = json.JSONDecoder().scan_once
_pack, _unpack_from = HEADER.pack, HEADER.unpack_from


class DaemonError(Exception):
    """The daemon refused: `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def send_at_once(connection: socket.socket, message: bytes) -> None:
    """As sendall(), which asks first whether there is room when the socket has a time limit."""
    try:
        sent = os.write(connection.fileno(), message)
    except BlockingIOError:
        sent = 0
    if sent < len(message):
        connection.sendall(message[sent:])


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
        # With a time limit Python waits in poll(), which is worth having by itself: whoever waits in recv() is also
        # woken, for nothing, when the other side has read what was sent before.
        self.socket.settimeout(timeout)
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
        fields["op"] = op
        self._send(_dumps(fields).encode(), content)

    def _send(self, payload: bytes, content: bytes | None = None) -> None:
        self.number = self.number % 0xFFFF + 1
        message = _pack(len(payload), REQUEST, 0, self.number) + payload
        if content is not None and len(content) <= SMALL_MAX:
            data, end = _pack(len(content), DATA, 0, self.number), _pack(0, END, 0, self.number)
            message, content = b"".join((message, data, content, end)), None
        send_at_once(self.socket, message)
        if content is not None:
            self._send_content(memoryview(content))

    def _send_content(self, content: memoryview) -> None:
        for at in range(0, len(content), DATA_MAX):
            piece = content[at : at + DATA_MAX]
            sent = self.socket.sendmsg([HEADER.pack(len(piece), DATA, 0, self.number), piece])
            self.socket.sendall(piece[max(0, sent - HEADER.size) :])
        self.socket.sendall(HEADER.pack(0, END, 0, self.number))

    def finish(self) -> dict[str, Any]:
        self.out = self.err = self.data = b""
        self.events = []
        buffer = self.buffer or self.socket.recv(RECEIVE_MAX)
        payload: Bytes = buffer[HEADER.size :]
        if buffer[: HEADER.size] == _pack(len(payload), ANSWER, 0, self.number):  # mostly that, and nothing more
            self.buffer = b""
        else:
            self.buffer = buffer
            payload = self._finish_stream()
        answer: dict[str, Any] = _scan(str(payload, "utf-8"), 0)[0]
        if answer.get("ok"):
            return answer
        error = answer.get("error") or {}
        raise DaemonError(str(error.get("code", "unknown")), str(error.get("message", answer)))

    def _finish_stream(self) -> Bytes:
        """Takes what comes before the answer; the answer's payload."""
        pieces: dict[int, list[Bytes]] = {OUT: [], ERR: [], DATA: []}
        while True:
            kind, number, payload = self._receive()
            if number != self.number:
                raise ConnectionError(f"the daemon answered request {number} while {self.number} was asked")
            if kind == ANSWER:
                break
            if kind in (OUT, ERR):
                pieces[kind].append(memoryview(payload)[4:])
            elif kind == DATA:
                pieces[DATA].append(payload)
            elif kind == EVENT:
                self.events.append(json.loads(payload))
        self.out, self.err, self.data = (b"".join(pieces[kind]) for kind in (OUT, ERR, DATA))
        return payload

    def _receive(self) -> tuple[int, int, Bytes]:
        """The next message. A large one is received straight into its own memory."""
        buffer = self.buffer
        while len(buffer) < HEADER.size:
            buffer += self._some()
        size, kind, _zero, number = _unpack_from(buffer)
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
        # By hand: the encoder of JSON and its dictionary took a twentieth of a warm run after a pause.
        where = '"ephemeral":true' if session is None else f'"session":{_quote(session)}'
        more = "," + _dumps(fields)[1:-1] if fields else ""
        self._send(f'{{"op":"execute","code":{_quote(code)},{where}{more}}}'.encode())
        return self.finish()

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
