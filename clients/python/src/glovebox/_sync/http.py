# Generated from _aio/http.py by tools/generate_sync.py: change that one.
"""The REST service, over HTTP or HTTPS. A small client of HTTP/1.1 with connections that stay open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from .._frames import dumps, loads
from .._place import Target
from .._routes import problem_of, request_of, sandbox_path
from .._version import VERSION
from ..errors import ConnectionLostError, ProtocolError
from . import io
from .transport import LOOKING, RETURN_S, Message, Pool, check_version, unavailable

RECEIVE_BYTES = 64 << 10
HEAD_MAX = 64 << 10
LINE_MAX = 64 << 20
SEND_MIN = 256 << 10


class HttpConnection:
    """One connection: a request, its answer, the next request."""

    def __init__(self, stream: io.Stream, host: str, api_key: str | None) -> None:
        self.stream = stream
        self.buffer = b""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_kept = True
        self._left: int | None = 0  # of the body, or of its chunk; None: until the connection ends
        self._is_chunked = False
        self._chunks = 0  # how many of them have begun
        self._fixed = f"Host: {host}\r\nUser-Agent: glovebox-sandbox/{VERSION}\r\n"
        if api_key:
            self._fixed += f"Authorization: Bearer {api_key}\r\n"
        self.is_usable = stream.is_usable
        self.close = stream.close

    def send_head(self, method: str, path: str, headers: str, body: bytes = b"") -> None:
        head = f"{method} {path} HTTP/1.1\r\n{self._fixed}{headers}\r\n"
        self.send(head.encode("latin-1") + body)

    def send(self, data: bytes) -> None:
        try:
            self.stream.send(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # it may have refused and closed the connection: its answer has the reason
        except OSError as error:
            raise ConnectionLostError(_lost(error)) from error

    def receive_head(self) -> None:
        while True:
            while b"\r\n\r\n" not in self.buffer:
                if len(self.buffer) > HEAD_MAX:
                    raise ProtocolError("the service's answer has no end of its head; is this the URL of Glovebox?")
                self.buffer += self._some()
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            words = lines[0].split(" ", 2)
            if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
                raise ProtocolError("the server does not answer in HTTP; is this the URL of Glovebox?")
            self.status = int(words[1])
            pairs = [line.partition(":") for line in lines[1:]]
            self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            if self.status >= 200:
                break
        self.is_kept = self.headers.get("connection", "").lower() != "close" and words[0] != "HTTP/1.0"
        self._is_chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if self._is_chunked or self.status in (204, 304):
            self._left = 0
        elif length is not None and length.isdigit():
            self._left = int(length)
        else:
            self._left, self.is_kept = None, False
        self._chunks = 0

    def some_body(self) -> bytes:
        """Some more of the body; b"" at its end. A chunk's end is looked for when the next one is wanted."""
        if self._is_chunked and self._left == 0:
            if self._chunks:
                self._line()
            self._left = self._chunk_size()
            self._chunks += 1
            self._is_chunked = self._left > 0
        if self._left == 0:
            return b""
        if not self.buffer:
            try:
                self.buffer = self._some()
            except ConnectionLostError:
                if self._left is None:
                    self._left = 0
                    return b""
                raise
        if self._left is None:
            piece, self.buffer = self.buffer, b""
            return piece
        piece, self.buffer = self.buffer[: self._left], self.buffer[self._left :]
        self._left -= len(piece)
        return piece

    def whole_body(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            piece = self.some_body()
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)

    def _chunk_size(self) -> int:
        line = self._line()
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError as error:
            raise ProtocolError("the service's answer is damaged") from error
        if size == 0:
            while self._line():
                pass
        return size

    def _line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self.buffer += self._some()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def _some(self) -> bytes:
        try:
            piece = self.stream.receive(RECEIVE_BYTES)
        except OSError as error:
            raise ConnectionLostError(_lost(error)) from error
        if not piece:
            raise ConnectionLostError(_lost(None))
        return piece


def _lost(error: OSError | None) -> str:
    why = f" ({error.strerror or error})" if error else ""
    return f"the service closed the connection{why}; try again"


