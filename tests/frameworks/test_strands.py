"""Strands Agents: its agent loop with a scripted model, and the parts of its sandbox interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from glovebox.integrations.strands import GloveboxSandbox
from strands import Agent
from strands.models import Model
from strands.sandbox.base import ExecutionResult, StreamChunk
from strands.sandbox.errors import SandboxPathNotFoundError, SandboxTimeoutError


class ScriptedModel(Model):
    """Says what it was given, one after the other: a tool call as (name, input), or text."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.seen: list[Any] = []

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *arguments: Any, **more: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *arguments: Any, **more: Any) -> AsyncGenerator[Any, None]:
        self.seen = list(messages)
        step = self.script.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(step, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": step}}}
        else:
            name, given = step
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"t{len(self.script)}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(step, str) else "tool_use"}}


@pytest.fixture
def sandbox(socket_path: str) -> Iterator[GloveboxSandbox]:
    with GloveboxSandbox(socket=socket_path) as made:
        yield made


def test_agent_works_in_the_sandbox(sandbox: GloveboxSandbox) -> None:
    model = ScriptedModel(
        ("sandbox_file_editor", {"command": "create", "path": "/workspace/a.txt", "file_text": "6 * 7\n"}),
        ("sandbox_shell", {"command": "whoami; echo $(($(cat a.txt))) | tee b.txt"}),
        "done",
        "done again",
    )
    agent = Agent(model=model, sandbox=sandbox, callback_handler=None)
    assert str(agent("What is six times seven?")).strip() == "done"
    (result,) = model.seen[-1]["content"]
    assert json.loads(result["toolResult"]["content"][0]["text"])["output"] == "sandbox\n42\n"
    assert sandbox.sandbox.files.read("b.txt") == "42\n"
    assert str(agent("Again, in another event loop.")).strip() == "done again"
    assert asyncio.run(sandbox.read_text("b.txt")) == "42\n"


async def test_output_is_streamed_and_code_runs(sandbox: GloveboxSandbox) -> None:
    command = "echo one; while [ ! -f go ]; do sleep 0.01; done; echo two >&2; exit 3"
    seen: list[Any] = []
    async for chunk in sandbox.execute_streaming(command):
        seen.append(chunk)
        if len(seen) == 1:
            sandbox.sandbox.files.write("go", "")  # the first line came while the command runs
    assert seen[:2] == [StreamChunk("one\n", "stdout"), StreamChunk("two\n", "stderr")]
    assert seen[2:] == [ExecutionResult(3, "one\n", "two\n")]
    assert (await sandbox.execute_code("print('x' * 3)", "python3", env={"A": "b"})).stdout == "xxx\n"
    with pytest.raises(SandboxTimeoutError):
        await sandbox.execute("sleep 30", timeout=0.5)


async def test_files(sandbox: GloveboxSandbox) -> None:
    content = bytes(range(256)) * 8192  # 2 MiB: larger than a request
    await sandbox.write_file("d/file", content)
    assert await sandbox.read_file("/workspace/d/file") == content
    found = await sandbox.list_files("d")
    assert [(one.name, one.is_dir, one.size) for one in found] == [("file", False, len(content))]
    await sandbox.remove_file("d/file")
    with pytest.raises(FileNotFoundError):
        await sandbox.read_file("d/file")
    with pytest.raises(SandboxPathNotFoundError):
        await sandbox.list_files("nowhere")
