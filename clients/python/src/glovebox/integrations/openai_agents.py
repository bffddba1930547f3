"""OpenAI Agents SDK: a sandbox client for `SandboxAgent`.

    from agents import RunConfig, Runner
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from glovebox.integrations.openai_agents import GloveboxSandboxClient

    sandbox = SandboxRunConfig(client=GloveboxSandboxClient())
    await Runner.run(SandboxAgent(name="…", model=model), "…", run_config=RunConfig(sandbox=sandbox))

Needs `openai-agents` (`pip install "glovebox-sandbox[openai-agents]"`).
"""

from __future__ import annotations

import io
import os
import shlex
import uuid
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User

from .. import AsyncSandbox
from ..errors import GloveboxError, SandboxNotFoundError
from . import _posix


class GloveboxSandboxClientOptions(BaseSandboxClientOptions):  # type: ignore[misc,unused-ignore]
    """Options of a session's sandbox, as Sandbox.create() has them."""

    type: Literal["glovebox"] = "glovebox"
    memory: int | str | None = None
    cpus: float | None = None
    timeout: float | None = None
    network: bool | tuple[str, ...] | None = None
    packages: tuple[str, ...] = ()
    image: str | None = None


class GloveboxSandboxSessionState(SandboxSessionState):  # type: ignore[misc,unused-ignore]
    type: Literal["glovebox"] = "glovebox"
    sandbox_id: str
    options: GloveboxSandboxClientOptions


class GloveboxSandboxSession(BaseSandboxSession):  # type: ignore[misc,unused-ignore]
    """One sandbox. It has one user, no terminals and no published ports."""

    def __init__(self, state: GloveboxSandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self.sandbox = sandbox

    async def _prepare_backend_workspace(self) -> None:
        await _posix.make_dir(self.sandbox, self.state.manifest.root)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        allowed: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return allowed

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        env = await self.state.manifest.environment.resolve()
        words = [str(word) for word in command]
        try:
            done = await _posix.run_argv(self.sandbox, words, cwd=self.state.manifest.root, env=env, timeout=timeout)
        except GloveboxError as error:
            raise ExecTransportError(command=command, cause=error) from error
        if done.status == "timeout":
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        stderr = f"{done.stderr}{done.error}\n" if done.error else done.stderr
        return ExecResult(stdout=done.stdout.encode(), stderr=stderr.encode(), exit_code=done.exit_code)

    async def read(self, path: Path | str, *, user: str | User | None = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        allowed = await self._validate_path_access(path)
        try:
            return io.BytesIO(await _posix.read_bytes(self.sandbox, allowed.as_posix()) or b"")
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=Path(path), cause=error) from error
        except (OSError, GloveboxError) as error:
            raise WorkspaceArchiveReadError(path=Path(path), cause=error) from error

    async def write(self, path: Path | str, data: io.IOBase, *, user: str | User | None = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        allowed = await self._validate_path_access(path, for_write=True)
        try:
            await _posix.write_bytes(self.sandbox, allowed.as_posix(), _bytes_of(data))
        except (OSError, GloveboxError) as error:
            raise WorkspaceArchiveWriteError(path=Path(path), cause=error) from error

    async def running(self) -> bool:
        return await self.sandbox.is_running()

    async def persist_workspace(self) -> io.IOBase:
        root = self.state.manifest.root
        archive = _archive_path()
        excluded = [*shell_tar_exclude_args(self._persist_workspace_skip_relpaths()), "--exclude=./.glovebox"]
        command = (
            f"mkdir -p {_posix.WORKSPACE}/.glovebox && tar {' '.join(excluded)} -C {shlex.quote(root)} -cf {archive} ."
        )
        try:
            await self.sandbox.commands.run(command)
            content = await self.sandbox.files.read(archive, "bytes")
            await self.sandbox.files.remove(archive)
        except GloveboxError as error:
            raise WorkspaceArchiveReadError(path=Path(root), cause=error) from error
        return io.BytesIO(content)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacks in the box: a malicious archive can harm only this sandbox."""
        root = self.state.manifest.root
        archive = _archive_path()
        try:
            await self.sandbox.files.write(archive, _bytes_of(data))
            await self.sandbox.commands.run(f"mkdir -p {shlex.quote(root)} && tar -C {shlex.quote(root)} -xf {archive}")
            await self.sandbox.files.remove(archive)
        except GloveboxError as error:
            raise WorkspaceArchiveWriteError(path=Path(root), cause=error) from error


class GloveboxSandboxClient(BaseSandboxClient[GloveboxSandboxClientOptions | None]):  # type: ignore[misc,unused-ignore]
    """Makes sandboxes for runs. `place` says which daemon: socket, url, api_key, as Sandbox.create() has them.

    A sandbox stays until `delete()`, so that a session can be resumed in another program.
    """

    backend_id = "glovebox"
    supports_default_options = True

    def __init__(self, *, instrumentation: Instrumentation | None = None, **place: Any) -> None:
        self._place = place
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()

    async def create(
        self, *, snapshot: SnapshotSpec | SnapshotBase | None = None, manifest: Manifest | None = None,
        options: GloveboxSandboxClientOptions | None = None,
    ) -> SandboxSession:  # fmt: skip
        manifest = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        options = options if options is not None else GloveboxSandboxClientOptions()
        sandbox = await self._make(options)
        session_id = uuid.uuid4()
        state = GloveboxSandboxSessionState(
            session_id=session_id, manifest=manifest, snapshot=resolve_snapshot(snapshot, str(session_id)),
            sandbox_id=sandbox.id, options=options,
        )  # fmt: skip
        return self._wrap_session(GloveboxSandboxSession(state, sandbox), instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, GloveboxSandboxSession):
            raise TypeError("GloveboxSandboxClient.delete() takes a session of a GloveboxSandboxClient")
        await inner.sandbox.kill()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Finds the sandbox again. If it is gone, a new one is made and filled from the snapshot."""
        if not isinstance(state, GloveboxSandboxSessionState):
            raise TypeError("GloveboxSandboxClient.resume() takes a state of a GloveboxSandboxClient")
        state.assert_path_grants_rebound()
        try:
            sandbox = await AsyncSandbox.connect(state.sandbox_id, **self._place)
            is_same = True
        except SandboxNotFoundError:
            sandbox = await self._make(state.options)
            is_same = False
            state.sandbox_id = sandbox.id
            state.workspace_root_ready = False
        inner = GloveboxSandboxSession(state, sandbox)
        inner._set_start_state_preserved(is_same, system=is_same)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, GloveboxSandboxSessionState)

    async def _make(self, options: GloveboxSandboxClientOptions) -> AsyncSandbox:
        chosen = options.model_dump(exclude_none=True, exclude={"type"})
        chosen.pop("type", None)
        return await AsyncSandbox.create(f"openai-agents-{os.urandom(6).hex()}", **chosen, **self._place)


def _archive_path() -> str:
    return f"{_posix.WORKSPACE}/.glovebox/archive-{os.urandom(8).hex()}.tar"


def _bytes_of(data: io.IOBase) -> bytes:
    content = data.read()  # type: ignore[attr-defined,unused-ignore]
    return content.encode() if isinstance(content, str) else bytes(content)
