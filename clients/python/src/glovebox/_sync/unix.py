# Generated from _aio/unix.py by tools/generate_sync.py: change that one.
"""The daemon's UNIX socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .._frames import (
    ANSWER,
    DATA,
    DATA_MAX,
    END,
    ERR,
    EVENT,
    HEADER,
    OUT,
    REQUEST,
    REQUEST_MAX,
    answer_of,
    check_header,
    dumps,
    loads,
    pack,
)
from .._place import Target
from ..errors import ConnectionLostError, GloveboxError, LimitError
from . import io
from .transport import LOOKING, RETURN_S, Message, Pool, check_version, start, unavailable

RECEIVE_BYTES = 64 << 10
PIECES_MIN = 256 << 10  # of a file: a message of its own for less is not worth it


class Connection:
    """One connection, which serves one request at a time."""

    def __init__(self, stream: io.Stream) -> None:
        self.stream = stream
        self.buffer = b""
        self.number = 0
        self.is_usable = stream.is_usable
        self.close = stream.close

    def begin(self, op: str, fields: dict[str, Any]) -> None:
        """Sends a request. Code that is too long for it follows."""
        self.number = self.number % 0xFFFF + 1
        payload = dumps({"op": op, **fields}).encode()
        if len(payload) > REQUEST_MAX:
            self._begin_long(op, fields)
            return
        self._send(HEADER.pack(len(payload), REQUEST, 0, self.number) + payload)

    def _begin_long(self, op: str, fields: dict[str, Any]) -> None:
        code = fields.get("code")
        payload = dumps({"op": op, **fields, "code": None, "code_follows": True}).encode()
        if not isinstance(code, str) or len(payload) > REQUEST_MAX:
            raise LimitError("the request is larger than 1 MiB; put what is large into a file of the sandbox")
        self._send(pack(REQUEST, self.number, payload))
        content = code.encode()
        for at in range(0, len(content), DATA_MAX):
            self._send(pack(DATA, self.number, content[at : at + DATA_MAX]))
        self._send(pack(END, self.number))

    def send_data(self, data: bytes) -> None:
        for at in range(0, len(data), DATA_MAX):
            self._send(pack(DATA, self.number, data[at : at + DATA_MAX]))

    def send_end(self) -> None:
        self._send(pack(END, self.number))

    def _send(self, data: bytes) -> None:
        try:
            self.stream.send(data)
        except OSError as error:
            # The daemon may have refused and closed the connection while we were sending: its answer has the reason.
            if not isinstance(error, (BrokenPipeError, ConnectionResetError)):
                raise ConnectionLostError(_lost(error)) from error

    def receive(self) -> tuple[int, bytes]:
        """The next message: its type and payload."""
        buffer = self.buffer
        while len(buffer) < 8:
            buffer += self._some(RECEIVE_BYTES)
        size, kind, zero, number = HEADER.unpack_from(buffer)
        check_header(size, kind, zero)
        end = 8 + size
        if len(buffer) < end:
            buffer = self._rest(buffer, end)
        payload = buffer[8:end]
        self.buffer = buffer[end:]
        if number not in (self.number, 0):
            raise ConnectionLostError(f"the daemon answered request {number} while {self.number} was asked; try again")
        return kind, payload

    def _rest(self, buffer: bytes, end: int) -> bytes:
        pieces, have = [buffer], len(buffer)
        while have < end:
            piece = self._some(min(end - have, DATA_MAX) if end - have > RECEIVE_BYTES else RECEIVE_BYTES)
            pieces.append(piece)
            have += len(piece)
        return b"".join(pieces)

    def _some(self, size: int) -> bytes:
        try:
            piece = self.stream.receive(size)
        except OSError as error:
            raise ConnectionLostError(_lost(error)) from error
        if not piece:
            raise ConnectionLostError(_lost(None))
        return piece

    def answer(self) -> dict[str, Any]:
        while True:
            kind, payload = self.receive()
            if kind == ANSWER:
                return answer_of(payload)


def _lost(error: OSError | None) -> str:
    why = f" ({error.strerror or error})" if error else ""
    return f"the daemon closed the connection{why}; see `glovebox status`, then try again"


class UnixRun:
    """The messages of one run."""

    def __init__(self, transport: UnixTransport, connection: Connection) -> None:
        self._transport = transport
        self._connection: Connection | None = connection

    def message(self) -> Message:
        connection = self._connection
        if connection is None:
            raise ConnectionLostError("the stream is closed")
        try:
            while True:
                kind, payload = connection.receive()
                if kind == OUT or kind == ERR:
                    number = int.from_bytes(payload[:4], "little")
                    return "stdout" if kind == OUT else "stderr", number, False, payload[4:]
                if kind == ANSWER:
                    return "result", 0, True, self._finish(payload)
                if kind == EVENT:
                    event = loads(payload)
                    if event.get("event") == "start":
                        return "start", 0, True, event.get("run_id")
                    if event.get("event") == "display":
                        return "display", 0, True, event.get("data")
        except BaseException:
            self.close()
            raise

    def _finish(self, payload: bytes) -> dict[str, Any]:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.pool.give(connection)
        return answer_of(payload)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()


class UnixTransport:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.pool: Pool[Connection] = Pool()
        self._was_there = False

    def ask(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._ask_once(op, fields)
        except ConnectionLostError:
            if op not in LOOKING:
                raise
        return self._ask_once(op, fields)

    def _ask_once(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        connection = self._take()
        try:
            connection.begin(op, fields)
            kind, payload = connection.receive()
            while kind != ANSWER:
                kind, payload = connection.receive()
        except BaseException:
            connection.close()
            raise
        self.pool.give(connection)
        return answer_of(payload)

    def run(self, op: str, fields: dict[str, Any]) -> UnixRun:
        connection = self._take()
        try:
            connection.begin(op, {**fields, "stream": True})
        except BaseException:
            connection.close()
            raise
        return UnixRun(self, connection)

    def read_file(self, session: str, path: str, offset: int, size: int | None) -> Iterator[bytes]:
        fields: dict[str, Any] = {"session": session, "path": path, "offset": offset}
        if size is not None:
            fields["size"] = size
        connection = self._take()
        done = False
        try:
            connection.begin("file.read", fields)
            while True:
                kind, payload = connection.receive()
                if kind == DATA:
                    yield payload
                elif kind == ANSWER:
                    break
            done = True
        finally:
            if done:
                self.pool.give(connection)
            else:
                connection.close()
        answer_of(payload)

    def write_file(self, session: str, path: str, pieces: Iterator[bytes], sync: bool) -> int:
        connection = self._take()
        try:
            connection.begin("file.write", {"session": session, "path": path, "sync": sync})
            held = b""
            for piece in pieces:
                held = held + piece if held else bytes(piece)
                if len(held) >= PIECES_MIN:
                    connection.send_data(held)
                    held = b""
            connection.send_data(held)
            connection.send_end()
            answer = connection.answer()
        except GloveboxError:
            connection.close()  # some of the file may be under way
            raise
        except BaseException:
            connection.close()
            raise
        self.pool.give(connection)
        return int(answer.get("size", 0))

    def check(self) -> dict[str, Any]:
        return self.ask("status", {})

    def close(self) -> None:
        self.pool.close()

    def __del__(self) -> None:
        self.close()

    def _take(self) -> Connection:
        return self.pool.take() or self._connect()

    def _connect(self) -> Connection:
        """A daemon that was there is waited for: it may be on its way back. One that never was is started."""
        deadline = time.monotonic() + RETURN_S
        pause = 0.005
        while True:
            try:
                stream = io.connect_unix(self.target.socket or "")
                break
            except (FileNotFoundError, ConnectionRefusedError) as error:
                waited = RETURN_S - (deadline - time.monotonic())
                if waited >= RETURN_S or not (self._was_there or self.target.may_start):
                    raise unavailable(self.target, error) from error
                if self.target.may_start and (not self._was_there or waited > 1):
                    start(self.target)
                io.sleep(pause)
                pause = min(pause * 2, 0.1)
            except OSError as error:
                raise unavailable(self.target, error) from error
        connection = Connection(stream)
        try:
            connection.begin("ping", {})
            answer = connection.answer()
            check_version(str(answer.get("version", "")), self.target.name)
        except BaseException:
            connection.close()
            raise
        self._was_there = True
        return connection
