"""A model with scripted answers, for the demonstration without a key and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedModel(BaseChatModel):  # type: ignore[misc,unused-ignore]
    """Answers with each of `code` as a call of the tool, one after the other, then with what the last one printed."""

    code: list[str]
    tool_name: str = "code_sandbox"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        done = [message for message in messages if message.type == "tool"]
        if len(done) < len(self.code):
            call = {"name": self.tool_name, "args": {"code": self.code[len(done)]}, "id": f"call-{len(done) + 1}"}
            answer = AIMessage("", tool_calls=[call])
        else:
            answer = AIMessage(f"The sandbox answered:\n{done[-1].content}" if done else "There was nothing to do.")
        return ChatResult(generations=[ChatGeneration(message=answer)])
