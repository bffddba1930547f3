"""The official Python client, first generation."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from typing import Any

from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

from mcp import ClientSession, StdioServerParameters

CODE = "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/a.txt', 'w').write('hi')\n6 * 7"


def transport(kind: str) -> Any:
    if kind == "stdio":
        command, *args = json.loads(os.environ["MCP_SERVER"])
        return stdio_client(StdioServerParameters(command=command, args=args))
    return streamablehttp_client(os.environ["MCP_URL"], headers={"Authorization": f"Bearer {os.environ['MCP_KEY']}"})


async def main(kind: str) -> None:
    async with transport(kind) as streams, ClientSession(streams[0], streams[1]) as session:
        hello = await session.initialize()
        assert hello.protocolVersion == "2025-11-25", hello
        assert "run_python" in {tool.name for tool in (await session.list_tools()).tools}
        result = await session.call_tool("run_python", {"code": CODE})
        assert result.content[0].text == "42", result
        read = await session.read_resource(result.content[1].uri)
        assert read.contents[0].text == "hi", read
        steps: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.3)"
        await session.call_tool("run_python", {"code": code}, progress_callback=on_progress)
        assert steps == sorted(steps) and steps, steps
        try:
            await session.call_tool("run_python", {"code": "time.sleep(60)"}, timedelta(seconds=1))
            raise AssertionError("the call did not time out")
        except Exception as problem:
            assert "imed out" in str(problem), problem
        await session.call_tool("interrupt", {})  # this client does not report that it has given up
        result = await session.call_tool("run_python", {"code": "1 + 1"}, timedelta(seconds=30))
        assert result.content[0].text == "2", result
    print("ok")


asyncio.run(main(sys.argv[1]))
