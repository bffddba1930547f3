"""AG2: the sandbox of its code and shell tools.

    from ag2 import Agent
    from ag2.tools import SandboxCodeTool
    from glovebox.integrations.ag2 import GloveboxSandbox

    agent = Agent("coder", config=config, tools=[SandboxCodeTool(GloveboxSandbox(memory="1g"))])

Needs `ag2` (`pip install "glovebox-sandbox[ag2]"`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from ag2.tools.sandbox import ExecResult, SandboxBase

from .. import AsyncSandbox, Sandbox
from ..errors import FileMissingError
from ._boxes import Boxes, as_async

WORKDIR = PurePosixPath("/workspace")
TIMEOUT_STATUS = 124  # as timeout(1) has it


class GloveboxSandbox(SandboxBase):  # type: ignore[misc,unused-ignore]
    """Commands and files of an agent in a sandbox: the one given, or one made on first use with these options.

    It is AG2's `Sandbox` and its `SandboxFactory` in one: every call uses the same sandbox, so files stay. `aclose()`
    ends it, unless it was given; a program that ends does so as well.
    """

    def __init__(self, sandbox: Sandbox | None = None, **options: Any) -> None:
        self._boxes = Boxes(sandbox, options)

    @property
    def workdir(self) -> PurePosixPath:
        return WORKDIR

    @property
    def host_workdir(self) -> Path | None:
        """None: files are read and written through the sandbox only."""
        return None

    @asynccontextmanager
    async def open(self, context: Any = None) -> AsyncIterator[GloveboxSandbox]:
        yield self

    async def exec(
        self, argv: list[str], *, env: dict[str, str] | None = None, timeout: float | None = None
    ) -> ExecResult:
        """Runs a program. Status 124: its time was up; 127: there is no such program."""
        if not argv:
            return ExecResult(output="", exit_code=2)
        done = await (await self._sandbox()).commands.run(argv, check=False, env=env, timeout=timeout)
        parts = [done.stdout, done.stderr, done.error if done.status not in ("ok", "error") else None]
        output = "\n".join(part.strip("\n") for part in parts if part)
        return ExecResult(output=output, exit_code=TIMEOUT_STATUS if done.status == "timeout" else done.exit_code)

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        await (await self._sandbox()).files.write(str(_below(path)), content)

    async def remove_file(self, path: PurePosixPath) -> None:
        try:
            await (await self._sandbox()).files.remove(str(_below(path)))
        except FileMissingError:
            pass

    async def aclose(self) -> None:
        await asyncio.to_thread(self._boxes.close)

    async def _sandbox(self) -> AsyncSandbox:
        return as_async(await asyncio.to_thread(self._boxes.get))


def _below(path: PurePosixPath) -> PurePosixPath:
    if path.is_absolute():
        raise ValueError(f"{path} is absolute; give a path relative to {WORKDIR}")
    return WORKDIR / path
