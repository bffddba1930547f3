"""Removes a sandbox after its last reference is gone, in the thread in which the garbage collector runs."""

from __future__ import annotations

import os
import socket

from ._frames import REQUEST, dumps, pack
from ._place import Target

PATIENCE_S = 5.0


def remove_quietly(target: Target, name: str, pid: int) -> None:
    """Uses a separate connection and no locks: the collector may have interrupted code that holds one."""
    if os.getpid() != pid:  # a forked child has copies of the object, and no sandbox
        return
    try:
        if target.socket is not None:
            _remove_by_socket(target.socket, name)
        else:
            _remove_by_http(target, name)
    except Exception:
        pass  # the daemon is gone, or busy: what is left sleeps soon, and `glovebox session ls` shows it


def _remove_by_socket(path: str, name: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        connection.sendall(pack(REQUEST, 1, dumps({"op": "session.remove", "session": name}).encode()))
        connection.recv(4096)


def _remove_by_http(target: Target, name: str) -> None:
    from ._sync.http import HttpTransport

    transport = HttpTransport(target)
    try:
        transport.ask("session.remove", {"session": name})
    finally:
        transport.close()
