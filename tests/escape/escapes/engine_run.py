#!/usr/bin/env python3
"""engine_run.py SOCKET ORDER: runs a script in a box that a daemon's engine makes, as `glovebox run` does natively.

ORDER is JSON: the members of the request `execute`, and "script", the path of the code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[3] / "bench")]

from support.client import ANSWER, ERR, OUT, Client  # noqa: E402


def main() -> int:
    order = json.loads(sys.argv[2])
    code = Path(order.pop("script")).read_text()
    client = Client(sys.argv[1], 600)
    number = client.begin("execute", ephemeral=True, code=code, stream=True, **order)
    streams = {OUT: sys.stdout.buffer, ERR: sys.stderr.buffer}
    for kind, payload in client.messages(number):
        if kind in streams:
            streams[kind].write(payload[4:])
            streams[kind].flush()
        elif kind == ANSWER:
            done = json.loads(payload)
            if not done.get("ok"):
                print(done, file=sys.stderr)
                return 125
            if done["status"] in ("oom", "timeout", "killed"):
                print(f"glovebox: {done['status']}: {done['error']}", file=sys.stderr)
            return {"oom": 137, "timeout": 124, "killed": 137}.get(done["status"], done["exit_code"] or 0)
    return 125


if __name__ == "__main__":
    sys.exit(main())
