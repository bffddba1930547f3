"""A command as another user of a sandbox with users, started by the agent of the box (guest/agent/users.h).

What is executed, and as whom, the agent has from the host; the kernel hands it the streams, under the id of the run.
"""

from __future__ import annotations

import array
import os
import select
import socket
import subprocess
import time

VARIABLE = "GLOVEBOX_USERS_FD"
MESSAGE_MAX = 400

_channel: socket.socket | None = None


def channel_take() -> None:
    """When the kernel starts: programs that it starts do not inherit the channel, nor its name."""
    global _channel
    number = os.environ.pop(VARIABLE, "")
    if number:
        _channel = socket.socket(fileno=int(number))
        _channel.set_inheritable(False)


class UserProcess:
    """The part of subprocess.Popen that a command needs."""

    def __init__(self, run_id: str, stdin: int) -> None:
        if _channel is None:
            raise PermissionError(0, "this sandbox has no other users")
        self._channel = _channel
        self._status: int | None = None
        fds = array.array("i", [stdin, 1, 2])
        self._channel.sendmsg([b"start " + run_id.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        said = self._read(None)
        while said is not None and said.startswith("ended "):  # of a command whose end was not read
            said = self._read(None)
        if said != "started":
            _, number, words = (said or "failed 0 the agent is gone").split(" ", 2)
            raise OSError(int(number), words)

    def _read(self, timeout: float | None) -> str | None:
        """The next message; None: it did not come in time."""
        if timeout is not None and not select.select([self._channel], [], [], timeout)[0]:
            return None
        return self._channel.recv(MESSAGE_MAX).decode(errors="replace")

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            said = self._read(None if until is None else max(0.0, until - time.monotonic()))
            if said is None:
                raise subprocess.TimeoutExpired("command", timeout or 0)
            word, _, number = said.partition(" ")
            if word == "ended":
                status = int(number)
                self._status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            elif not word:
                raise ChildProcessError("the agent is gone")
        return self._status

    def signal_group(self, number: int) -> None:
        if self._status is not None:
            raise ProcessLookupError
        self._channel.send(f"signal {int(number)}".encode())
