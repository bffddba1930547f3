"""Seed 002: DockerSandboxExecutor and the reasoning loop."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from compat.seeds import block_with, execute, python_blocks


@pytest.fixture
def base(place: Path) -> Iterator[Path]:
    """The directory that the examples name."""
    yield Path("/tmp/sandboxes")
    for name in ("my-session", "glovebox-test-multi"):
        shutil.rmtree(f"/tmp/sandboxes/{name}", ignore_errors=True)


def test_the_first_example_leaves_its_file_on_the_host(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(execute(block_with("002", 'with DockerSandboxExecutor(session_id="my-session")'), {}))
    assert capsys.readouterr().out == "File created!\n"
    assert json.loads((base / "my-session/output.json").read_text()) == {"result": 42, "status": "success"}


@pytest.mark.layer
def test_the_other_examples_run_in_one_sandbox(base: Path) -> None:
    names: dict[str, Any] = {}
    configuration = block_with("002", "cpu_quota=100000")
    exec("from glovebox.compat.dolphin.docker_sandbox import DockerSandboxExecutor", names)
    asyncio.run(execute(configuration, names))
    sandbox = names["sandbox"]
    with sandbox:
        asyncio.run(execute(block_with("002", "This code will be blocked by the sandbox"), names))
        assert "daemon:x:" not in names["output"]  # an /etc/passwd of the box's own, without the host's users
        asyncio.run(execute(block_with("002", "import statistics"), names))
        assert "'count': 8" in names["output"]
        assert json.loads((base / "my-session/analysis.json").read_text())["mean"] == 14.75
        asyncio.run(execute(block_with("002", "Step 1: Initialize"), names))
        assert (base / "my-session/result.txt").read_text() == "Result: 55\n"
        libraries = "import numpy, pandas, matplotlib, scipy, sklearn; print('all there')"
        assert sandbox.execute_code(libraries) == "all there"
        assert "ZeroDivisionError" in sandbox.execute_code("1 / 0")
    assert len(python_blocks("002")) == 6  # a new example wants a test


def test_errors_are_those_of_the_text(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glovebox.compat.dolphin import DockerSandboxExecutor

    with pytest.raises(ValueError, match="session_id"):
        DockerSandboxExecutor("../up", str(place / "b"))
    missing = DockerSandboxExecutor("a", str(place / "b"), image_name="no-such-image")
    with pytest.raises(RuntimeError, match="not found"):
        missing.execute_code("1")
    missing.close()
    slow = DockerSandboxExecutor("a", str(place / "b"), timeout=0.5)
    with slow:
        assert "time limit" in slow.execute_code("import time; time.sleep(30)")
    monkeypatch.setenv("GLOVEBOX_PROGRAM", "/nonexistent")
    monkeypatch.setenv("GLOVEBOX_SOCKET", str(place / "nobody.sock"))
    with pytest.raises(RuntimeError, match="not available"):
        DockerSandboxExecutor("a", str(place / "b")).execute_code("1")
    monkeypatch.undo()


class ModelServer(BaseHTTPRequestHandler):
    """A chat service whose model first writes code, then says what the code printed."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = body["messages"][-1]["content"]
        code = (
            "```python\na, b = 0, 1\nfor _ in range(10): a, b = b, a + b\n"
            "open('/sandbox/fib.txt', 'w').write(str(a)); print(a)\n```"
        )
        text = f"The answer: {last}" if last.startswith("The code printed") else f"Let me compute.\n{code}"
        answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        pass


def test_the_reasoning_loop_runs_code_where_the_switch_puts_it(
    base: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ModelServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("DOLPHIN_USE_DOCKER_SANDBOX", "1")
    names: dict[str, Any] = {}
    try:
        asyncio.run(execute(block_with("002", "run_interaction("), names))
        assert "55" in names["result"].answer and names["result"].code_runs == 1
        (saved,) = base.glob("*/fib.txt")
        assert saved.read_text() == "55"
        shutil.rmtree(saved.parent)
        monkeypatch.delenv("DOLPHIN_USE_DOCKER_SANDBOX")
        asyncio.run(execute(block_with("002", "run_interaction("), names))
        assert "55" in names["result"].answer and not list(base.glob("*/fib.txt"))
    finally:
        server.shutdown()
        server.server_close()
