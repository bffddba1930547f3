"""smolagents: its own CodeAgent loop with a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from glovebox import Sandbox, SandboxClosedError
from glovebox.integrations.smolagents import GloveboxExecutor
from smolagents import CodeAgent, Tool, tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.serialization import SerializationError


class ScriptedModel(Model):
    """Returns each of these pieces of code in turn, and keeps its prompts."""

    def __init__(self, *code: str) -> None:
        super().__init__(model_id="scripted")
        self.code = list(code)
        self.prompts: list[str] = []

    def generate(self, messages: list[ChatMessage], *args: Any, **kwargs: Any) -> ChatMessage:
        self.prompts.append(str(messages[-1].content))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go\n<code>\n{self.code.pop(0)}\n</code>")


@tool
def double(number: int) -> int:
    """Twice the number.

    Args:
        number: what to double
    """
    import os

    print("in", os.path.abspath("."))
    return number * 2


class Join(Tool):
    name = "join"
    description = "Joins texts."
    inputs = {"texts": {"type": "array", "description": "the texts"}}  # noqa: RUF012
    output_type = "string"

    def forward(self, texts: list) -> str:
        return "-".join(texts)


@pytest.fixture
def executor(socket_path: str) -> Iterator[GloveboxExecutor]:
    made = GloveboxExecutor(socket=socket_path)
    yield made
    made.cleanup()


def _agent(executor: GloveboxExecutor, model: ScriptedModel, *tools: Tool) -> CodeAgent:
    return CodeAgent(tools=list(tools), model=model, executor=executor, max_steps=6, verbosity_level=0)


def test_tools_state_and_the_final_answer(executor: GloveboxExecutor) -> None:
    model = ScriptedModel(
        "x = double(given['a'])\nprint('x is', x)", "y = join(['p', 'q'])\ny", "final_answer({'x': x, 'y': y})"
    )
    answer = _agent(executor, model, double, Join()).run("go", additional_args={"given": {"a": 21}})
    assert answer == {"x": 42, "y": "p-q"}
    assert "in /workspace\\nx is 42" in model.prompts[1], model.prompts[1]
    assert "p-q" in model.prompts[2]


def test_the_agent_sees_errors_and_goes_on(executor: GloveboxExecutor) -> None:
    model = ScriptedModel("z = 5\nprint('before')\n1 / 0", "final_answer(z)")
    assert _agent(executor, model).run("go") == 5
    assert "ZeroDivisionError" in model.prompts[1] and "before" in model.prompts[1]


def test_only_what_a_tool_needs_is_installed(executor: GloveboxExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """No registry is asked: the package that is to come is a file of the workspace."""
    asked: list[str] = []

    def install(self: Sandbox, *packages: str) -> None:
        asked.extend(packages)
        self.files.write("/workspace/no_such_package.py", "")

    monkeypatch.setattr(Sandbox, "install", install)

    @tool
    def count() -> int:
        """Counts."""
        import no_such_package

        return len(no_such_package.__name__)

    assert _agent(executor, ScriptedModel("final_answer(1)"), double).run("go") == 1
    assert asked == []
    assert _agent(executor, ScriptedModel("final_answer(count())"), count).run("go") == len("no_such_package")
    assert asked == ["no_such_package"]


def test_state_stays_from_run_to_run(executor: GloveboxExecutor) -> None:
    model = ScriptedModel("kept = 'here'\nfinal_answer(1)", "final_answer(kept + '!')", "final_answer((kept, {1, 2}))")
    agent = _agent(executor, model)
    assert agent.run("one") == 1
    assert agent.run("two", reset=False) == "here!"
    assert agent.run("three") == ("here", {1, 2})


def test_code_runs_in_the_sandbox_and_its_pickles_are_refused(executor: GloveboxExecutor) -> None:
    assert executor("import os; os.getcwd()").output == "'/workspace'"
    bomb = (
        "class FinalAnswerException(BaseException): pass\n"
        "import base64, pickle; raise FinalAnswerException('pickle:' + base64.b64encode(pickle.dumps(1)).decode())"
    )
    with pytest.raises(SerializationError, match="allow_pickle=False"):
        executor(bomb)


def test_long_answers_images_and_time_limits(socket_path: str) -> None:
    executor = GloveboxExecutor(socket=socket_path, timeout=2)
    try:
        model = ScriptedModel("while True: pass", "final_answer('z' * 300_000)")
        assert _agent(executor, model).run("go") == "z" * 300_000
        assert "time" in model.prompts[1]
        png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        code = f"import base64\nclass I:\n    def _repr_png_(self): return base64.b64decode({png!r})\nI()"
        assert executor(code).output.size == (1, 1)
    finally:
        executor.cleanup()


def test_a_given_sandbox_is_left_alone_and_an_own_one_ends(socket_path: str) -> None:
    with Sandbox.create(socket=socket_path) as sandbox:
        sandbox.run_code("given = 3")
        with _agent(GloveboxExecutor(["json", "math"], sandbox=sandbox), ScriptedModel("final_answer(given)")) as agent:
            assert agent.run("go") == 3
        assert sandbox.is_running()
    own = GloveboxExecutor(socket=socket_path)
    with _agent(own, ScriptedModel("final_answer(1)")) as agent:
        agent.run("go")
    assert not own.sandbox.is_running()
    with pytest.raises(SandboxClosedError):
        own("1")
