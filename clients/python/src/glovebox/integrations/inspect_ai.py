"""Inspect (inspect-ai): a sandbox environment of the name "glovebox".

    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample

    task = Task(dataset=[Sample("…")], solver=solver, sandbox="glovebox")
    eval(task, model=model)

Options: `sandbox=SandboxEnvironmentSpec("glovebox", GloveboxConfig(memory="1g"))`; a text is the name of an image.
Needs `inspect-ai` (`pip install "glovebox-sandbox[inspect-ai]"`); the entry point `inspect_ai` registers it.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from .. import AsyncSandbox
from ..errors import ConnectionLostError, DaemonUnavailableError, SandboxClosedError, UnsupportedError
from ._posix import read_bytes, run_argv, write_bytes

NOT_EXECUTABLE = 126


class GloveboxConfig(BaseModel):  # type: ignore[misc,unused-ignore]
    """Options of each sample's sandbox, as Sandbox.create() has them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: int | str | None = None
    cpus: float | None = None
    timeout: float | None = None
    pids: int | None = None
    disk: int | str | None = None
    network: bool | tuple[str, ...] | None = None
    packages: tuple[str, ...] = ()
    image: str | None = None
    socket: str | None = None
    url: str | None = None
    users: bool | None = None  # None: if the daemon can; False: one user, and a quicker start


@sandboxenv(name="glovebox")
class GloveboxSandboxEnvironment(SandboxEnvironment):  # type: ignore[misc,unused-ignore]
    """A sandbox for each sample, with root and other users where the daemon runs as root. Its commands take turns."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        if isinstance(config, str):
            config = GloveboxConfig(image=config)
        options = config.model_dump(exclude_none=True) if config is not None else {}
        return {"default": cls(await _create(options))}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: BaseModel | str | None, environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:  # fmt: skip
        for environment in environments.values():
            await environment.as_type(cls).sandbox.kill()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return GloveboxConfig(**config)

    async def exec(
        self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None,
        env: dict[str, str] | None = None, user: str | None = None, timeout: int | None = None,
        timeout_retry: bool = True, concurrency: bool = True,
    ) -> ExecResult[str]:  # fmt: skip
        try:
            done = await run_argv(self.sandbox, cmd, stdin=input, cwd=cwd, env=env, timeout=timeout, user=user)
        except UnsupportedError as error:
            raise SandboxUserUnsupportedError(str(error)) from error
        except (SandboxClosedError, ConnectionLostError, DaemonUnavailableError) as error:
            raise SandboxUnavailableError(str(error)) from error
        _check_size(done.stdout)
        _check_size(done.stderr)
        if done.status == "timeout":
            raise TimeoutError(done.error or "the time limit was reached")
        if done.exit_code == NOT_EXECUTABLE and "permission denied" in done.stderr.lower():
            raise PermissionError(done.stderr.strip())
        stderr = f"{done.stderr}{done.error}\n" if done.error else done.stderr
        return ExecResult(done.exit_code == 0, done.exit_code, done.stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        await write_bytes(self.sandbox, file, contents.encode() if isinstance(contents, str) else contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        content = await read_bytes(self.sandbox, file, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        if content is None:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else content


async def _create(options: dict[str, Any]) -> AsyncSandbox:
    if "users" in options:
        return await AsyncSandbox.create(**options)
    try:
        return await AsyncSandbox.create(**options, users=True)
    except UnsupportedError:
        return await AsyncSandbox.create(**options)


def _check_size(output: str) -> None:
    limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    if len(output) > limit // 4 and len(output.encode()) > limit:  # a character has at most 4 bytes
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, output[:limit])
