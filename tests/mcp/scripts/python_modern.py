"""The official Python client, second generation: uses the newest revision."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import httpx2 as httpx  # the client's own
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

CODE = "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/a.txt', 'w').write('hi')\n6 * 7"


def transport(kind: str) -> Any:
    if kind == "stdio":
        command, *args = json.loads(os.environ["MCP_SERVER"])
        return stdio_client(StdioServerParameters(command=command, args=args))
    http = httpx.AsyncClient(headers={"Authorization": f"Bearer {os.environ['MCP_KEY']}"}, timeout=60)
    return streamable_http_client(os.environ["MCP_URL"], http_client=http)


async def main(kind: str) -> None:
    async with Client(transport(kind)) as client:
        assert client.protocol_version == "2026-07-28", client.protocol_version
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "run_python" in names, names
        result = await client.call_tool("run_python", {"code": CODE})
        assert result.content[0].text == "42", result
        read = await client.read_resource(str(result.content[1].uri))
        assert read.contents[0].text == "hi", read
        steps: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.3)"
        await client.call_tool("run_python", {"code": code}, progress_callback=on_progress)
        assert steps == sorted(steps) and steps, steps
        try:
            await asyncio.wait_for(client.call_tool("run_python", {"code": "time.sleep(60)"}), 1)
        except TimeoutError:
            pass
        result = await asyncio.wait_for(client.call_tool("run_python", {"code": "1 + 1"}), 30)
        assert result.content[0].text == "2", result
    print("ok")


asyncio.run(main(sys.argv[1]))
