"""The LangGraph tool. Needs langchain-core."""

from __future__ import annotations

from typing import Any, Callable

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from .prompt import TOOL_DESCRIPTION
from .session_manager import SandboxRun, SessionManager

OUTPUT_MAX = 20000  # characters of each stream that the model sees


def make_code_sandbox(manager: SessionManager) -> BaseTool:
    """The tool `code_sandbox` over this manager. The conversation (`thread_id`) is the session.

    The message that the model sees has the output and the names of artifacts; the message's `artifact` is the whole
    run, with its `artifact_map`.
    """

    def code_sandbox(code: str, config: RunnableConfig) -> tuple[str, dict[str, Any]]:
        run = manager.exec(code, session_id=_session_of(manager, config))
        return describe(run), run.to_dict()

    return StructuredTool.from_function(
        code_sandbox, name="code_sandbox", description=TOOL_DESCRIPTION, response_format="content_and_artifact"
    )


def _session_of(manager: SessionManager, config: RunnableConfig) -> str | None:
    thread = (config or {}).get("configurable", {}).get("thread_id")
    return str(thread) if thread is not None and manager.mode == "session" else None


def describe(run: SandboxRun) -> str:
    """A run as text for a model."""
    parts = [f"status: {run.status}"]
    for name, text in (("stdout", run.stdout), ("stderr", run.stderr)):
        if text:
            parts.append(f"{name}:\n{_cut(text)}")
    if run.artifact_map:
        files = "\n".join(f"{path} -> {host}" for path, host in run.artifact_map.items())
        parts.append(f"artifacts:\n{files}")
    return "\n".join(parts)


def _cut(text: str) -> str:
    if len(text) <= OUTPUT_MAX:
        return text
    half = OUTPUT_MAX // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def _lazy(make: Callable[[], BaseTool]) -> Callable[[], BaseTool]:
    made: list[BaseTool] = []

    def get() -> BaseTool:
        if not made:
            made.append(make())
        return made[0]

    return get


def _make_default() -> BaseTool:
    return make_code_sandbox(SessionManager())  # sandboxes end with the program, and quietly if the daemon has gone


_default = _lazy(_make_default)


def __getattr__(name: str) -> BaseTool:
    """`code_sandbox` itself: created on import, over sessions in ./sessions."""
    if name == "code_sandbox":
        return _default()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
