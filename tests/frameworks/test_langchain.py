"""LangChain and LangGraph: langchain-tests' suites for tools, a graph, and an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from glovebox import Sandbox
from glovebox.compat.code_sandbox.scripted_model import ScriptedModel
from glovebox.integrations.langchain import GloveboxTool, make_tool
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


class _Tool:
    """What both suites ask for."""

    socket: str

    @pytest.fixture(autouse=True)
    def daemon(self, socket_path: str) -> None:
        self.socket = socket_path

    @property
    def tool_constructor(self) -> type[GloveboxTool]:
        return GloveboxTool

    @property
    def tool_constructor_params(self) -> dict[str, Any]:
        return {"options": {"socket": self.socket}}

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"code": "print('hello'); 6 * 7"}


class TestUnit(_Tool, ToolsUnitTests):
    pass


class TestIntegration(_Tool, ToolsIntegrationTests):
    pass


@pytest.fixture
def tool(socket_path: str) -> Iterator[GloveboxTool]:
    made = make_tool(socket=socket_path)
    yield made
    made.close()


def _call(code: str, number: int = 1) -> dict[str, Any]:
    return {"type": "tool_call", "name": "run_python", "id": f"call-{number}", "args": {"code": code}}


def _graph(tool: GloveboxTool, code: list[str]) -> Any:
    model = ScriptedModel(code=code, tool_name=tool.name).bind_tools([tool])

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode([tool]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


def _answers(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def test_variables_stay_within_a_conversation_and_do_not_leave_it(tool: GloveboxTool) -> None:
    one, other = ({"configurable": {"thread_id": name}} for name in ("one", "other"))
    first = _graph(tool, ["x = 41", "print('x is', x); x + 1"]).invoke({"messages": [("user", "go")]}, one)
    assert [answer.content for answer in _answers(first)] == ["[no output; status: ok]", "x is 41\n42"]
    assert first["messages"][-1].content == "The sandbox answered:\nx is 41\n42"
    second = _graph(tool, ["x"]).invoke({"messages": [("user", "go")]}, other)
    (answer,) = _answers(second)
    assert "NameError" in answer.content and answer.artifact["status"] == "error"


def test_an_agent_sees_errors_and_goes_on(tool: GloveboxTool) -> None:
    agent = create_agent(ScriptedModel(code=["y = 5; 1 / 0", "y * 2"], tool_name=tool.name), [tool])
    failed, good = _answers(agent.invoke({"messages": [("user", "go")]}))
    assert "ZeroDivisionError" in failed.content
    assert (good.content, good.artifact["text"]) == ("10", "10")


def test_files_images_and_long_output_reach_the_artifact(tool: GloveboxTool) -> None:
    code = (
        "import base64, os; os.makedirs('/workspace/artifacts', exist_ok=True)\n"
        "open('/workspace/artifacts/out.txt', 'w').write('1')\nprint('z' * 100_000)\n"
        "class Image:\n    def _repr_png_(self): return b'\\x89PNG'\nImage()"
    )
    message = tool.invoke(_call(code))
    assert message.content.endswith("[shown: image/png]\n[files: /workspace/artifacts/out.txt]")
    assert "characters left out" in message.content and len(message.content) < 30_000
    assert len(message.artifact["stdout"]) == 100_001
    assert message.artifact["artifacts"][0]["path"] == "/workspace/artifacts/out.txt"
    assert message.artifact["result"]["image/png"]


def test_a_time_limit_and_a_sandbox_that_was_given(socket_path: str) -> None:
    with Sandbox.create(socket=socket_path) as sandbox:
        tool = make_tool(sandbox, timeout=1, tool_name="python")
        sandbox.run_code("given = 3")
        late = tool.invoke({**_call("while True: pass"), "name": "python"})
        assert late.artifact["status"] == "timeout"
        assert tool.invoke({**_call("given"), "name": "python"}).content == "3"
        tool.close()
        assert sandbox.is_running()


async def test_cancelling_a_call_interrupts_the_code(tool: GloveboxTool) -> None:
    await tool.ainvoke({"code": "import time; n = 0"})
    loop = asyncio.create_task(tool.ainvoke({"code": "while True:\n    n += 1; time.sleep(0.01)"}))
    await asyncio.sleep(0.5)
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    async with asyncio.timeout(10):
        assert int(await tool.ainvoke({"code": "n"})) > 0


def test_parallel_calls_of_one_message(tool: GloveboxTool) -> None:
    calls = [_call(f"a{i} = {i}; a{i}", i) for i in range(4)]
    node = StateGraph(MessagesState)
    node.add_node("tools", ToolNode([tool]))
    node.add_edge(START, "tools")
    done = node.compile().invoke({"messages": [AIMessage("", tool_calls=calls)]})
    assert [answer.content for answer in _answers(done)] == ["0", "1", "2", "3"]
    assert tool.invoke({"code": "a0 + a1 + a2 + a3"}) == "6"
