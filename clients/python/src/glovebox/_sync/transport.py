# Generated from _aio/transport.py by tools/generate_sync.py: change that one.
"""The interface of both transports: one request, one run with its messages, a file in, a file out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from .. import _start
from .._place import Target
from .._version import VERSION
from ..errors import DaemonUnavailableError, VersionMismatchError
from . import io

# A message of a run: what it is ("start", "stdout", "stderr", "display", "result"), the number of the event it belongs
# to (0: none), whether the event ends with it, and its content.
Message = tuple[str, int, bool, Any]
# Requests that only read are retried if the connection breaks, because a daemon that ends closes it.
LOOKING = frozenset(("session.show", "session.list", "file.list", "file.stat", "artifact.list", "status"))
RETURN_S = 15.0  # how long a daemon that was there and is gone is waited for


class Run(Protocol):
    """The messages of one run, on a connection of its own."""

    def message(self) -> Message: ...

    def close(self) -> None: ...


class Transport(Protocol):
    target: Target

    def ask(self, op: str, fields: dict[str, Any]) -> dict[str, Any]: ...

    def run(self, op: str, fields: dict[str, Any]) -> Run: ...

    def read_file(self, session: str, path: str, offset: int, size: int | None) -> Iterator[bytes]: ...

    def write_file(self, session: str, path: str, pieces: Iterator[bytes], sync: bool) -> int: ...

    def check(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Closable(Protocol):
    def is_usable(self) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Pool(Generic[C]):
    """Idle connections. A request has one for itself, so that threads and tasks never share one."""

    IDLE_MAX = 16

    def __init__(self) -> None:
        self._idle: list[C] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def take(self) -> C | None:
        while True:
            with self._lock:
                if self._pid != os.getpid():  # a forked child makes connections of its own
                    self._idle, self._pid = [], os.getpid()
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()

    def give(self, connection: C) -> None:
        with self._lock:
            if len(self._idle) < self.IDLE_MAX and self._pid == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def check_version(version: str, where: str) -> None:
    """Patches of one version understand each other."""
    if version.split(".")[:2] == VERSION.split(".")[:2]:
        return
    raise VersionMismatchError(
        f"the daemon at {where} has version {version or 'unknown'}, and this package is {VERSION}; stop the daemon "
        f"(`glovebox stop`; its sessions stay) so that one of this version is started, or install "
        f"glovebox-sandbox=={version}"
    )


def start(target: Target) -> None:
    io.in_thread(_start.start_daemon, target)


def unavailable(target: Target, error: Exception) -> DaemonUnavailableError:
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if target.url:
        return DaemonUnavailableError(
            f"the service at {target.url} does not answer ({why}); is the address right, and does it run?"
        )
    if isinstance(error, PermissionError):
        return DaemonUnavailableError(
            f"the daemon at {target.socket} belongs to another user ({why}); unset GLOVEBOX_SOCKET and "
            "GLOVEBOX_DATA_DIR to use one of your own, or ask its owner for a key and use url="
        )
    return DaemonUnavailableError(
        f"no daemon answers at {target.socket} ({why}); start one with `glovebox serve --background --socket "
        f"{target.socket}`, or leave socket= out to have one started for you"
    )
