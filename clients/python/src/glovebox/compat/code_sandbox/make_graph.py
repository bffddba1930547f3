"""The graph: the model, the tool, and the way back until the model has an answer. Needs langgraph."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from .code_exec_tool import make_code_sandbox
from .prompt import EPHEMERAL_SYSTEM_PROMPT, SYSTEM_PROMPT
from .session_manager import SessionManager


def make_graph(model: BaseChatModel, manager: SessionManager | None = None) -> Any:
    """A compiled graph. Give each conversation its own `thread_id`: it is the name of its sandbox session."""
    used = manager or SessionManager()
    tool = make_code_sandbox(used)
    asked = model.bind_tools([tool])
    system = SystemMessage(SYSTEM_PROMPT if used.mode == "session" else EPHEMERAL_SYSTEM_PROMPT)

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [asked.invoke([system, *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode([tool]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())
