"""Messages on the daemon's socket, as docs/PROTOCOL.md describes them."""

from __future__ import annotations

import json
import struct
from typing import Any

from .errors import GloveboxError, ProtocolError, error_of

REQUEST, DATA, END, OUT, ERR, EVENT, ANSWER = range(1, 8)
HEADER = struct.Struct("<IBBH")
DATA_MAX = 1 << 20
REQUEST_MAX = 1 << 20
MESSAGE_MAX = 64 << 20  # more than the daemon ever sends: beyond it, what answers is no daemon

dumps = json.JSONEncoder(separators=(",", ":")).encode
loads = json.loads


def pack(kind: int, number: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), kind, 0, number) + payload


def check_header(size: int, kind: int, zero: int) -> None:
    if zero != 0 or not REQUEST < kind <= ANSWER or size > MESSAGE_MAX:
        raise ProtocolError("the program at this socket is not a Glovebox daemon: its answer is malformed")


def answer_of(payload: bytes | bytearray) -> dict[str, Any]:
    """The answer, or the error that it is, raised."""
    try:
        answer = loads(payload)
    except ValueError as error:
        raise ProtocolError(f"the daemon's answer is not JSON: {error}") from error
    if answer.get("ok"):
        return answer  # type: ignore[no-any-return]
    raise refusal_of(answer)


def refusal_of(answer: dict[str, Any]) -> GloveboxError:
    error = answer.get("error") or {}
    return error_of(str(error.get("code", "unknown")), str(error.get("message", answer)))
