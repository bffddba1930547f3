"""LlamaIndex: its own agent loop with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from glovebox import Sandbox
from glovebox.integrations.llama_index import GloveboxToolSpec
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM


@pytest.fixture
def spec(socket_path: str) -> Iterator[GloveboxToolSpec]:
    with GloveboxToolSpec(socket=socket_path) as made:
        yield made


def _model(*calls: tuple[str, dict[str, Any]]) -> MockFunctionCallingLLM:
    """Makes each of these calls in turn, then answers with what the last tool said."""

    def respond(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
        answered = [message for message in messages if message.role == MessageRole.TOOL]
        if len(answered) == len(calls):
            return ChatMessage(role="assistant", content=f"It says {answered[-1].content}")
        name, arguments = calls[len(answered)]
        block = ToolCallBlock(tool_call_id=f"call-{len(answered)}", tool_name=name, tool_kwargs=arguments)
        return ChatMessage(role="assistant", blocks=[block])

    return MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)


async def test_a_loop_of_the_agent(spec: GloveboxToolSpec) -> None:
    model = _model(
        ("run_python", {"code": "x = 20; 1 / 0"}),
        ("write_file", {"path": "in/a.txt", "content": "22"}),
        ("run_command", {"command": "cat in/a.txt; exit 3"}),
        ("run_python", {"code": "print(x + int(open('in/a.txt').read()))"}),
    )
    run = FunctionAgent(llm=model, tools=spec.to_tool_list(), streaming=False).run("go")
    said = [event.tool_output.content async for event in run.stream_events() if isinstance(event, ToolCallResult)]
    assert "ZeroDivisionError" in said[0]
    assert said[1:] == ["[2 characters written to in/a.txt]", "22\n[exit status 3]", "42"]
    assert "It says 42" in str(await run)


def test_the_tools_describe_themselves_and_answer_without_await(spec: GloveboxToolSpec) -> None:
    tools = {tool.metadata.name: tool for tool in spec.to_tool_list()}
    assert set(tools) == {"run_python", "run_command", "read_file", "write_file"}
    assert all("sandbox" in tool.metadata.description for tool in tools.values())
    assert set(tools["run_python"].metadata.get_parameters_dict()["properties"]) == {"code"}
    assert tools["run_python"].call(code="y = 1\ny + 1").content == "2"
    assert tools["run_command"].call(command="true").content == "[no output; exit status 0]"
    assert "could not be read" in tools["read_file"].call(path="missing").content
    assert "could not be written" in tools["write_file"].call(path="/proc/x", content="1").content


async def test_cancelling_a_call_interrupts_the_code(spec: GloveboxToolSpec) -> None:
    await spec.arun_python("import time; n = 0")
    running = asyncio.create_task(spec.arun_python("while True:\n    n += 1; time.sleep(0.01)"))
    await asyncio.sleep(0.5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(10):
        assert int(await spec.arun_python("n")) > 0


def test_a_given_sandbox_is_left_alone(socket_path: str) -> None:
    with Sandbox.create(socket=socket_path) as sandbox:
        with GloveboxToolSpec(sandbox, timeout=1) as spec:
            assert "time limit" in spec.run_python("while True: pass")
            assert "time limit" in spec.run_command("sleep 30")
        assert sandbox.is_running()
