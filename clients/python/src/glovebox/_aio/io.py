"""The asyncio half's input and output: streams, waiting, callbacks. Written by hand, as _sync/io.py is."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable
from typing import Any, Callable, TypeVar

from .._silence import is_silent

T = TypeVar("T")
CONNECT_S = 10.0
TCP_SILENCE_S = 90.0  # the service sends something at least every 15 s while a run is on


async def within(seconds: float, work: Awaitable[T]) -> T:
    """The work, or a TimeoutError that is an OSError in every version of Python."""
    try:
        return await asyncio.wait_for(work, seconds)
    except asyncio.TimeoutError:
        raise TimeoutError(f"nothing came for {seconds:g} s") from None


class Stream:
    """A connected socket, without TLS. It belongs to the event loop that it was made in."""

    def __init__(self, connection: socket.socket, silence_s: float | None) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def receive(self, size: int) -> bytes:
        if self._silence_s is None:
            return await self._loop.sock_recv(self._socket, size)
        return await within(self._silence_s, self._loop.sock_recv(self._socket, size))

    def is_usable(self) -> bool:
        """Whether it can take another request: an idle connection that has something to say has come to its end."""
        if self._loop is not asyncio.get_running_loop():
            return False
        return is_silent(self._socket)

    def close(self) -> None:
        self._socket.close()


class TlsStream(Stream):
    """The same with TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self, size: int) -> bytes:
        return await within(TCP_SILENCE_S, self._reader.read(size))

    def is_usable(self) -> bool:
        return self._loop is asyncio.get_running_loop() and not self._reader.at_eof()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._writer.close()


async def connect_unix(path: str) -> Stream:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await within(CONNECT_S, asyncio.get_running_loop().sock_connect(connection, path))
    except BaseException:
        connection.close()
        raise
    return Stream(connection, None)


async def connect_tcp(host: str, port: int, tls: bool) -> Stream:
    if tls:
        reader, writer = await within(CONNECT_S, asyncio.open_connection(host, port, ssl=True))
        return TlsStream(reader, writer)
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem: BaseException = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in addresses:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await within(CONNECT_S, loop.sock_connect(connection, address))
        except OSError as error:
            connection.close()
            problem = error
        except BaseException:
            connection.close()
            raise
        else:
            return Stream(connection, TCP_SILENCE_S)
    raise problem


async def call(callback: Callable[[T], Any | Awaitable[Any]], value: T) -> None:
    """Callbacks may be coroutine functions."""
    answer = callback(value)
    if inspect.isawaitable(answer):
        await answer


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """What blocks, such as starting a daemon, in a thread of its own."""
    return await asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *arguments))


async def iterate(pieces: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
    else:
        for piece in pieces:
            yield piece


async def shield(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Runs it to its end although the task that waits for it is cancelled meanwhile."""
    return await asyncio.shield(asyncio.ensure_future(function(*arguments)))


sleep = asyncio.sleep
