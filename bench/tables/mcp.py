"""`tools/call` of `1+1`, as an agent's client sends it, on stdio and over HTTP: beside the REST API, and beside a
server on the official SDK that calls ipykernel."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from context import API_KEY, REPOSITORY, Bench
from http_client import HttpClient
from measure import Bar, Contender, Lazy, Skipped, Table, take_turns
from tables.rest import _http
from tables.warm import back_to_back, pause

NAME = "mcp"
TITLE = "`1+1` over MCP: `tools/call`, on stdio and over HTTP"
CALL = {"name": "run_python", "arguments": {"code": "1+1"}}


class Stdio:
    """A server that was started as a client starts it. Lines are written and read by the same code for all."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, bufsize=0
        )
        self.number = 0
        self.buffer = b""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.ask("initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, object]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    def ask(self, method: str, params: dict[str, object]) -> dict[str, object]:
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        assert self.process.stdout
        while b"\n" not in self.buffer:
            piece = self.process.stdout.read(65536)
            if not piece:
                raise RuntimeError(f"the server {self.process.args} has ended")
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)


def _check(answer: dict) -> None:
    if answer["result"]["content"][0]["text"] != "2":
        raise RuntimeError(str(answer))


def _stdio(bench: Bench) -> Callable[[], None]:
    command = [str(bench.glovebox), "mcp", "--socket", bench.service().socket]
    server = bench.share("mcp stdio", lambda: Stdio(command, bench.environment))
    return lambda: _check(server.ask("tools/call", CALL))


def _http_mcp(bench: Bench) -> Callable[[], None]:
    client = HttpClient(bench.service().api_port(), API_KEY)

    def ask() -> dict:
        return client.ask("POST", "/mcp", jsonrpc="2.0", id=1, method="tools/call", params=CALL)

    ask()  # after another bench the sandbox is there, and says once that its variables are not
    return lambda: _check(ask())


def _sdk(bench: Bench) -> Callable[[], None]:
    if importlib.util.find_spec("mcp") is None:
        raise Skipped("the official SDK is not installed: tools/setup.sh bench")
    command = [sys.executable, str(Path(REPOSITORY) / "bench/peers/mcp_server.py")]
    server = bench.share("mcp sdk", lambda: Stdio(command))
    return lambda: _check(server.ask("tools/call", CALL))


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    for label in ("after 5 ms", "back to back"):
        table.bars.append(Bar(f"MCP, HTTP, {label}", "within", 1.5, f"REST, {label}"))
        table.bars.append(Bar(f"MCP, stdio, {label}", "within", 1.5, f"REST, {label}"))
    who = [
        ("MCP, HTTP", "ours", _http_mcp),
        ("MCP, stdio", "ours", _stdio),
        ("REST", "limit", _http),
        ("MCP, Python SDK and ipykernel, stdio", "peer", _sdk),
    ]
    idle = [
        Contender(f"{name}, after 5 ms", Lazy(lambda make=make: make(bench)), role, before=pause)  # type: ignore[misc]
        for name, role, make in who
    ]
    take_turns(table, idle, bench.rounds(400, 60), warm_up=5)
    busy = [
        Contender(f"{name}, back to back", Lazy(lambda make=make: back_to_back(make(bench))), role)  # type: ignore[misc]
        for name, role, make in who
    ]
    take_turns(table, busy, bench.rounds(60, 10))
    return table
