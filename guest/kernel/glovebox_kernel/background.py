"""A background command with a supervisor of its own, for clients: `commands.run(…, background=True)` of the Python
package.

The supervisor keeps everything in a directory of the workspace, where clients reach it without the kernel, which may
be busy with a run:

| file | what |
|---|---|
| `stdout`, `stderr` | what the command prints |
| `in-000000`, `in-000001`, … | written by the client: standard input, in this order; `in-000002.end` closes it |
| `signal` | written by the client: the number of a signal for the command's group |
| `alive` | touched about once a second |
| `exit` | its exit status as in a shell; the last file to appear |
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

POLL_S = 0.02
ALIVE_S = 1.0
EXIT_CANNOT_RUN = 126
EXIT_NOT_FOUND = 127


def start(directory: str, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> int:
    """In the kernel: starts a supervisor. Returns the command's process id, or 0 if it could not be started."""
    os.makedirs(directory)
    open(os.path.join(directory, "alive"), "w").close()
    read_fd, write_fd = os.pipe()
    # A child of the kernel: a sandbox with a command in the background is not put to sleep.
    is_any_running()
    command = [sys.executable, "-I", "-S", __file__, directory, str(write_fd), cwd, *argv]
    with open(os.devnull, "r+b") as null:
        _children.append(
            subprocess.Popen(
                command, stdin=null, stdout=null, stderr=null, env={**os.environ, **env}, pass_fds=(write_fd,),
                start_new_session=True, cwd="/",
            )
        )  # fmt: skip
    os.close(write_fd)
    with open(read_fd, "rb") as pipe:
        return int(pipe.read() or 0)


_children: list[subprocess.Popen[bytes]] = []


def is_any_running() -> bool:
    """In the kernel, before it sleeps."""
    _children[:] = [child for child in _children if child.poll() is None]
    return bool(_children)


class Supervisor:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.next_input = 0
        self.stdin: int | None = None
        self.unsent = b""

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def run(self, argv: list[str], cwd: str, tell_fd: int) -> int:
        if not argv[0]:
            argv = ["/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", *argv[1:]]
        read_fd, self.stdin = os.pipe()
        os.set_blocking(self.stdin, False)
        with open(self.path("stdout"), "wb") as out, open(self.path("stderr"), "wb") as err:
            try:
                process = subprocess.Popen(argv, cwd=cwd, stdin=read_fd, stdout=out, stderr=err, start_new_session=True)
            except OSError as error:
                what = error.filename or argv[0]
                err.write(f"glovebox: {what}: {error.strerror or error}\n".encode())
                return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_CANNOT_RUN
            finally:
                os.close(read_fd)
        os.write(tell_fd, str(process.pid).encode())
        os.close(tell_fd)
        code = self.attend(process)
        return 128 - code if code < 0 else code

    def attend(self, process: subprocess.Popen[bytes]) -> int:
        touched = 0.0
        while True:
            if time.monotonic() - touched > ALIVE_S:
                os.utime(self.path("alive"))
                touched = time.monotonic()
            self.pass_signal(process)
            self.pass_input()
            try:
                return process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue

    def pass_signal(self, process: subprocess.Popen[bytes]) -> None:
        try:
            with open(self.path("signal")) as file:
                number = int(file.read() or 0)
            os.unlink(self.path("signal"))
            os.killpg(process.pid, number)
        except (OSError, ValueError):
            pass

    def pass_input(self) -> None:
        """Passes on as much as the command takes now; the rest stays here."""
        while self.stdin is not None:
            if self.unsent:
                try:
                    self.unsent = self.unsent[os.write(self.stdin, self.unsent) :]
                except BlockingIOError:
                    return
                except OSError:
                    self.close_input()
                continue
            name = self.path(f"in-{self.next_input:06d}")
            if os.path.exists(name):
                with open(name, "rb") as file:
                    self.unsent = file.read()
                os.unlink(name)
                self.next_input += 1
            elif os.path.exists(name + ".end"):
                self.close_input()
            else:
                return

    def close_input(self) -> None:
        if self.stdin is not None:
            os.close(self.stdin)
        self.stdin, self.unsent = None, b""


def main(directory: str, tell: str, cwd: str, *argv: str) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    supervisor = Supervisor(directory)
    code = supervisor.run(list(argv), cwd, int(tell))
    with open(supervisor.path("exit.new"), "w") as file:
        file.write(str(code))
    os.replace(supervisor.path("exit.new"), supervisor.path("exit"))


if __name__ == "__main__":
    main(*sys.argv[1:])
