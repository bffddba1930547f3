"""The kernel's ends of two pipes, from its host and to it: frames in, frames out.

A frame is `u32 length` (little endian, of the payload), `u8 type`, three zero bytes, then the payload. Payloads are
UTF-8 JSON objects, except those of PING and PONG, which are raw bytes that come back as they went.

| type | name    | direction | payload                                                                       |
|------|---------|-----------|-------------------------------------------------------------------------------|
| 1    | EXECUTE | to kernel | id, code, context?, store_history?; or id, argv, cwd?, env?                   |
| 2    | PING    | to kernel | raw                                                                           |
| 3    | TRIM    | to kernel | id, directory                                                                 |
| 4    | SLEEP   | to kernel | id, path, exit?                                                               |
| 5    | WAKE    | to kernel | id, path                                                                      |
| 6    | CONTEXT | to kernel | id, op ("new", "drop", "list"), name                                          |
| 7    | PACKAGES | to kernel | id, names, replaced                                                          |
| 8    | PIECE   | to kernel | raw: a part of a frame that is too large to be written at once                |
| 9    | PROGRAM | to kernel | texts, see program.py. What follows in the pipe is the program's standard input |
| 128  | READY   | to host   | protocol, pid, python: sent once, before anything else                        |
| 129  | RESULT  | to host   | the end of an EXECUTE: id, status, exit_code, result, displays, error, figures |
| 130  | DISPLAY | to host   | id, data (MIME bundle): while a run is on                                     |
| 131  | PONG    | to host   | raw                                                                           |
| 132  | ANSWER  | to host   | the end of TRIM, SLEEP, WAKE, CONTEXT, PACKAGES and of what is not understood |
| 133  | REPEATED | to host  | raw: the id of a request that was answered before                             |
| 134  | STARTED | to host   | a PROGRAM was read: the pipe for requests is its standard input from here on  |
| 135  | ENDED   | to host   | the end of a PROGRAM: "exit STATUS", or "failed ERRNO" of its exec()          |

docs/KERNEL-PROTOCOL.md gives every field.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import struct
from typing import Any, Callable

EXECUTE, PING, TRIM, SLEEP, WAKE, CONTEXT, PACKAGES, PIECE, PROGRAM = 1, 2, 3, 4, 5, 6, 7, 8, 9
READY, RESULT, DISPLAY, PONG, ANSWER, REPEATED, STARTED, ENDED = 128, 129, 130, 131, 132, 133, 134, 135

PROTOCOL = 2
REQUEST_MAX_BYTES = 32 << 20
REPLY_MAX_BYTES = 3 << 20
_READ_BYTES = 64 << 10
_FIRST_READ_BYTES = 4 << 10  # most frames are small; a larger buffer would be allocated each time
IDLE_AFTER_MS = 1000
_HIGH_FDS = 700, 200, 60, 3  # as high as the limit of open files permits
_HEADER = struct.Struct("<IB3s")
_PIECE = struct.Struct("<III")  # size of the whole payload, offset, type
_ZERO = b"\0\0\0"


class ChannelError(Exception):
    """The stream is malformed or broken: no more frames can be read from it."""


# Built once: json.dumps with options makes a new encoder per call. Not ASCII: DataFrames and text get shorter.
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)
_decoder = json.JSONDecoder()


def _make_encode() -> Callable[[Any], str]:
    """`_encoder.encode` makes a new C encoder for every call. This makes one for all, where the C part is available."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    try:
        parts = make(
            None, _encoder.default, json.encoder.encode_basestring, None, ":", ",", _encoder.sort_keys,
            _encoder.skipkeys, _encoder.allow_nan,
        )  # fmt: skip
        join = "".join
        join(parts({"x": [1.5, "y", None]}, 0))
    except Exception:  # another Python, another signature
        return _encoder.encode
    return lambda value: join(parts(value, 0))


json_text = _make_encode()
_scan = _decoder.scan_once


def json_pack(value: dict[str, Any]) -> bytes:
    """JSON as bytes. Lone surrogates, which UTF-8 cannot hold, become question marks."""
    return json_text(value).encode("utf-8", "replace")


def json_unpack(payload: bytes) -> dict[str, Any]:
    text = payload.decode("utf-8")
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    if end != len(text):  # space around it, or an error for which the decoder has a message
        value = _decoder.decode(text)
    if not isinstance(value, dict):
        raise ValueError("the payload is not a JSON object")
    return value


def frame_pack(kind: int, payload: bytes) -> bytes:
    return _HEADER.pack(len(payload), kind, _ZERO) + payload


def _copy_high(fd: int) -> int:
    for least in _HIGH_FDS[:-1]:
        with contextlib.suppress(OSError):  # EINVAL: that is beyond the limit
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FDS[-1])


