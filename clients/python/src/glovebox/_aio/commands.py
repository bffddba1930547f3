"""Commands in a sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, Union, overload

from .._options import env_of, timeout_ms
from ..errors import CommandExitError, FileMissingError, InvalidArgumentError
from ..models import CommandResult, artifact_of
from .background import AsyncCommandHandle, start_background
from .files import WORKSPACE, Data, PathLike, absolute
from .runs import AsyncRunReader, run_to_end

if TYPE_CHECKING:
    from typing import Literal

    from .sandbox import AsyncSandbox

Command = Union[str, Sequence[str]]
Callback = Callable[[str], Any]


class AsyncCommands:
    """Commands in a sandbox: `sandbox.commands`. They see the same files as the code.

    A string is run by the shell; a list is a program and its arguments, without a shell.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    @overload
    async def run(
        self, cmd: Command, *, background: Literal[False] = False, check: bool = True, stdin: Data | None = None,
        env: Mapping[str, str] | None = None, cwd: PathLike | None = None, timeout: float | None = None,
        user: str | None = None, on_stdout: Callback | None = None, on_stderr: Callback | None = None,
    ) -> CommandResult: ...  # fmt: skip

    @overload
    async def run(
        self, cmd: Command, *, background: Literal[True], check: bool = True, stdin: Data | None = None,
        env: Mapping[str, str] | None = None, cwd: PathLike | None = None, timeout: float | None = None,
        user: str | None = None, on_stdout: Callback | None = None, on_stderr: Callback | None = None,
    ) -> AsyncCommandHandle: ...  # fmt: skip

    async def run(
        self, cmd: Command, *, background: bool = False, check: bool = True, stdin: Data | None = None,
        env: Mapping[str, str] | None = None, cwd: PathLike | None = None, timeout: float | None = None,
        user: str | None = None, on_stdout: Callback | None = None, on_stderr: Callback | None = None,
    ) -> CommandResult | AsyncCommandHandle:  # fmt: skip
        """Runs a command to its end, or with `background=True` returns a handle at once.

        `check=True` raises CommandExitError unless it ends with status 0. `stdin` is what it reads (text, bytes, an
        open file); by default the input is empty. `cwd` is /workspace unless given. `timeout` is in seconds: then it
        is interrupted, and killed if it does not react; by default the sandbox's limit applies. `on_stdout` and
        `on_stderr` get the output as it is written.

        `user` is who runs it, by name or number, as /etc/passwd of the sandbox has it: for sandboxes created with
        `users=True`. By default it is the sandbox's own user, as for code.

        Commands and code of `run_code` execute one after the other. A background command starts when its turn comes
        and then runs beside them; it has no time limit, and ends when the sandbox ends or restarts.
        """
        what: dict[str, Any] = {"shell": cmd} if isinstance(cmd, str) else {"argv": [str(part) for part in cmd]}
        what["cwd"] = WORKSPACE if cwd is None else absolute(cwd)
        if env is not None:
            what["env"] = env_of(env)
        if user is not None and background:
            raise InvalidArgumentError("a command in the background runs as the sandbox's own user; leave `user` out")
        if user is not None:
            what["user"] = user
        if background:
            return await start_background(self._sandbox, what, stdin, check, on_stdout, on_stderr)
        if stdin is None:
            return await self._run(cmd, what, check, timeout, on_stdout, on_stderr)
        path = f"{WORKSPACE}/.glovebox/stdin-{os.urandom(8).hex()}"
        await self._sandbox.files.write(path, stdin)
        try:
            return await self._run(cmd, {**what, "stdin": path}, check, timeout, on_stdout, on_stderr)
        finally:
            try:
                await self._sandbox.files.remove(path)
            except FileMissingError:
                pass

    async def _run(
        self, cmd: Command, what: dict[str, Any], check: bool, timeout: float | None, on_stdout: Callback | None,
        on_stderr: Callback | None,
    ) -> CommandResult:  # fmt: skip
        fields = self._sandbox._fields(**what, **timeout_ms(timeout))
        reader = AsyncRunReader(self._sandbox._transport, "command", fields)
        raw = await self._sandbox._guard(run_to_end, reader, on_stdout, on_stderr)
        error = raw.get("error") or None
        result = CommandResult(
            raw.get("exit_code") or 0,
            "".join(reader.logs.stdout),
            "".join(reader.logs.stderr),
            raw.get("status") or "",
            str(error.get("value", "")) if isinstance(error, dict) else error,
            raw.get("duration_ms") or 0,
            [artifact_of(item) for item in raw.get("artifacts") or []],
        )
        return checked(cmd, result) if check else result


def checked(cmd: Command, result: CommandResult) -> CommandResult:
    if result.ok:
        return result
    import shlex

    text = cmd if isinstance(cmd, str) else " ".join(shlex.quote(str(part)) for part in cmd)
    why = result.error or result.stderr.strip()[-2000:] or result.stdout.strip()[-2000:] or "it printed nothing"
    raise CommandExitError(
        f"`{text[:500]}` ended with status {result.exit_code}: {why} (check=False returns the result instead)", result
    )
