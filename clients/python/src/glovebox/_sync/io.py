"""The blocking half's input and output: streams, waiting, callbacks. Written by hand, as _aio/io.py is."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable, TypeVar

from .._silence import is_silent

T = TypeVar("T")
CONNECT_S = 10.0
SILENCE_S = 7 * 86400.0  # of a UNIX socket: runs may take their time. With a limit, Python waits in poll()
TCP_SILENCE_S = 90.0  # the service sends something at least every 15 s while a run is on


class Stream:
    """A connected socket, plain or with TLS."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.receive = connection.recv

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_usable(self) -> bool:
        """Whether it can take another request: an idle connection that has something to say has come to its end."""
        return is_silent(self._socket)

    def close(self) -> None:
        self._socket.close()


def connect_unix(path: str) -> Stream:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_S)
        connection.connect(path)
        connection.settimeout(SILENCE_S)
    except BaseException:
        connection.close()
        raise
    return Stream(connection)


def connect_tcp(host: str, port: int, tls: bool) -> Stream:
    connection = socket.create_connection((host, port), CONNECT_S)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls:
            import ssl

            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        connection.settimeout(TCP_SILENCE_S)
    except BaseException:
        connection.close()
        raise
    return Stream(connection)


def call(callback: Callable[[T], Any], value: T) -> None:
    callback(value)


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


def iterate(pieces: Iterable[T]) -> Iterator[T]:
    return iter(pieces)


def shield(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


sleep = time.sleep
