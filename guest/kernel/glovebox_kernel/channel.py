"""The kernel's end of the stream to its host: frames in, frames out.

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
| 128  | READY   | to host   | protocol, pid, python: sent once, before anything else                        |
| 129  | RESULT  | to host   | the end of an EXECUTE: id, status, exit_code, result, displays, error, figures |
| 130  | DISPLAY | to host   | id, data (MIME bundle): while a run is on                                     |
| 131  | PONG    | to host   | raw                                                                           |
| 132  | ANSWER  | to host   | the end of TRIM, SLEEP, WAKE, CONTEXT, PACKAGES and of what is not understood |

docs/KERNEL-PROTOCOL.md gives every field.
"""

from __future__ import annotations

import json
import os
import select
import struct
from typing import Any, Callable, Protocol

EXECUTE, PING, TRIM, SLEEP, WAKE, CONTEXT, PACKAGES = 1, 2, 3, 4, 5, 6, 7
READY, RESULT, DISPLAY, PONG, ANSWER = 128, 129, 130, 131, 132

PROTOCOL = 1
FRAME_MAX_BYTES = 32 << 20
_READ_BYTES = 64 << 10
_FIRST_READ_BYTES = 4 << 10  # most frames are small, and memory for more would be asked for each time
_HEADER = struct.Struct("<IB3s")
_ZERO = b"\0\0\0"


class ChannelError(Exception):
    """The stream is out of step or broken: nothing more can be read from it."""


# Built once: json.dumps with options makes a new encoder per call. Not ASCII: DataFrames and text get shorter.
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)
_decoder = json.JSONDecoder()


def _make_encode() -> Callable[[Any], str]:
    """`_encoder.encode` makes its C part anew for every call: made once where the C part is there to be had."""
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


_encode = _make_encode()
json_scan = _decoder.scan_once


def json_pack(value: dict[str, Any]) -> bytes:
    """JSON as bytes. Lone surrogates, which UTF-8 cannot hold, become question marks."""
    return _encode(value).encode("utf-8", "replace")


def json_unpack(payload: bytes) -> dict[str, Any]:
    text = payload.decode("utf-8")
    try:
        value, end = json_scan(text, 0)
    except StopIteration:
        end = -1
    if end != len(text):  # space around it, or an error that the decoder knows how to tell
        value = _decoder.decode(text)
    if not isinstance(value, dict):
        raise ValueError("the payload is not a JSON object")
    return value


def frame_pack(kind: int, payload: bytes) -> bytes:
    return _HEADER.pack(len(payload), kind, _ZERO) + payload


class Turns(Protocol):
    """Answers what it can by itself: turns.py."""

    def serve(self, fd: int) -> bytes: ...


class Channel:
    """Owns the descriptor. Blocking, one reader and one writer: the kernel's only thread."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        os.set_blocking(fd, True)
        self.fd = fd
        self._pending = b""
        # Waiting in read() would end, for nothing, whenever the host has taken what was sent before: two more switches
        # between processes in every run. Waiting in poll() does not.
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        self._wait = poll.poll

    def practise(self) -> None:
        """What receive() does first, without waiting."""
        self._wait(0)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def receive(self, turns: Turns | None = None) -> tuple[int, bytes] | None:
        """The next frame, or None when the host closed its end between two frames. What `turns` can answer is answered
        meanwhile."""
        pending = self._pending
        if not pending:
            pending = turns.serve(self.fd) if turns else self._wait_and_read()
            if not pending:
                return None
        if len(pending) < _HEADER.size:
            pending = self._fill(pending, _HEADER.size)
        length, kind, zero = _HEADER.unpack_from(pending)
        if length > FRAME_MAX_BYTES or zero != _ZERO:
            raise ChannelError(f"frame of type {kind} with {length} bytes: the stream is out of step")
        end = _HEADER.size + length
        if len(pending) < end:
            pending = self._fill(pending, end)
        self._pending = pending[end:]
        return kind, pending[_HEADER.size : end]

    def _wait_and_read(self) -> bytes:
        self._wait()
        return os.read(self.fd, _FIRST_READ_BYTES)

    def _fill(self, start: bytes, size: int) -> bytes:
        buffer = bytearray(start)
        while len(buffer) < size:
            more = os.read(self.fd, max(_READ_BYTES, min(size - len(buffer), 1 << 20)))
            if not more:
                raise ChannelError("the host closed the stream in the middle of a frame")
            buffer += more
        return bytes(buffer)

    def send(self, kind: int, payload: bytes) -> None:
        if len(payload) > FRAME_MAX_BYTES:
            raise ChannelError(f"frame of type {kind} with {len(payload)} bytes: more than {FRAME_MAX_BYTES}")
        data: bytes | memoryview = _HEADER.pack(len(payload), kind, _ZERO) + payload
        written = os.write(self.fd, data)
        while written < len(data):
            data = memoryview(data)[written:]
            written = os.write(self.fd, data)
