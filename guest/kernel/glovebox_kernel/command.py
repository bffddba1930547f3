"""Commands: run by the kernel, in the session's box, with the kernel's own streams.

Its output goes straight into the pipes that the host reads; nothing of it passes through Python.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable

from glovebox_kernel.one_shot import text_open

EXIT_CANNOT_RUN = 126
EXIT_NOT_FOUND = 127


class CommandError(Exception):
    """The request has no command."""


def command_check(request: dict[str, Any]) -> list[str]:
    argv = request.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(a, str) and "\0" not in a for a in argv):
        raise CommandError("argv must be a list of texts")
    environment_check(request)
    if not isinstance(request.get("stdin", ""), str):
        raise CommandError("stdin must be a path")
    if not isinstance(request.get("stdin_text", ""), str):
        raise CommandError("stdin_text must be a text")
    if not isinstance(request.get("user", ""), str):
        raise CommandError("user must be a text")
    return argv


def environment_check(request: dict[str, Any]) -> None:
    env = request.get("env", {})
    if not isinstance(env, dict) or not all(_is_variable(name, value) for name, value in env.items()):
        raise CommandError("env must be an object of texts")


def _is_variable(name: str, value: Any) -> bool:
    return isinstance(value, str) and "\0" not in name + value and name != "" and "=" not in name


@contextlib.contextmanager
def environment_lent(env: dict[str, str] | None) -> Iterator[None]:
    """Variables for one run of code; afterwards those names are as they were before."""
    if not env:
        yield
        return
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _argv_of(request: dict[str, Any]) -> list[str]:
    argv: list[str] = request["argv"]
    if request.get("python"):  # this very interpreter, wherever the image has it
        return [sys.executable, *argv]
    if not argv[0]:  # a shell command: the image's best shell
        return ["/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", *argv[1:]]
    return argv


def _start_process(request: dict[str, Any], argv: list[str], stdin: Any) -> Any:
    if "user" in request:
        from glovebox_kernel.user_process import UserProcess

        return UserProcess(request["id"], stdin if isinstance(stdin, int) else stdin.fileno())
    env = {**os.environ, **request.get("env", {})}
    return subprocess.Popen(
        argv, cwd=request.get("cwd"), env=env, stdin=stdin, stdout=1, stderr=2, start_new_session=True
    )


def command_run(request: dict[str, Any], show: Callable[[dict[str, str]], None] | None = None) -> int:
    """Runs it to its end; the exit status as in a shell. An interrupt ends its whole group and is passed on."""
    argv = _argv_of(request)
    token = request.get("input") if show else None
    write_fd = -1
    try:
        with contextlib.ExitStack() as stack:
            stdin: Any = stack.enter_context(open(request.get("stdin") or os.devnull, "rb"))
            if "stdin_text" in request:
                stdin = text_open(request["stdin_text"])
                stack.callback(os.close, stdin)
            elif token is not None:
                read_fd, write_fd = os.pipe()
                stack.callback(os.close, read_fd)
                stdin = read_fd
            process = _start_process(request, argv, stdin)
    except FileNotFoundError as error:
        os.write(2, f"glovebox: {error.filename or argv[0]}: there is no such command or directory\n".encode())
        return EXIT_NOT_FOUND
    except (PermissionError, OSError) as error:
        os.write(2, f"glovebox: {argv[0]}: {error.strerror or error}\n".encode())
        return EXIT_CANNOT_RUN
    try:
        if show is not None and token is not None:
            _feed(process, write_fd, token, show)
        code = process.wait()
    except BaseException:
        _end_group(process)
        raise
    return 128 - code if code < 0 else code


def _feed(process: Any, fd: int, token: Any, show: Callable[[dict[str, str]], None]) -> None:
    """Writes the client's input into the pipe, until the process ends or closes it."""
    from glovebox_kernel.host_input import HostInput, token_check

    source = HostInput(token_check(token) or "00000000", show)
    os.set_blocking(fd, False)
    left, ended, pause_s = b"", False, 0.001
    try:
        while process.poll() is None and not (ended and not left):
            if not left:
                piece = source.poll()
                left, ended = piece or b"", piece == b""
            written = 0
            with contextlib.suppress(BlockingIOError):
                written = os.write(fd, left) if left else 0
            left = left[written:]
            pause_s = 0.001 if written else min(pause_s * 1.5, 0.02)
            if not written and not ended:
                time.sleep(pause_s)
    except BrokenPipeError:
        pass
    finally:
        os.close(fd)
        source.finish()


def _end_group(process: Any) -> None:
    for number, patience_s in ((signal.SIGINT, 0.5), (signal.SIGKILL, None)):
        try:
            if isinstance(process, subprocess.Popen):
                os.killpg(process.pid, number)
            else:
                process.signal_group(number)
        except ProcessLookupError:
            return
        try:
            process.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            continue
