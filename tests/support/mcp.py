"""An MCP client without a library, over both transports and in both eras, for what no library would send."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from typing import Any

from support.daemon import Daemon
from support.glovebox import slowness
from support.service import Service

MODERN, LEGACY = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
TASKS = "io.modelcontextprotocol/tasks"
PATIENCE_S = 60.0


def modern_meta(**capabilities: Any) -> dict[str, Any]:
    return {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": capabilities}


class Peer:
    """What both transports have: requests, tools, and texts of results."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.notes: list[dict[str, Any]] = []
        self._last_id = 0

    def message(
        self, method: str, params: dict[str, Any] | None, meta: dict[str, Any] | None, id_: Any = None
    ) -> dict[str, Any]:
        self._last_id += 1
        base = modern_meta() if self.era == MODERN else {}
        whole = {**base, **(meta or {})}
        params = {**(params or {}), **({"_meta": whole} if whole else {})}
        return {"jsonrpc": "2.0", "id": self._last_id if id_ is None else id_, "method": method, "params": params}

    def request(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        raise NotImplementedError

    def result(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        answer = self.request(method, params, **more)
        assert "result" in answer, answer
        return answer["result"]

    def call(self, name: str, _meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
        return self.result("tools/call", {"name": name, "arguments": arguments}, meta=_meta)

    def text(self, name: str, **arguments: Any) -> str:
        """Of a tool that must succeed."""
        result = self.call(name, **arguments)
        assert not result.get("isError"), result
        return result["content"][0]["text"]

    def refusal(self, name: str, **arguments: Any) -> str:
        """Of a tool that must tell the model what is wrong."""
        result = self.call(name, **arguments)
        assert result.get("isError") is True, result
        return result["content"][0]["text"]


def run_id_of(result: dict[str, Any]) -> str:
    return result["_meta"]["glovebox/run"]["run_id"]


class StdioPeer(Peer):
    """`glovebox mcp` of this daemon."""

    def __init__(self, daemon: Daemon, era: str = LEGACY, *options: str) -> None:
        super().__init__(era)
        self.process = daemon.glovebox.popen(
            "mcp", *options, stdin=subprocess.PIPE, env={"GLOVEBOX_SOCKET": daemon.socket, **daemon.env}
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._answers: dict[Any, dict[str, Any]] = {}
        threading.Thread(target=self._read, daemon=True).start()
        if era == LEGACY:
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            self.hello = self.result("initialize", hello)
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        else:
            self.hello = self.result("server/discover")

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def send(self, message: Any) -> None:
        self.send_text(json.dumps(message) + "\n")

    def send_text(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def next(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        line = self._lines.get(timeout=patience_s * slowness())
        assert line, f"the server has ended: {self.process.stderr.read() if self.process.stderr else ''}"
        return json.loads(line)

    def wait(self, id_: Any, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The answer to one request; others are kept."""
        while id_ not in self._answers:
            message = self.next(patience_s)
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.notes.append(message)
        return self._answers.pop(id_)

    def begin(self, method: str, params: dict[str, Any], meta: dict[str, Any] | None = None) -> Any:
        """Sends a request, and returns its id."""
        message = self.message(method, params, meta)
        self.send(message)
        return message["id"]

    def request(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        return self.wait(self.begin(method, params or {}, more.get("meta")))

    def is_silent(self, id_: Any, seconds: float) -> bool:
        """Checks that this request gets no answer."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            message = json.loads(line)
            if message.get("id") == id_:
                return False
            if "id" in message:
                self._answers[message["id"]] = message
        return True

    def close(self) -> int:
        """As a client that ends: closes the server's input."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S * slowness())


class HttpPeer(Peer):
    """POST /mcp of a service, with a key."""

    def __init__(self, service: Service, era: str = LEGACY, key: str | None = None) -> None:
        super().__init__(era)
        self.service = service
        self.client = service.client(key)
        self.session: str | None = None
        if era == LEGACY:
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            self.hello = self.result("initialize", hello)
        else:
            self.hello = self.result("server/discover")

    def headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": self.era,
        }
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        params = message.get("params", {})
        if self.era == MODERN:
            headers["Mcp-Method"] = message["method"]
            named = params.get("name") or params.get("uri") or params.get("taskId")
            if named:
                headers["Mcp-Name"] = named
        return headers

    def post(self, message: Any, headers: dict[str, str] | None = None) -> Any:
        """The answer as HTTP has it."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.client.request("POST", "/mcp", body, self.headers(message) if headers is None else headers)

    def request(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        message = self.message(method, params, more.get("meta"), more.get("id_"))
        answer = self.post(message)
        self.session = answer.headers.get("Mcp-Session-Id", self.session)
        if answer.headers.get_content_type() != "text/event-stream":
            return answer.json()
        events = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: ")]
        self.notes += events[:-1]
        return events[-1]

    def close(self) -> int:
        self.client.close()
        return 0
