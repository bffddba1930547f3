"""Pydantic AI: a workspace backend with commands and files.

    from glovebox.integrations.pydantic_ai import GloveboxWorkspaceBackend

    backend = GloveboxWorkspaceBackend(memory="1g")
    result = await agent.run("…", workspace=backend)  # tools find it as context.workspace
    await backend.delete()

Needs `pydantic-ai-slim` (`pip install "glovebox-sandbox[pydantic-ai]"`).
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    SupportsCommands,
    SupportsFilesystem,
    SupportsRealpath,
    WorkspaceBackend,
    WorkspaceCommand,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from .. import AsyncSandbox
from ..errors import FileMissingError, SandboxClosedError, SandboxNotFoundError
from . import _posix

PROVIDER = "glovebox"
PLACE_OPTIONS = ("socket", "url", "api_key", "start")  # which daemon: what connect() takes as well


class GloveboxWorkspaceBackend(WorkspaceBackend, SupportsCommands, SupportsFilesystem, SupportsRealpath):  # type: ignore[misc,unused-ignore]
    """A sandbox, made at the first use with these options of Sandbox.create(), or found again by its `ref`.

    The sandbox outlives the backend and the program, as Pydantic AI wants: `delete()` removes it. Commands take turns.
    """

    def __init__(self, ref: WorkspaceRef | None = None, **options: Any) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"the workspace is of {ref.provider!r}, not of {PROVIDER!r}")
        self._ref = ref
        self._options = options
        self._sandbox: AsyncSandbox | None = None
        self._opening: asyncio.Task[AsyncSandbox] | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def working_dir(self) -> str:
        async with self._use() as sandbox:
            await sandbox.info()
        return _posix.WORKSPACE

    async def delete(self) -> None:
        """Removes the sandbox and its files."""
        async with self._use() as sandbox:
            await sandbox.kill()

    async def run(
        self, command: WorkspaceCommand, *, shell: bool = False, env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:  # fmt: skip
        if isinstance(command, str) != shell:
            raise TypeError("a text needs shell=True, and a list of words shell=False")
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError("timeout must be a positive finite number or None")
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        async with self._use() as sandbox:
            done = await _posix.run_argv(sandbox, argv, env=dict(env or {}), timeout=timeout)
            if done.status == "timeout":
                words = done.error or "the time limit was reached"
                raise WorkspaceTimeoutError(words, stdout=done.stdout, stderr=done.stderr)
            if done.status not in ("ok", "error"):
                await sandbox.info()  # raises where the sandbox went away, and the command with it
            stderr = f"{done.stderr}{done.error}\n" if done.error else done.stderr
            return CommandResult(exit_code=done.exit_code, stdout=done.stdout, stderr=stderr)

    async def read_bytes(self, path: str) -> bytes:
        async with self._use() as sandbox:
            return await _posix.read_bytes(sandbox, path) or b""

    async def write_bytes(self, path: str, data: bytes) -> None:
        async with self._use() as sandbox:
            await _posix.write_bytes(sandbox, path, data)

    async def stat(self, path: str) -> FileEntry:
        async with self._use() as sandbox:
            return _entry(await _posix.stat(sandbox, path))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        async with self._use() as sandbox:
            return [_entry(found) for found in await _posix.list_dir(sandbox, path)]

    async def make_dir(self, path: str) -> None:
        async with self._use() as sandbox:
            await _posix.make_dir(sandbox, path)

    async def remove(self, path: str) -> None:
        whole = posixpath.normpath(_posix.absolute(path))
        if (_posix.WORKSPACE + "/").startswith(whole.rstrip("/") + "/"):
            raise ValueError(f"{path} is the working directory or one above it; remove what is in it instead")
        async with self._use() as sandbox:
            await _posix.remove(sandbox, whole)

    async def exists(self, path: str) -> bool:
        async with self._use() as sandbox:
            try:
                info = await sandbox.files.get_info(path)  # does not wait for a command that runs
                if info.type == "link":
                    await _posix.stat(sandbox, path)
            except (FileMissingError, FileNotFoundError):
                return False
        return True

    async def realpath(self, path: str) -> str:
        async with self._use() as sandbox:
            return await _posix.realpath(sandbox, path)

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[AsyncSandbox]:
        """The sandbox, made or found at the first use. One that was removed raises Pydantic AI's exception."""
        try:
            if self._sandbox is None:
                if self._opening is None:
                    self._opening = asyncio.ensure_future(self._open())
                opening = self._opening
                try:
                    await asyncio.shield(opening)  # a caller that is cancelled leaves it to the others
                except Exception:
                    if self._opening is opening:
                        self._opening = None  # the next use tries again
                    raise
            assert self._sandbox is not None
            yield self._sandbox
        except (SandboxClosedError, SandboxNotFoundError) as error:
            raise WorkspaceUnavailableError(str(error)) from error

    async def _open(self) -> AsyncSandbox:
        if self._ref is not None:
            place = {name: value for name, value in self._options.items() if name in PLACE_OPTIONS}
            self._sandbox = await AsyncSandbox.connect(self._ref.id, **place)
        else:
            options = {"name": f"workspace-{os.urandom(6).hex()}", **self._options}
            self._sandbox = await AsyncSandbox.create(**options)
            self._ref = WorkspaceRef(provider=PROVIDER, id=self._sandbox.id)
        return self._sandbox


def _entry(found: tuple[str, bool, int | None]) -> FileEntry:
    path, is_dir, size = found
    return FileEntry(name=posixpath.basename(path.rstrip("/")), path=path, is_dir=is_dir, size=size)
