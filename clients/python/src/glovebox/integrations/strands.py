"""Strands Agents: a sandbox for an agent's commands, code and files.

    from strands import Agent
    from glovebox.integrations.strands import GloveboxSandbox

    with GloveboxSandbox(memory="1g") as sandbox:
        Agent(model=model, sandbox=sandbox)("…")  # has the tools sandbox_shell and sandbox_file_editor

Needs `strands-agents` (`pip install "glovebox-sandbox[strands]"`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from strands.sandbox.base import ExecutionResult, FileInfo, StreamChunk
from strands.sandbox.errors import SandboxPathNotFoundError, SandboxTimeoutError
from strands.sandbox.posix_shell import PosixShellSandbox
from strands.types.tools import AgentTool
from strands.vended_tools.file_editor import make_file_editor
from strands.vended_tools.shell import make_shell

from .. import AsyncSandbox, Sandbox
from .._aio.client import transport_for
from ..models import CommandResult
from . import _posix


class GloveboxSandbox(PosixShellSandbox):  # type: ignore[misc,unused-ignore]
    """The sandbox given, or one of its own, made with these options of Sandbox.create()."""

    def __init__(self, sandbox: Sandbox | None = None, **options: Any) -> None:
        self._is_owner = sandbox is None
        self.sandbox = sandbox if sandbox is not None else Sandbox.create(**options)
        self._async = AsyncSandbox(transport_for(self.sandbox._transport.target), self.sandbox.info(), False, False)

    async def execute_streaming(
        self, command: str, *, timeout: float | None = None, cwd: str | None = None,
        env: dict[str, str] | None = None, **kwargs: Any,
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:  # fmt: skip
        chunks: asyncio.Queue[StreamChunk | None] = asyncio.Queue()

        async def run() -> CommandResult:
            try:
                return await self._async.commands.run(
                    command, timeout=timeout, cwd=cwd, env=env, check=False,
                    on_stdout=lambda text: chunks.put_nowait(StreamChunk(text, "stdout")),
                    on_stderr=lambda text: chunks.put_nowait(StreamChunk(text, "stderr")),
                )  # fmt: skip
            finally:
                chunks.put_nowait(None)

        running = asyncio.ensure_future(run())
        try:
            while (chunk := await chunks.get()) is not None:
                yield chunk
            done = await running
        finally:
            running.cancel()  # the reader stopped: interrupt the command
        if done.status == "timeout":
            raise SandboxTimeoutError(timeout, done.stdout, done.stderr)
        stderr = f"{done.stderr}{done.error}\n" if done.error else done.stderr
        yield ExecutionResult(done.exit_code, done.stdout, stderr)

    async def read_file(self, path: str, **kwargs: Any) -> bytes:
        return await _posix.read_bytes(self._async, path) or b""

    async def write_file(self, path: str, content: bytes, **kwargs: Any) -> None:
        await _posix.write_bytes(self._async, path, content)

    async def remove_file(self, path: str, **kwargs: Any) -> None:
        await _posix.remove(self._async, path)

    async def list_files(self, path: str, **kwargs: Any) -> list[FileInfo]:
        try:
            found = await _posix.list_dir(self._async, path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SandboxPathNotFoundError(path) from error
        return [FileInfo(where.rpartition("/")[2], is_dir, size) for where, is_dir, size in found]

    def get_tools(self) -> list[AgentTool]:
        return [
            make_file_editor(sandbox=self, name="sandbox_file_editor"),
            make_shell(sandbox=self, name="sandbox_shell"),
        ]

    def close(self) -> None:
        """Ends the sandbox, unless it was given."""
        if self._is_owner:
            self.sandbox.kill()

    def __enter__(self) -> GloveboxSandbox:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
