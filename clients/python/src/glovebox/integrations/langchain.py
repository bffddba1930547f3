"""LangChain and LangGraph: a tool that runs Python.

    from glovebox.integrations.langchain import make_tool
    from langchain.agents import create_agent

    tool = make_tool(memory="1g")
    agent = create_agent(model, [tool])

Needs `langchain-core` (`pip install "glovebox-sandbox[langchain]"`).
"""

from __future__ import annotations

from typing import Any, Literal, Optional

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field, PrivateAttr

from .. import Sandbox
from ..models import Execution
from ._boxes import Boxes, as_async, describe

DESCRIPTION = """Run Python in an isolated sandbox and get back what it printed and the value of its last expression.

Variables, imports and files stay between calls. Files are in /workspace; results that the user is to have go to \
/workspace/artifacts."""


class RunPythonInput(BaseModel):  # type: ignore[misc,unused-ignore]
    """What the model fills in."""

    code: str = Field(description="Python code; the value of its last expression is shown, as in a notebook")


class GloveboxTool(BaseTool):  # type: ignore[misc,unused-ignore]
    """Runs Python whose variables stay.

    Each conversation (`thread_id` in the configuration) has a sandbox of its own, made on first use with `options`,
    which are those of `Sandbox.create`; with `sandbox` all use that one. The message's content is text for the model;
    its `artifact` is the whole run as a dictionary: status, output, results with their images, files.
    Code that fails is an answer, too: the model sees the traceback. `close()` ends the sandboxes.
    """

    name: str = "run_python"
    description: str = DESCRIPTION
    args_schema: Any = RunPythonInput
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    sandbox: Optional[Any] = Field(default=None, exclude=True)  # noqa: UP045 (pydantic reads it, on Python 3.9 too)
    options: dict[str, Any] = Field(default_factory=dict, exclude=True)
    timeout: Optional[float] = None  # noqa: UP045

    _boxes: Any = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._boxes = Boxes(self.sandbox, self.options)

    def sandbox_for(self, thread_id: str = "") -> Sandbox:
        """The sandbox of a conversation; without an id, the one of calls outside any."""
        box: Sandbox = self._boxes.get(thread_id)
        return box

    def close(self) -> None:
        """Ends the sandboxes that this tool made."""
        self._boxes.close()

    def _run(self, code: str, config: RunnableConfig) -> tuple[str, dict[str, Any]]:
        return _answer(self.sandbox_for(_thread_of(config)).run_code(code, timeout=self.timeout))

    async def _arun(self, code: str, config: RunnableConfig) -> tuple[str, dict[str, Any]]:
        import asyncio

        sandbox = await asyncio.to_thread(self.sandbox_for, _thread_of(config))
        return _answer(await as_async(sandbox).run_code(code, timeout=self.timeout))


def make_tool(
    sandbox: Sandbox | None = None, *, tool_name: str = "run_python", description: str = DESCRIPTION,
    timeout: float | None = None, **options: Any,
) -> GloveboxTool:  # fmt: skip
    """A `GloveboxTool`. `timeout` is that of each call, in seconds; `options` are those of `Sandbox.create`."""
    return GloveboxTool(name=tool_name, description=description, timeout=timeout, sandbox=sandbox, options=options)


def _thread_of(config: RunnableConfig) -> str:
    return str(((config or {}).get("configurable") or {}).get("thread_id") or "")


def _answer(execution: Execution) -> tuple[str, dict[str, Any]]:
    return describe(execution), execution.to_dict()
