"""A proxy that adds a key to every request: the conformance tests send none, and the service wants one."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class KeyProxy:
    """Listens on a port of 127.0.0.1 while it is open, and passes requests on with the key."""

    def __init__(self, port: int, key: str) -> None:
        self._target, self._key, self._loop = port, key, asyncio.new_event_loop()
        self._ready = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> KeyProxy:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @staticmethod
    async def _end() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._target)
        back = asyncio.create_task(self._pump(upstream_reader, writer))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.split(b"\r\n")
                length = next((int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")), 0)
                lines.insert(1, b"Authorization: Bearer " + self._key.encode())
                upstream.write(b"\r\n".join(lines) + await reader.readexactly(length))
                await upstream.drain()
        upstream.close()
        await back

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()
