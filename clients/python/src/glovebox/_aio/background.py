"""Commands that run beside the code. A supervisor in the box keeps their output in files of the workspace.

The other half is guest/kernel/glovebox_kernel/background.py, which describes the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Callable

from ..errors import FileMissingError, GloveboxError
from ..models import CommandResult, StderrEvent, StdoutEvent
from . import io
from .files import WORKSPACE, Data, pieces_of

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

PAUSE_MIN_S = 0.004
PAUSE_MAX_S = 0.1
LOST_AFTER_S = 15.0
SIGNALS = {"INT": 2, "KILL": 9, "TERM": 15, "HUP": 1, "USR1": 10, "USR2": 12, "STOP": 19, "CONT": 18}
_MODULE = "__import__('glovebox_kernel.background', fromlist=['start'])"


async def start_background(
    sandbox: AsyncSandbox, what: dict[str, Any], stdin: Data | None, check: bool,
    on_stdout: Callable[[str], Any] | None, on_stderr: Callable[[str], Any] | None,
) -> AsyncCommandHandle:  # fmt: skip
    directory = f"{WORKSPACE}/.glovebox/command-{os.urandom(8).hex()}"
    argv = what.get("argv") or ["", "-c", what["shell"]]
    code = f"{_MODULE}.start({directory!r}, {argv!r}, {what['cwd']!r}, {what.get('env') or {}!r})"
    pid = await sandbox._evaluate(code)
    handle = AsyncCommandHandle(sandbox, directory, int(pid or 0), argv, check, on_stdout, on_stderr)
    if stdin is not None:
        await handle.send_stdin(stdin)
        await handle.close_stdin()
    return handle


class AsyncCommandHandle:
    """A command in the background: what `commands.run(…, background=True)` returns.

    Iterate over it for its output as it comes (StdoutEvent, StderrEvent), or `wait()` for its end. Its output is kept
    in the sandbox until `wait()` has returned.
    """

    def __init__(
        self, sandbox: AsyncSandbox, directory: str, pid: int, argv: list[str], check: bool,
        on_stdout: Callable[[str], Any] | None, on_stderr: Callable[[str], Any] | None,
    ) -> None:  # fmt: skip
        self._sandbox = sandbox
        self._directory = directory
        self._argv = argv
        self._check = check
        self._on = {"stdout": on_stdout, "stderr": on_stderr}
        self._read = {"stdout": 0, "stderr": 0}
        self._pieces: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._undecoded = {"stdout": b"", "stderr": b""}
        self._sent = 0
        self._exit_code: int | None = None
        self._started = self._looked = self._seen_alive = time.monotonic()
        self._touched = 0.0
        self.pid = pid

    @property
    def stdout(self) -> str:
        """Its output so far."""
        return "".join(self._pieces["stdout"])

    @property
    def stderr(self) -> str:
        return "".join(self._pieces["stderr"])

    @property
    def exit_code(self) -> int | None:
        """None while it runs; updated by `poll()`, `wait()` and iteration."""
        return self._exit_code

    async def poll(self) -> int | None:
        """Reads new output; returns the exit status, or None while it runs."""
        await self._read_some()
        return self._exit_code

    async def wait(self, timeout: float | None = None) -> CommandResult:
        """Waits for its end. Raises TimeoutError after `timeout` seconds; the command continues.

        Raises CommandExitError unless it ended with status 0 or `check=False` was given.
        """
        from .commands import checked

        deadline = None if timeout is None else time.monotonic() + timeout
        pause = PAUSE_MIN_S
        while self._exit_code is None:
            if await self._read_some():
                pause = PAUSE_MIN_S
            elif self._exit_code is None:
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"the command has not ended within {timeout:g} s and goes on: wait, or kill()")
                await io.sleep(pause)
                pause = min(pause * 1.5, PAUSE_MAX_S)
        duration_ms = (time.monotonic() - self._started) * 1000
        result = CommandResult(self._exit_code, self.stdout, self.stderr, duration_ms=duration_ms)
        argv = self._argv[2] if self._argv[0] == "" else self._argv
        return checked(argv, result) if self._check else result

    async def __aiter__(self) -> AsyncIterator[StdoutEvent | StderrEvent]:
        pause = PAUSE_MIN_S
        seen = {"stdout": 0, "stderr": 0}
        while True:
            ended = self._exit_code is not None
            got = await self._read_some() if not ended else False
            for kind, make in (("stdout", StdoutEvent), ("stderr", StderrEvent)):
                for text in self._pieces[kind][seen[kind] :]:
                    seen[kind] += 1
                    yield make(text)
            if ended:
                return
            if got:
                pause = PAUSE_MIN_S
            elif self._exit_code is None:
                await io.sleep(pause)
                pause = min(pause * 1.5, PAUSE_MAX_S)

    async def kill(self, signal: int | str = "KILL") -> bool:
        """Ends the command and its children. Returns False if it had ended."""
        if await self.poll() is not None:
            return False
        number = SIGNALS[signal.replace("SIG", "")] if isinstance(signal, str) else int(signal)
        await self._put("signal", str(number).encode())
        return True

    async def send_stdin(self, data: Data) -> None:
        """Writes to its standard input."""
        await self._put_pieces(f"in-{self._sent:06d}", data)
        self._sent += 1

    async def close_stdin(self) -> None:
        """Closes its standard input."""
        await self._put(f"in-{self._sent:06d}.end", b"")
        self._sent += 1

    async def _put(self, name: str, content: bytes) -> None:
        await self._put_pieces(name, content)

    async def _put_pieces(self, name: str, data: Data) -> None:
        if self._exit_code is not None:
            return
        transport = self._sandbox._transport
        path = f"{self._directory}/{name}"
        await self._sandbox._guard(transport.write_file, self._sandbox.id, path, pieces_of(data), False)

    async def _read_some(self) -> bool:
        """What is new of its output. Its end is looked at first, so that nothing written before it is missed."""
        if self._exit_code is not None:
            return False
        ended = await self._read_file("exit", 0)
        got = False
        for kind in ("stdout", "stderr"):
            piece = await self._read_file(kind, self._read[kind])
            if piece:
                got = True
                self._read[kind] += len(piece)
                await self._tell(kind, piece)
        if ended:
            for kind in ("stdout", "stderr"):
                await self._tell(kind, b"", True)
            self._exit_code = int(ended.decode() or 1)
            await self._remove()
        elif not got and ended is None and await self._is_lost():
            self._exit_code = 137
            self._pieces["stderr"].append("glovebox: the sandbox was restarted or died, and the command with it\n")
        return got

    async def _read_file(self, name: str, offset: int) -> bytes | None:
        """None: there is no such file."""
        transport = self._sandbox._transport
        try:
            pieces = transport.read_file(self._sandbox.id, f"{self._directory}/{name}", offset, None)
            return b"".join([piece async for piece in pieces])
        except GloveboxError as error:
            if error.code != "not_found":
                raise
            return None

    async def _tell(self, kind: str, piece: bytes, is_last: bool = False) -> None:
        whole = self._undecoded[kind] + piece
        end = len(whole)
        if not is_last:  # a character may be cut at the end
            while end > 0 and len(whole) - end < 3 and whole[end - 1] & 0xC0 == 0x80:
                end -= 1
            if end > 0 and whole[end - 1] >= 0xC0:
                end -= 1
            try:
                whole[end:].decode()
                end = len(whole)
            except UnicodeDecodeError:
                pass
        self._undecoded[kind] = whole[end:]
        text = whole[:end].decode("utf-8", "replace")
        callback = self._on[kind]
        if text:
            self._pieces[kind].append(text)
            if callback is not None:
                await io.call(callback, text)

    async def _is_lost(self) -> bool:
        """True if the supervisor has ended: while it runs, it touches the file `alive` every second."""
        now = time.monotonic()
        if now - self._looked < 1:
            return False
        self._looked = now
        try:
            touched = (await self._sandbox.files.get_info(f"{self._directory}/alive")).modified
        except FileMissingError:
            return True
        if touched != self._touched:
            self._touched, self._seen_alive = touched, now
        return now - self._seen_alive > LOST_AFTER_S

    async def _remove(self) -> None:
        try:
            await self._sandbox.files.remove(self._directory)
        except GloveboxError:
            pass
