"""How a run ended, as the payload of RESULT."""

from __future__ import annotations

from typing import Any

from glovebox_kernel.channel import REPLY_MAX_BYTES, json_pack
from glovebox_kernel.mime import bundle_shrink


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
