"""Real clients: the inspector, the official clients of Python and TypeScript in both generations, LangChain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.service import Service

from clients import HERE, LEGACY_PYTHON, MODERN_PYTHON, MODULES, NODE, run_client

REPOSITORY = HERE.parents[1]


def _env(service: Service) -> dict[str, str]:
    daemon = service.daemon
    return {
        "MCP_URL": f"http://127.0.0.1:{service.port}/mcp",
        "MCP_KEY": service.keys["ann"],
        "MCP_SERVER": json.dumps([str(daemon.glovebox.binary), "mcp", "--socket", daemon.socket]),
        "HOME": str(daemon.glovebox.place.home),
    }


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_inspector(service: Service, transport: str, era: str) -> None:
    env = _env(service)
    program = MODULES / "@modelcontextprotocol/inspector"
    launcher = program / json.loads((program / "package.json").read_text())["bin"]["mcp-inspector"]
    server = json.loads(env["MCP_SERVER"]) if transport == "stdio" else [env["MCP_URL"], "--transport", "http"]
    key = [] if transport == "stdio" else ["--header", f"Authorization: Bearer {env['MCP_KEY']}"]

    def ask(*words: str) -> object:
        flags = ["--cli", "--protocol-era", era]
        done = run_client(NODE, launcher, *flags, *server, *key, *words, "--format", "json", **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]

    assert len(ask("--method", "tools/list", "--strict")["tools"]) == 11  # type: ignore[index]
    arguments = json.dumps({"code": "6 * 7"})
    result = ask("--method", "tools/call", "--tool-name", "run_python", "--tool-args-json", arguments)
    assert result["content"][0]["text"] == "42"  # type: ignore[index]
    assert ask("--method", "resources/templates/list")


CLIENTS = [
    ("python", MODERN_PYTHON, "python_modern.py"),
    ("python", LEGACY_PYTHON, "python_legacy.py"),
    ("typescript", NODE, "typescript_modern.mjs"),
    ("typescript", NODE, "typescript_legacy.mjs"),
]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("program", "script"), [row[1:] for row in CLIENTS], ids=[row[2] for row in CLIENTS])
def test_official_client(service: Service, program: Path, script: str, transport: str) -> None:
    """Each script lists the tools, runs code, reads an artifact, follows progress, and cancels a run."""
    done = run_client(program, HERE / "scripts" / script, transport, MODULES=str(MODULES), **_env(service))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ok", done.stdout + done.stderr


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_langchain_agent(service: Service, transport: str) -> None:
    """The agent of docs/FRAMEWORKS.md, with the tools of LangChain's MCP adapter in the place of make_tool's."""
    path = str(REPOSITORY / "clients/python/src")
    done = run_client(LEGACY_PYTHON, HERE / "scripts/langchain_agent.py", transport, PYTHONPATH=path, **_env(service))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ok", done.stdout + done.stderr
