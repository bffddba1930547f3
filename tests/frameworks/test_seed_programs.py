"""The programs of the seeds with the real LangChain and LangGraph: the tool `code_sandbox`, its graph, its
application, and the `@tool` wrapper of seed 004."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compat.seeds import block_with, execute
from glovebox import Sandbox
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from support.daemons import make_daemons
from support.glovebox import REPOSITORY


@pytest.fixture(autouse=True)
def place(socket_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the test's own, from which programs find the daemon of the tests."""
    monkeypatch.setenv("GLOVEBOX_SOCKET", socket_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _answers(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def test_the_example_of_seed_001_runs_in_the_graph(place: Path) -> None:
    from glovebox.compat.code_sandbox import SessionManager
    from glovebox.compat.code_sandbox.make_graph import make_graph
    from glovebox.compat.code_sandbox.scripted_model import ScriptedModel

    example = block_with("001", "hello from sandbox")
    with SessionManager(sessions_dir=place / "sessions") as manager:
        graph = make_graph(ScriptedModel(code=[example, "print(x)"]), manager)
        config = {"configurable": {"thread_id": "conv"}}
        state = graph.invoke({"messages": [("user", "go")]}, config)
        first, second = _answers(state)
        host = place / "sessions/conv/artifacts/output.txt"
        assert first.artifact["artifact_map"] == {"/session/artifacts/output.txt": str(host)}
        assert f"/session/artifacts/output.txt -> {host}" in first.content
        assert host.read_text() == "hello from sandbox"
        assert second.artifact["stdout"] == "42\n"
        assert "42" in state["messages"][-1].content
        other = make_graph(ScriptedModel(code=["print(x)"]), manager)
        (answer,) = _answers(other.invoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "other"}}))
        assert "NameError" in answer.content


async def test_the_tool_runs_in_ephemeral_mode_and_with_await(place: Path) -> None:
    from glovebox.compat.code_sandbox import SessionManager
    from glovebox.compat.code_sandbox.code_exec_tool import make_code_sandbox

    tool = make_code_sandbox(SessionManager("ephemeral", outputs_dir=place / "outputs"))
    code = "import os; os.makedirs('/work/artifacts', exist_ok=True); open('/work/artifacts/a', 'w').write('1'); y = 1"
    call = {"type": "tool_call", "name": tool.name, "id": "1", "args": {"code": code}}
    message = await tool.ainvoke(call)
    (host,) = message.artifact["artifact_map"].values()
    assert Path(host) == place / "outputs" / message.artifact["run_id"] / "a" and Path(host).read_text() == "1"
    assert "NameError" in await tool.ainvoke({"code": "y"})


def test_the_tool_by_its_name(place: Path) -> None:
    from glovebox.compat.code_sandbox.code_exec_tool import code_sandbox

    assert code_sandbox.name == "code_sandbox"
    assert set(code_sandbox.args) == {"code"}
    assert "42" in code_sandbox.invoke({"code": "print(6 * 7)"})


def test_files_stay_and_sandboxes_go_when_a_program_ends(socket_path: str, place: Path) -> None:
    program = (
        "from glovebox.compat.code_sandbox.code_exec_tool import code_sandbox\n"
        "code_sandbox.invoke({'code': \"open('/session/artifacts/a', 'w').write('1')\"})"
    )
    before = {info.name for info in Sandbox.list(socket=socket_path)}
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "clients/python/src")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert (place / "sessions/default/artifacts/a").read_text() == "1"
    assert {info.name for info in Sandbox.list(socket=socket_path)} <= before


def test_the_application_runs_without_a_key(place: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "clients/python/src")}
    command = [sys.executable, "-m", "glovebox.compat.code_sandbox", "--session", "demo"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "scripted model" in done.stderr
    assert "mean 14.75" in done.stdout and "median 14.5" in done.stdout
    assert (place / "sessions/demo/artifacts/report.txt").read_text() == "mean 14.75\n"


def test_a_daemon_that_ends_first_leaves_no_traceback(binary: Path, place: Path) -> None:
    program = (
        "from glovebox.compat.code_sandbox.code_exec_tool import code_sandbox\n"
        "code_sandbox.invoke({'code': \"open('/session/artifacts/a', 'w').write('1')\"})\n"
        "print('done', flush=True)\ninput()"
    )
    for make in make_daemons(binary):
        daemon = make()
        environment = {
            **os.environ, "PYTHONPATH": str(REPOSITORY / "clients/python/src"), "GLOVEBOX_SOCKET": daemon.socket,
            "GLOVEBOX_START": "0",
        }  # fmt: skip
        with subprocess.Popen(
            [sys.executable, "-c", program], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as running:  # fmt: skip
            assert running.stdout is not None and running.stdout.readline() == "done\n"
            daemon.stop()
            _, errors = running.communicate("\n", timeout=60)
    assert (errors, running.returncode) == ("", 0)
    assert (place / "sessions/default/artifacts/a").read_text() == "1"


async def test_the_tool_of_seed_004_runs_in_a_graph() -> None:
    namespace: dict[str, Any] = {}
    await execute(block_with("004", "async def run_python"), namespace)
    tool = namespace["run_python"]
    assert (tool.name, tool.description) == ("run_python", "Execute Python code in an isolated sandbox container.")
    assert await tool.ainvoke({"code": "print(6 * 7)"}) == "42\n"
    calls = [
        {"name": "run_python", "args": {"code": code}, "id": code, "type": "tool_call"}
        for code in ("print('good')", "import sys; print('bad', file=sys.stderr); sys.exit(3)")
    ]
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([tool]))
    graph.add_edge(START, "tools")
    good, bad = _answers(await graph.compile().ainvoke({"messages": [AIMessage("", tool_calls=calls)]}))
    assert good.content == "good\n"
    assert bad.content == "Error (exit code 3):\nbad\n"
