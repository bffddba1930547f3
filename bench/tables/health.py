"""Requests per second: /health of the service beside a static file of nginx, by the same tool."""

from __future__ import annotations

import re
import shutil
import subprocess

from context import Bench
from measure import Bar, Row, Skipped, Table
from peers import nginx

NAME = "health"
TITLE = "`GET /health` per second, 16 connections"


def _rate(port: int, seconds: int) -> float:
    if not shutil.which("wrk"):
        raise Skipped("wrk is not installed")
    done = subprocess.run(
        ["wrk", "-t1", "-c16", f"-d{seconds}s", f"http://127.0.0.1:{port}/health"],
        capture_output=True,
        text=True,
        check=True,
    )
    match = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if not match or "Non-2xx" in done.stdout:
        raise RuntimeError(done.stdout)
    return float(match.group(1))


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE, unit="requests/s", higher_is_better=True)
    table.bars = [Bar("glovebox", "faster", 0.5, "nginx, static file")]
    ours, peer = Row("glovebox", "ours"), Row("nginx, static file", "peer")
    port = bench.service().api_port()
    try:
        other = nginx.server(bench).port
    except Skipped as missing:
        other, peer.skipped = 0, str(missing)
    for _ in range(bench.rounds(5, 2)):
        ours.values.append(_rate(port, 2))
        if other:
            peer.values.append(_rate(other, 2))
    table.rows += [ours, peer]
    return table
