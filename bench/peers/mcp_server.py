"""A code interpreter as most are built: a server on the official MCP SDK that passes code to ipykernel. A program of
its own, started by tables/mcp.py, which uses standard input and output."""

from __future__ import annotations

import asyncio
import queue

from jupyter_client.manager import AsyncKernelManager
from mcp.server.mcpserver import MCPServer

server = MCPServer("interpreter")
_kernel: list[object] = []


async def _client() -> object:
    if not _kernel:
        manager = AsyncKernelManager(kernel_name="python3")
        # Without a cache of results it prints no warning after a thousand of them.
        await manager.start_kernel(extra_arguments=["--InteractiveShell.cache_size=0"])
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        _kernel.extend([client, manager])
    return _kernel[0]


@server.tool()
async def run_python(code: str) -> str:
    """Run Python code; variables stay."""
    client = await _client()
    output: list[str] = []

    def collect(message: dict) -> None:
        if message["msg_type"] == "execute_result":
            output.append(message["content"]["data"]["text/plain"])
        elif message["msg_type"] == "stream":
            output.append(message["content"]["text"])

    try:
        await client.execute_interactive(code, timeout=120, output_hook=collect)
    except queue.Empty:
        return "timeout"
    return "".join(output)


if __name__ == "__main__":
    asyncio.run(server.run_stdio_async())
