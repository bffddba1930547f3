"""Many sandboxes and many streams at once: the daemon's memory stays flat."""

from __future__ import annotations

import json
import time

from context import API_KEY, Bench
from http_client import HttpClient
from measure import Bar, Table

NAME = "crowd"
TITLE = "1,000 sandboxes and 200 streams at once: memory of the daemon"

TICK = "import time\nfor i in range(20):\n    print(i, flush=True)\n    time.sleep(0.1)\n"


def _stream(port: int, name: str) -> HttpClient:
    client = HttpClient(port, API_KEY)
    body = json.dumps({"code": TICK, "stream": True}).encode()
    client.send("POST", f"/sandbox/{name}/execute", body, "Content-Type: application/json\r\n")
    return client


def _drain(client: HttpClient) -> bytes:
    seen = bytes(client.buffer)
    while b"\r\n0\r\n\r\n" not in seen[-64:]:
        piece = client.socket.recv(65536)
        if not piece:
            raise ConnectionError("a stream broke off")
        seen += piece
    client.close()
    return seen


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE, unit="KB")
    sandboxes, streams = (100, 40) if bench.quick else (1000, 200)
    daemon = bench.service()
    port = daemon.api_port()
    client = HttpClient(port, API_KEY)
    before = daemon.memory_bytes()
    for number in range(sandboxes):
        client.ask("POST", f"/sandbox/crowd{number}/create")
    created = daemon.memory_bytes()
    table.add(f"each of {sandboxes} sandboxes", "ours", [(created - before) / sandboxes / 1000])
    for number in range(streams):
        client.ask("POST", f"/sandbox/crowd{number}/execute", code="1+1")
    running = daemon.memory_bytes()
    started = time.perf_counter()
    clients = [_stream(port, f"crowd{number}") for number in range(streams)]
    for one in clients:
        text = _drain(one)
        if text.count(b"event: result") != 1 or text.count(b"event: stdout") < 20:
            raise RuntimeError(f"a stream was not whole: {text[-300:]!r}")
    after = daemon.memory_bytes()
    table.add(f"each of {streams} streams, once they are over", "ours", [max(0, after - running) / streams / 1000])
    table.notes.append(f"{streams} streams of 2 s took {time.perf_counter() - started:.1f} s together.")
    table.bars = [
        Bar(f"each of {sandboxes} sandboxes", "at_most", 20),
        Bar(f"each of {streams} streams, once they are over", "at_most", 20),
    ]
    for number in range(sandboxes):
        client.ask("DELETE", f"/sandbox/crowd{number}/destroy")
    client.close()
    return table
