"""LlamaIndex: tools that run Python and commands.

    from glovebox.integrations.llama_index import GloveboxToolSpec
    from llama_index.core.agent.workflow import FunctionAgent

    with GloveboxToolSpec(memory="1g") as spec:
        agent = FunctionAgent(llm=llm, tools=spec.to_tool_list())

Needs `llama-index-core` (`pip install "glovebox-sandbox[llama-index]"`).
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from llama_index.core.tools.tool_spec.base import BaseToolSpec

from .. import Sandbox
from ..errors import GloveboxError
from ..models import CommandResult
from ._boxes import Boxes, as_async, cut, describe


class GloveboxToolSpec(BaseToolSpec):  # type: ignore[misc,unused-ignore]
    """Python whose variables stay, commands and files in a sandbox: the one given, or one made on first use.

    `timeout` is that of each call, in seconds; `options` are those of `Sandbox.create`. What fails in the sandbox is
    an answer that the model can read. `close()`, or the end of the `with` block, ends a sandbox of its own.
    """

    spec_functions: ClassVar[list[Any]] = [
        ("run_python", "arun_python"),
        ("run_command", "arun_command"),
        "read_file",
        "write_file",
    ]

    def __init__(self, sandbox: Sandbox | None = None, *, timeout: float | None = None, **options: Any) -> None:
        self._boxes = Boxes(sandbox, options)
        self._timeout = timeout

    @property
    def sandbox(self) -> Sandbox:
        return self._boxes.get()

    def run_python(self, code: str) -> str:
        """Run Python in an isolated sandbox; returns what it printed and the value of its last expression.

        Variables, imports and files stay between calls. Files are in /workspace.
        """
        return describe(self.sandbox.run_code(code, timeout=self._timeout))

    async def arun_python(self, code: str) -> str:
        """The same with `await`."""
        return describe(await (await self._async_sandbox()).run_code(code, timeout=self._timeout))

    def run_command(self, command: str) -> str:
        """Run a shell command in the sandbox, in /workspace; returns its output and, if it fails, its exit status."""
        return _words_for(self.sandbox.commands.run(command, check=False, timeout=self._timeout))

    async def arun_command(self, command: str) -> str:
        """The same with `await`."""
        sandbox = await self._async_sandbox()
        return _words_for(await sandbox.commands.run(command, check=False, timeout=self._timeout))

    def read_file(self, path: str) -> str:
        """Read a text file of the sandbox; a relative path starts at /workspace."""
        try:
            return cut(self.sandbox.files.read(path))
        except (GloveboxError, UnicodeDecodeError) as error:
            return f"[{path} could not be read: {error}]"

    def write_file(self, path: str, content: str) -> str:
        """Write a text file in the sandbox, with the directories above it; a relative path starts at /workspace."""
        try:
            self.sandbox.files.write(path, content)
        except GloveboxError as error:
            return f"[{path} could not be written: {error}]"
        return f"[{len(content)} characters written to {path}]"

    def close(self) -> None:
        """Ends the sandbox, unless it was given."""
        self._boxes.close()

    def __enter__(self) -> GloveboxToolSpec:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def _async_sandbox(self) -> Any:
        return as_async(await asyncio.to_thread(self._boxes.get))


def _words_for(done: CommandResult) -> str:
    parts = [cut(done.stdout), cut(done.stderr)]
    if done.error:
        parts.append(done.error)
    if not done.ok:
        parts.append(f"[exit status {done.exit_code}]")
    return "\n".join(part.rstrip("\n") for part in parts if part) or "[no output; exit status 0]"