class Channel:
    """Owns the descriptors. Blocking, one reader and one writer: the kernel's only thread."""

    def __init__(self, requests_fd: int, replies_fd: int) -> None:
        for fd in (requests_fd, replies_fd):
            os.set_inheritable(fd, False)
            os.set_blocking(fd, True)
        self.requests_fd = requests_fd
        self.fd = replies_fd
        self._pending = b""
        self._pieces = bytearray()
        self._identity = (0, 0)
        poll = select.poll()
        poll.register(requests_fd, select.POLLIN)
        self._wait = poll.poll
        self._has_received = False
        # Called once in each pause of IDLE_AFTER_MS between two requests. Not before the first request: a new kernel
        # keeps the pages that its first run needs.
        self.on_idle: Callable[[], None] | None = None

    def poll(self) -> None:
        """True if there is a request. Called in a nursery, too, so that the code of receive() has run before the fork."""
        self._wait(0)

    def become_input(self) -> None:
        """The process becomes a program: the pipe of requests becomes descriptor 0, and low numbers are free for it."""
        if self._pending:
            raise ChannelError("something follows PROGRAM: the stream is out of step")
        self.send(STARTED, b"")
        os.dup2(self.requests_fd, 0)
        fd = _copy_high(self.fd)
        self.close()
        self.fd = fd  # no requests any more: close() closes this one alone
        status = os.fstat(fd)
        self._identity = status.st_dev, status.st_ino

    def tell_end(self, text: bytes) -> None:
        """Sends ENDED, unless the program has closed the channel or reused its number."""
        with contextlib.suppress(OSError):
            status = os.fstat(self.fd)
            if (status.st_dev, status.st_ino) == self._identity:
                self.send(ENDED, text)

    def close(self) -> None:
        if self.fd >= 0:
            if self.requests_fd >= 0:
                os.close(self.requests_fd)
            os.close(self.fd)
            self.requests_fd = self.fd = -1

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame, or None when the host closed its end between two frames."""
        while (frame := self._receive()) is not None:
            if frame[0] == PIECE:
                frame = self._join(frame[1])
            elif self._pieces:
                self._pieces = bytearray()  # their host has been replaced
            if frame is not None:
                return frame
        return None

    def _join(self, piece: bytes) -> tuple[int, bytes] | None:
        """Joins a frame that came in pieces. A new host begins with the first piece again."""
        if len(piece) < _PIECE.size:
            raise ChannelError("a piece of a frame without its head: the stream is out of step")
        whole, offset, kind = _PIECE.unpack_from(piece)
        if offset == 0:
            self._pieces = bytearray()
        if whole > REQUEST_MAX_BYTES or offset != len(self._pieces) or offset + len(piece) - _PIECE.size > whole:
            raise ChannelError(f"a piece at {offset} of {whole} bytes: the stream is out of step")
        self._pieces += memoryview(piece)[_PIECE.size :]
        if len(self._pieces) < whole:
            return None
        payload = bytes(self._pieces)
        self._pieces = bytearray()
        return kind, payload

    def _receive(self) -> tuple[int, bytes] | None:
        pending = self._pending
        if not pending:
            self._wait_for_request()
            pending = os.read(self.requests_fd, _FIRST_READ_BYTES)
            if not pending:
                return None
        if len(pending) < _HEADER.size:
            pending = self._fill(pending, _HEADER.size)
        length, kind, zero = _HEADER.unpack_from(pending)
        if length > REQUEST_MAX_BYTES or zero != _ZERO:
            raise ChannelError(f"frame of type {kind} with {length} bytes: the stream is out of step")
        end = _HEADER.size + length
        if len(pending) < end:
            pending = self._fill(pending, end)
        self._pending = pending[end:]
        return kind, pending[_HEADER.size : end]

    def _wait_for_request(self) -> None:
        timeout_ms = IDLE_AFTER_MS if self._has_received and self.on_idle else None
        self._has_received = True
        if not self._wait(timeout_ms) and self.on_idle:
            self.on_idle()
            self._wait()

    def _fill(self, start: bytes, size: int) -> bytes:
        buffer = bytearray(start)
        while len(buffer) < size:
            more = os.read(self.requests_fd, max(_READ_BYTES, min(size - len(buffer), 1 << 20)))
            if not more:
                raise ChannelError("the host closed the stream in the middle of a frame")
            buffer += more
        return bytes(buffer)

    def send(self, kind: int, payload: bytes) -> None:
        if len(payload) > REPLY_MAX_BYTES:
            raise ChannelError(f"frame of type {kind} with {len(payload)} bytes: more than {REPLY_MAX_BYTES}")
        data: bytes | memoryview = _HEADER.pack(len(payload), kind, _ZERO) + payload
        written = os.write(self.fd, data)
        while written < len(data):
            data = memoryview(data)[written:]
            written = os.write(self.fd, data)
