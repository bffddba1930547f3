"""Input of clients is bounded before it is parsed, and refused in the protocol's own form."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.daemon import memory_of
from support.mcp import META, MODERN, HttpPeer, StdioPeer, modern_meta
from support.service import Service

HUGE = 3 << 20


def test_flood_on_stdio_is_answered_and_bounded(service: Service, stdio: Callable[..., StdioPeer]) -> None:
    peer = stdio()
    peer.text("run_python", code="import time")
    before = memory_of(service.daemon.pid)
    call = {"name": "run_python", "arguments": {"code": "time.sleep(0.01)"}}
    numbers = [peer.begin("tools/call", call) for _ in range(500)]
    answers = [peer.wait(number) for number in numbers]
    refused = [answer for answer in answers if "error" in answer]
    assert all(answer["error"]["code"] == -32603 for answer in refused) and refused
    assert sum("result" in answer for answer in answers) >= 10
    assert memory_of(service.daemon.pid) - before < 64 << 20
    assert peer.text("run_python", code="1+1") == "2"


def test_message_that_is_too_large_is_refused(service: Service, stdio: Callable[..., StdioPeer]) -> None:
    peer = stdio()
    peer.send({"jsonrpc": "2.0", "id": 9, "method": "ping", "params": {"x": "y" * HUGE}})
    refusal = peer.next()
    assert refusal["error"]["code"] == -32600 and "larger" in refusal["error"]["message"]
    assert peer.text("run_python", code="1+1") == "2"
    over_http = HttpPeer(service)
    answer = over_http.post(over_http.message("ping", {"x": "y" * HUGE}, None))
    assert answer.status == 413 and answer.json()["error"]["code"] == -32600
    assert over_http.request("ping")["result"] == {}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", -32700), ("nonsense", -32700), ("[]", -32600), ("[" * 5000, -32700), ("1", -32700),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600), ('{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600), ('{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":3}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
        ('{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        ('{"a":[' + "0," * 20000 + "0]}", -32700), ('[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    ],
)  # fmt: skip
def test_malformed_messages_are_refused(
    service: Service, stdio: Callable[..., StdioPeer], text: str, code: int
) -> None:
    peer = stdio()
    peer.send_text(text + "\n")
    assert peer.next()["error"]["code"] == code
    assert peer.request("ping")["result"] == {}
    over_http = HttpPeer(service)
    answer = over_http.post(text.encode(), {"Content-Type": "application/json"})
    assert (answer.status, answer.json()["error"]["code"]) == (400, code)


def test_large_arguments_within_the_bound_work(service: Service) -> None:
    peer = HttpPeer(service)
    peer.text("run_python", code="1")
    content = "x" * (1 << 20)
    peer.text("write_file", path="large.txt", content=content)
    assert peer.text("run_shell", command="wc -c < large.txt") == str(len(content))
    result = peer.call("run_python", code=f"len({content!r})")
    assert result["content"][0]["text"] == str(len(content))


def test_large_output_does_not_make_the_daemon_grow(service: Service) -> None:
    peer = HttpPeer(service)
    peer.text("run_python", code="1")
    before = memory_of(service.daemon.pid)
    for _ in range(3):
        words = peer.text("run_python", code="for _ in range(300): print('y' * 100000)")
        assert len(words) < 30_000
    assert memory_of(service.daemon.pid) - before < 48 << 20


def test_gate_is_that_of_every_route(service: Service) -> None:
    stranger, peer = service.stranger(), HttpPeer(service)
    message = json.dumps(peer.message("tools/list", {}, None)).encode()
    headers = {"Content-Type": "application/json"}
    answer = stranger.request("POST", "/mcp", message, headers)
    assert answer.status == 401 and "WWW-Authenticate" in answer.headers
    client = service.client()
    assert client.request("POST", "/mcp", message, {**headers, "Origin": "http://evil.example"}).status == 403
    assert client.request("POST", "/mcp", message, {**headers, "Host": "evil.example"}).status == 421
    for method in ("GET", "DELETE", "PUT"):
        assert client.request(method, "/mcp").status == 405
    assert client.request("POST", "/mcp", message, {"Content-Type": "text/plain"}).status == 415


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"MCP-Protocol-Version": None}, -32020), ({"MCP-Protocol-Version": "2025-11-25"}, -32020),
        ({"Mcp-Method": None}, -32020), ({"Mcp-Method": "tools/list"}, -32020), ({"Mcp-Name": None}, -32020),
        ({"Mcp-Name": "run_shell"}, -32020), ({"Mcp-Name": "=?base64?!!?="}, -32020),
        ({"Mcp-Name": "=?base64?cnVuX3B5dGhvbg==?="}, None), ({}, None),
    ],
)  # fmt: skip
def test_modern_headers_must_agree_with_the_message(
    service: Service, change: dict[str, str | None], code: int | None
) -> None:
    peer = HttpPeer(service, MODERN)
    message = peer.message("tools/call", {"name": "run_python", "arguments": {"code": "1"}}, None)
    headers: dict[str, Any] = {**peer.headers(message), **change}
    answer = peer.post(message, {name: value for name, value in headers.items() if value is not None})
    assert answer.json().get("error", {}).get("code") == code, answer
    assert answer.status == (400 if code else 200)


def test_modern_requests_must_say_who_they_are(service: Service, stdio: Callable[..., StdioPeer]) -> None:
    peer = stdio(era=MODERN)

    def ask(meta: dict[str, Any], method: str = "tools/list") -> dict[str, Any]:
        peer.send({"jsonrpc": "2.0", "id": "m", "method": method, "params": {"_meta": meta}})
        return peer.wait("m")

    assert ask({f"{META}protocolVersion": MODERN})["error"]["code"] == -32602
    refusal = ask({**modern_meta(), f"{META}protocolVersion": "1999-01-01"})["error"]
    assert refusal["code"] == -32022 and refusal["data"]["requested"] == "1999-01-01"
    for removed in ("initialize", "ping", "logging/setLevel", "resources/subscribe"):
        assert ask(modern_meta(), removed)["error"]["code"] == -32601
    assert ask(modern_meta())["result"]["resultType"] == "complete"


def test_runs_count_against_the_quota_of_the_key(service: Service) -> None:
    peer = HttpPeer(service)
    peer.text("run_python", code="1")
    texts = []
    for _ in range(70):
        result = peer.call("run_python", code="import time; time.sleep(30)", background=True)
        texts.append(result["content"][0]["text"])
        if result.get("isError"):
            break
    assert "limit" in texts[-1]
    peer.text("close_sandbox", sandbox="default")
