"""OpenAI Agents SDK: its runner with its own scripted model, and a session that is resumed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from agents import RunConfig, Runner
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.testing import ScriptedModel, assistant_message, function_call
from glovebox import Sandbox
from glovebox.integrations.openai_agents import GloveboxSandboxClient, GloveboxSandboxClientOptions


async def test_agent_works_in_the_sandbox(socket_path: str) -> None:
    before = {one.id for one in Sandbox.list(socket=socket_path)}
    command = "whoami; pwd; cat question.txt; echo $((6 * 7))"
    model = ScriptedModel(
        [[function_call("exec_command", {"cmd": command}, call_id="1")], [assistant_message("the answer is 42")]]
    )
    agent = SandboxAgent(name="agent", model=model, capabilities=[Shell()])
    sandbox = SandboxRunConfig(
        client=GloveboxSandboxClient(socket=socket_path),
        options=GloveboxSandboxClientOptions(memory="256m"),
        manifest=Manifest(entries={"question.txt": File(content=b"six times seven\n")}),
    )
    config = RunConfig(sandbox=sandbox, tracing_disabled=True)
    result = await Runner.run(agent, "What is it?", run_config=config)
    assert result.final_output == "the answer is 42"
    assert model.last_call is not None
    said = json.dumps(model.last_call.input)
    assert "sandbox\\n/workspace\\nsix times seven\\n42" in said, said
    assert {one.id for one in Sandbox.list(socket=socket_path)} == before  # the runner has deleted its own


async def test_session_is_resumed_with_its_files(socket_path: str, tmp_path: Path) -> None:
    client = GloveboxSandboxClient(socket=socket_path)
    session = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path))
    async with session:
        await session.write(Path("d/file"), io.BytesIO(b"\0kept"))
        done = await session.exec("cat d/file; echo no >&2; exit 3")
        assert (done.stdout, done.stderr, done.exit_code) == (b"\0kept", b"no\n", 3)
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("nowhere"))
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 30", timeout=0.5)
    payload = client.serialize_session_state(session.state)
    again = await client.resume(client.deserialize_session_state(dict(payload)))
    async with again:
        assert (await again.read(Path("d/file"))).read() == b"\0kept"
    await client.delete(again)
    # The sandbox is gone: the next one is filled from the snapshot.
    other = await client.resume(client.deserialize_session_state(dict(payload)))
    async with other:
        assert (await other.read(Path("d/file"))).read() == b"\0kept"
    await client.delete(other)
