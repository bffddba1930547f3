"""A run whose output is known byte by byte, and that notes each execution: what comes of it when connections break."""

from __future__ import annotations

import contextlib
import json
import threading

from support.client import ERR, EVENT, OUT, Client

# Writes its lines slowly enough to be cut many times, and notes each execution.
LINES = 400
COUNTED = f"""
import sys, time
open('executed', 'a').write('x')
for i in range({LINES}):
    print(f'{{i:06d}} ' + 'y' * 500, flush=True)
    print(f'{{i:06d}}', file=sys.stderr, flush=True)
    time.sleep(0.004)
"""
STDOUT = "".join(f"{i:06d} " + "y" * 500 + "\n" for i in range(LINES)).encode()
STDERR = "".join(f"{i:06d}\n" for i in range(LINES)).encode()


class Reader(threading.Thread):
    """Runs COUNTED as a stream and keeps all that comes."""

    def __init__(self, client: Client, session: str) -> None:
        super().__init__(daemon=True)
        self.client, self.session = client, session
        self.out, self.err = b"", b""
        self.run_id = ""
        self.answer: dict = {}
        self.start()

    def run(self) -> None:
        number = self.client.begin("execute", session=self.session, code=COUNTED, stream=True)
        with contextlib.suppress(OSError):
            for kind, piece in self.client.messages(number):
                if kind == OUT:
                    self.out += piece[4:]
                elif kind == ERR:
                    self.err += piece[4:]
                elif kind == EVENT:
                    self.run_id = self.run_id or json.loads(piece).get("run_id", "")
                else:
                    self.answer = json.loads(piece)
                    return

    def whole(self) -> dict:
        self.join(120)
        assert not self.is_alive() and self.answer.get("ok"), self.answer
        assert (self.out, self.err) == (STDOUT, STDERR)
        return self.answer
