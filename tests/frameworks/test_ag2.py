"""AG2: its own agent loop with its scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import PurePosixPath

import pytest
from ag2 import Agent
from ag2.events import ToolCallEvent
from ag2.testing import TestConfig, TrackingConfig
from ag2.tools import SandboxCodeTool, SandboxShellTool
from ag2.tools.sandbox import Sandbox as SandboxProtocol
from ag2.tools.sandbox import SandboxFactory
from glovebox import Sandbox
from glovebox.integrations.ag2 import GloveboxSandbox


@pytest.fixture
async def box(socket_path: str) -> AsyncIterator[GloveboxSandbox]:
    async with GloveboxSandbox(socket=socket_path) as made:
        yield made


def _call(name: str, **arguments: str) -> ToolCallEvent:
    return ToolCallEvent(name=name, arguments=json.dumps(arguments))


async def test_a_loop_of_the_agent(box: GloveboxSandbox) -> None:
    code, shell = SandboxCodeTool(box), SandboxShellTool(box)
    config = TrackingConfig(
        TestConfig(
            _call("run_code", code="open('a.txt', 'w').write('41'); print('written')", language="python"),
            _call("run_code", code="import sys; print('bad', file=sys.stderr); sys.exit(3)", language="python"),
            _call(shell.name, command="cat a.txt; pwd"),
            "done",
        )
    )
    reply = await Agent("coder", config=config, tools=[code, shell]).ask("go")
    assert reply.body == "done"
    prompts = [str(call.args[0]) for call in config.mock.call_args_list]
    assert "written" in prompts[1]
    assert "bad" in prompts[2] and "[exit code: 3]" in prompts[2]
    assert "41" in prompts[3] and "/workspace" in prompts[3]


async def test_the_protocol(box: GloveboxSandbox) -> None:
    assert isinstance(box, SandboxProtocol) and isinstance(box, SandboxFactory)
    done = await box.exec(["sh", "-c", "echo out; echo err >&2; echo $WORD; exit 4"], env={"WORD": "w"})
    assert (done.output, done.exit_code) == ("out\nw\nerr", 4)
    late = await box.exec(["sleep", "30"], timeout=1)
    assert late.exit_code == 124 and "time limit" in late.output
    assert (await box.exec(["no-such-program"])).exit_code == 127
    assert (await box.exec([])).exit_code == 2
    await box.put_file(PurePosixPath("deep/a.bin"), b"\0\xff")
    assert (await box.exec(["od", "-An", "-tx1", "deep/a.bin"])).output.split() == ["00", "ff"]
    await box.remove_file(PurePosixPath("deep/a.bin"))
    await box.remove_file(PurePosixPath("deep/a.bin"))
    assert (await box.exec(["ls", "deep"])).output == ""
    with pytest.raises(ValueError, match="absolute"):
        await box.put_file(PurePosixPath("/etc/x"), b"")


def test_one_object_serves_many_event_loops_and_leaves_a_given_sandbox(socket_path: str) -> None:
    with Sandbox.create(socket=socket_path) as sandbox:
        box = GloveboxSandbox(sandbox)
        asyncio.run(box.put_file(PurePosixPath("a"), b"1"))
        assert asyncio.run(box.exec(["cat", "a"])).output == "1"
        asyncio.run(box.aclose())
        assert sandbox.is_running()
