"""How a run ended, as the payload of RESULT."""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import Any

from glovebox_kernel.channel import REPLY_MAX_BYTES, json_pack
from glovebox_kernel.mime import bundle_shrink

# What most runs end with. Filled in, it is what json_pack would write, in a third of the time.
_PLAIN = (
    '{"id":%s,"status":"ok","exit_code":0,"execution_count":%d,"result":%s,"displays":%d,"error":null,"figures":[]}'
)


def outcome_pack_plain(run_id: str, count: int, text: str | None, displays: int) -> bytes:
    """A run that went well, and whose value is text or nothing."""
    result = "null" if text is None else f'{{"text/plain":{encode_basestring(text)}}}'
    return (_PLAIN % (encode_basestring(run_id), count, result, displays)).encode("utf-8", "replace")


def outcome_pack(outcome: dict[str, Any]) -> bytes:
    """Always something that can be sent: where the result cannot, an error takes its place."""
    try:
        payload = json_pack(outcome)
        if len(payload) > REPLY_MAX_BYTES and isinstance(outcome.get("result"), dict):
            payload = json_pack({**outcome, "result": bundle_shrink(outcome["result"])})
        if len(payload) > REPLY_MAX_BYTES:
            raise ValueError(f"the result has {len(payload)} bytes")
        return payload
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        lost = {"name": "KernelError", "value": str(error), "traceback": f"KernelError: no result: {error}\n"}
        return json_pack({**outcome, "status": "error", "exit_code": 1, "result": None, "error": lost})
