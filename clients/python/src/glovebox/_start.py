"""Finds the program and starts the daemon, once, even if several threads need it."""

from __future__ import annotations

import os
import sys
import threading

from .errors import DaemonUnavailableError
from .models import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._place import Target

_lock = threading.Lock()


class Program(Record):
    """A program that can be the daemon: its path, and how it was found (`variable`, `path` or `wheel`)."""

    __slots__ = ("how", "path")

    def __init__(self, path: str, how: str) -> None:
        self.path = path
        self.how = how


def find_program() -> Program | None:
    """GLOVEBOX_PROGRAM, then `glovebox` in PATH, then the one that the runtime wheel carries."""
    named = os.environ.get("GLOVEBOX_PROGRAM")
    if named:
        return Program(named, "variable") if _is_program(named) else None
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory, "glovebox")
        if directory and _is_program(path) and not _is_own_script(path):
            return Program(path, "path")
    try:
        import glovebox_runtime  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    path = str(glovebox_runtime.program())
    return Program(path, "wheel") if _is_program(path) else None


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_own_script(path: str) -> bool:
    """A Python script of that name is not the program."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def start_daemon(target: Target) -> None:
    """Starts the daemon of this target in the background. Returns when it serves."""
    program = find_program()
    if program is None:
        raise DaemonUnavailableError(_nothing_to_start(target))
    command = [program.path, "serve", "--background", "--socket", target.socket or ""]
    if target.project:
        command += ["--project", target.project]
    with _lock:
        if _answers(target):
            return
        delegated = delegation()
        if delegated and _run([*delegated, *command])[0] == 0:
            return
        status, words = _run(command)
    if status != 0:
        raise DaemonUnavailableError(_why(words, program.path))


def _run(command: list[str]) -> tuple[int, str]:
    """The exit status, and what was written to standard error."""
    import subprocess

    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
    except OSError as error:
        raise DaemonUnavailableError(f"{command[0]} cannot be started: {error.strerror or error}") from error
    return done.returncode, done.stderr.decode(errors="replace")


def delegation() -> list[str]:
    """What to put before the command so that an ordinary user's daemon may set limits: a scope with control groups.

    Only if systemd manages the user and no control group is delegated already; otherwise it does nothing.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0 or os.environ.get("GLOVEBOX_CGROUP_PARENT") or not runtime:
        return []
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers") or not os.path.exists(f"{runtime}/systemd/private"):
        return []
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory, "systemd-run")
        if directory and _is_program(path):
            return [path, "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--"]
    return []


def _answers(target: Target) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(target.socket or "")
            return True
        except OSError:
            return False


def _nothing_to_start(target: Target) -> str:
    what = f"no daemon answers at {target.socket}"
    if not sys.platform.startswith("linux"):
        return (
            f"{what}, and Glovebox runs on Linux only; name a service on another machine with url= and api_key=, or "
            "with GLOVEBOX_URL and GLOVEBOX_API_KEY"
        )
    return (
        f"{what}, and there is no program `glovebox` to start one with: install it (`pip install "
        "glovebox-sandbox-runtime`, or `make install` in its source), or name a service with url= and api_key="
    )


def _why(words: str, program: str) -> str:
    lines = [line for line in words.strip().splitlines() if line]
    last = lines[-1] if lines else f"it printed no reason; run `{program} serve` to see it"
    prefix = "glovebox: "
    reason = last[len(prefix) :] if last.startswith(prefix) else last
    return f"the daemon could not be started: {reason} (`{program} doctor` lists what this host lacks)"
