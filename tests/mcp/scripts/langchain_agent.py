"""An agent of LangChain's whose tools come from the MCP server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from glovebox.compat.code_sandbox.scripted_model import ScriptedModel
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient


def connection(kind: str) -> dict[str, Any]:
    if kind == "stdio":
        command, *args = json.loads(os.environ["MCP_SERVER"])
        return {"transport": "stdio", "command": command, "args": args}
    return {
        "transport": "streamable_http",
        "url": os.environ["MCP_URL"],
        "headers": {"Authorization": f"Bearer {os.environ['MCP_KEY']}"},
    }


def text_of(message: ToolMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


async def main(kind: str) -> None:
    client = MultiServerMCPClient({"glovebox": connection(kind)})
    async with client.session("glovebox") as session:
        from langchain_mcp_adapters.tools import load_mcp_tools

        tools = await load_mcp_tools(session)
        model = ScriptedModel(code=["x = 20", "print(x * 2 + 2)"], tool_name="run_python")
        agent = create_agent(model, tools)
        state = await agent.ainvoke({"messages": [{"role": "user", "content": "what is the answer?"}]})
        answers = [text_of(message) for message in state["messages"] if isinstance(message, ToolMessage)]
        assert answers == ["[no output]", "42"], state["messages"]
    print("ok")


asyncio.run(main(sys.argv[1]))
