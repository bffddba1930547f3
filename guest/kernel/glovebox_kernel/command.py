"""A command beside the variables: run by the kernel, in the session's box, with the kernel's own streams.

Its output goes straight into the pipes that the host reads; nothing of it passes through Python.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

EXIT_CANNOT_RUN = 126
EXIT_NOT_FOUND = 127


class CommandError(Exception):
    """A request that is no command."""


def command_check(request: dict[str, Any]) -> list[str]:
    argv = request.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(a, str) and "\0" not in a for a in argv):
        raise CommandError("argv must be a list of texts")
    env = request.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise CommandError("env must be an object of texts")
    return argv


def command_run(request: dict[str, Any]) -> int:
    """Runs it to its end; the exit status as a shell tells it. An interrupt ends its whole group and is passed on."""
    env = {**os.environ, **request.get("env", {})}
    argv = request["argv"]
    if request.get("python"):  # this very interpreter, wherever the image has it
        argv = [sys.executable, *argv]
    elif not argv[0]:  # a shell command: the image's best shell
        argv = ["/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", *argv[1:]]
    try:
        process = subprocess.Popen(
            argv, cwd=request.get("cwd"), env=env, stdin=subprocess.DEVNULL, stdout=1, stderr=2, start_new_session=True
        )
    except FileNotFoundError as error:
        os.write(2, f"glovebox: {error.filename or argv[0]}: there is no such command or directory\n".encode())
        return EXIT_NOT_FOUND
    except (PermissionError, OSError) as error:
        os.write(2, f"glovebox: {argv[0]}: {error.strerror or error}\n".encode())
        return EXIT_CANNOT_RUN
    try:
        code = process.wait()
    except BaseException:
        _end_group(process)
        raise
    return 128 - code if code < 0 else code


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number, patience_s in ((signal.SIGINT, 0.5), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            continue