class HttpRun:
    """The events of one run, one JSON object to a line."""

    def __init__(self, transport: HttpTransport, connection: HttpConnection, number: int) -> None:
        self._transport = transport
        self._connection: HttpConnection | None = connection
        self._text = b""
        self._number = number  # of the last event that came whole

    def message(self) -> Message:
        try:
            while True:
                event = self._event()
                kind = event.get("event")
                if kind in ("stdout", "stderr"):
                    number = event.get("number")
                    if number is None:
                        return kind, self._number + 1, False, event.get("text", "")
                    self._number = int(number)
                    return kind, self._number, True, event.get("text", "")
                if kind == "start":
                    return "start", 0, True, event.get("run_id")
                if kind == "display":
                    return "display", 0, True, event.get("data")
                if kind == "result":
                    self._finish()
                    return "result", 0, True, event.get("result") or {}
                if kind == "error":
                    self._finish()
                    raise problem_of(500, event.get("problem"))
        except BaseException:
            self.close()
            raise

    def _event(self) -> dict[str, Any]:
        connection = self._connection
        if connection is None:
            raise ConnectionLostError("the stream is closed")
        pieces = [self._text]
        while b"\n" not in pieces[-1]:
            piece = connection.some_body()
            if not piece:
                raise ConnectionLostError("the stream was broken off before its end; try again")
            pieces.append(piece)
        line, _, self._text = b"".join(pieces).partition(b"\n")
        if not line.strip():
            return {}
        try:
            event = loads(line)
        except ValueError as error:
            raise ProtocolError(f"an event of the service is not JSON: {error}") from error
        return event if isinstance(event, dict) else {}

    def _finish(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.finish(connection)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()


class HttpTransport:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.pool: Pool[HttpConnection] = Pool()
        parts = urlsplit(target.url or "")
        self._tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._name = parts.netloc.rpartition("@")[2]
        self._base = parts.path
        self._was_there = False

    def ask(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._ask_once(op, fields)
        except ConnectionLostError:
            if op not in LOOKING:
                raise
        return self._ask_once(op, fields)

    def _ask_once(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        request = request_of(op, fields)
        body = b"" if request.body is None else dumps(request.body).encode()
        kind = "" if request.body is None else "Content-Type: application/json\r\n"
        length = f"Content-Length: {len(body)}\r\n" if body or request.method != "GET" else ""
        connection = self._take()
        try:
            connection.send_head(request.method, self._base + request.path, kind + length, body)
            connection.receive_head()
            status, text = connection.status, connection.whole_body()
        except BaseException:
            connection.close()
            raise
        self._give(connection)
        answer = _json_of(text)
        if status >= 300 or not isinstance(answer, dict):
            raise problem_of(status, answer)
        return request.shape(status, answer) if request.shape else answer

    def run(self, op: str, fields: dict[str, Any]) -> HttpRun:
        request = request_of(op, fields)
        body = b"" if request.body is None else dumps(request.body).encode()
        headers = "Accept: application/x-ndjson\r\n"
        if request.body is not None:
            headers += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        connection = self._take()
        try:
            connection.send_head(request.method, self._base + request.path, headers, body)
            connection.receive_head()
            if connection.status >= 300:
                raise problem_of(connection.status, _json_of(connection.whole_body()))
        except BaseException:
            connection.close()
            raise
        return HttpRun(self, connection, max(0, int(fields.get("from", 1)) - 1))

    def read_file(self, session: str, path: str, offset: int, size: int | None) -> Iterator[bytes]:
        headers = ""
        if offset or size is not None:
            last = "" if size is None else str(offset + max(size, 1) - 1)
            headers = f"Range: bytes={offset}-{last}\r\n"
        connection = self._take()
        done = False
        try:
            connection.send_head("GET", self._base + sandbox_path(session, "/file", path=path), headers)
            connection.receive_head()
            status = connection.status
            if status >= 300:
                body = connection.whole_body()
                done = True
                if status == 416:  # nothing there yet: an empty part
                    return
                raise problem_of(status, _json_of(body))
            if "content-disposition" not in connection.headers:
                raise problem_of(400, {"code": "usage", "detail": f"{path} is a directory: list it, or download it"})
            left = size
            while True:
                piece = connection.some_body()
                if not piece:
                    break
                if left is not None:
                    piece, left = piece[:left], max(0, left - len(piece))
                if piece:
                    yield piece
            done = True
        finally:
            if done:
                self._give(connection)
            else:
                connection.close()

    def write_file(self, session: str, path: str, pieces: Iterator[bytes], sync: bool) -> int:
        connection = self._take()
        try:
            where = self._base + sandbox_path(session, "/file", path=path, create="false")
            headers = "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n"
            connection.send_head("PUT", where, headers)
            held = b""
            for piece in pieces:
                held = held + piece if held else bytes(piece)
                if len(held) >= SEND_MIN:
                    connection.send(b"%x\r\n%b\r\n" % (len(held), held))
                    held = b""
            if held:
                connection.send(b"%x\r\n%b\r\n" % (len(held), held))
            connection.send(b"0\r\n\r\n")
            connection.receive_head()
            status, answer = connection.status, _json_of(connection.whole_body())
        except BaseException:
            connection.close()
            raise
        self._give(connection)
        if status >= 300:
            raise problem_of(status, answer)
        return int(answer.get("size", 0)) if isinstance(answer, dict) else 0

    def check(self) -> dict[str, Any]:
        return self.ask("status", {})

    def close(self) -> None:
        self.pool.close()

    def __del__(self) -> None:
        self.close()

    def finish(self, connection: HttpConnection) -> None:
        """The rest of an answer whose last event has come."""
        try:
            connection.whole_body()
        except ConnectionLostError:
            connection.close()
            return
        except BaseException:
            connection.close()
            raise
        self._give(connection)

    def _give(self, connection: HttpConnection) -> None:
        if connection.is_kept:
            self.pool.give(connection)
        else:
            connection.close()

    def _take(self) -> HttpConnection:
        return self.pool.take() or self._connect()

    def _connect(self) -> HttpConnection:
        deadline = time.monotonic() + (RETURN_S if self._was_there else 0)
        pause = 0.02
        while True:
            try:
                stream = io.connect_tcp(self._host, self._port, self._tls)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise unavailable(self.target, error) from error
                io.sleep(pause)
                pause = min(pause * 2, 0.5)
        connection = HttpConnection(stream, self._name, self.target.api_key)
        if not self._was_there:
            self._check_version(connection)
            self._was_there = True
        return connection

    def _check_version(self, connection: HttpConnection) -> None:
        try:
            connection.send_head("GET", self._base + "/health", "")
            connection.receive_head()
            answer = _json_of(connection.whole_body())
            if connection.status >= 300 or not isinstance(answer, dict):
                raise problem_of(connection.status, answer)
            check_version(str(answer.get("version", "")), self.target.name)
        except BaseException:
            connection.close()
            raise


def _json_of(text: bytes) -> Any:
    try:
        return loads(text) if text else {}
    except ValueError:
        return None
