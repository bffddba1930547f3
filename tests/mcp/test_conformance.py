"""The protocol's own conformance tests: every server scenario of both requirement sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from key_proxy import KeyProxy
from support.service import Service

from clients import HERE, MODULES, NODE, run_client


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_conformance(conformance_service: Service, revision: str, tmp_path: Path) -> None:
    with KeyProxy(conformance_service.port, conformance_service.keys["ann"]) as proxy:
        done = run_client(
            NODE, MODULES / "@modelcontextprotocol/conformance/dist/index.js", "server",
            "--url", f"http://127.0.0.1:{proxy.port}/mcp", "--requirements", revision,
            "--expected-failures", HERE / f"conformance-{revision}.yml", "-o", tmp_path, timeout_s=240,
        )  # fmt: skip
    summary = done.stdout[done.stdout.find("=== SUMMARY") :]
    assert done.returncode == 0, summary + done.stderr
    passed = summary.count("✓")
    assert passed >= {"2025-11-25": 29, "2026-07-28": 33}[revision], summary


def test_fixtures_are_in_no_ordinary_server(service: Service) -> None:
    from support.mcp import HttpPeer

    peer = HttpPeer(service)
    assert not [tool for tool in peer.result("tools/list")["tools"] if tool["name"].startswith("test_")]
    assert peer.request("prompts/list")["error"]["code"] == -32601
    assert peer.result("resources/list")["resources"] == []
    assert set(peer.hello["capabilities"]) == {"tools", "resources"}
