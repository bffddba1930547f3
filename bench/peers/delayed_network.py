"""A network between two hosts, in one process: TCP to a port of this host, each piece DELAY_S later on its way."""

from __future__ import annotations

import asyncio
import contextlib
import threading

DELAY_S = 0.01


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pieces are late, not slow: the next one is read while one is on its way."""
    loop = asyncio.get_running_loop()

    def arrive(piece: bytes) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            writer.write(piece) if piece else writer.close()

    while True:
        try:
            piece = await reader.read(65536)
        except OSError:
            piece = b""
        loop.call_later(DELAY_S, arrive, piece)
        if not piece:
            return


class DelayedNetwork:
    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True).start()
        self._ready.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
