"""Connections that break at every possible place of a stream: a proxy cuts them after some bytes, again and again."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from glovebox import ConnectionLostError, EndEvent, ResultEvent, Sandbox, StderrEvent, StdoutEvent
from support.service import Service

CODE = """
import sys, time
for i in range(40):
    print('ä€𝄞' * 300, i, flush=True)
    print('err', i, file=sys.stderr, flush=True)
    if i % 10 == 0: display(i)
    time.sleep(0.01)
'end'
"""
OUT = "".join("ä€𝄞" * 300 + f" {i}\n" for i in range(40))
ERR = "".join(f"err {i}\n" for i in range(40))


class Cutter:
    """Forwards connections. With `is_cutting`, one ends after a random number of bytes from the daemon."""

    def __init__(self, directory: Path, target: Any, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self.is_cutting = False
        self.cuts = 0
        if isinstance(target, str):
            self.path = str(directory / "cut.sock")
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(self.path)
            self._listener.listen()
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = 0 if isinstance(target, str) else self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            daemon = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
            try:
                daemon.connect(self._target if isinstance(self._target, str) else ("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            threading.Thread(target=_copy, args=(client, daemon), daemon=True).start()
            threading.Thread(target=self._copy_some, args=(daemon, client), daemon=True).start()

    def _copy_some(self, daemon: socket.socket, client: socket.socket) -> None:
        left = self._random.randrange(6000, 20000)
        with contextlib.suppress(OSError):
            while piece := daemon.recv(min(left, 4096)):
                client.sendall(piece)
                if self.is_cutting:
                    left -= len(piece)
                    if left <= 0:
                        self.cuts += 1
                        break
        for end in (daemon, client):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["socket", "http"])
def cut(request: pytest.FixtureRequest, service: Service, tmp_path: Path) -> Iterator[tuple[Cutter, dict[str, Any]]]:
    os.chmod(tmp_path, 0o700)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    cutter = Cutter(tmp_path, service.daemon.socket if request.param == "socket" else service.port, seed)
    where = {"socket": cutter.path} if request.param == "socket" else {}
    yield cutter, where or {"url": f"http://127.0.0.1:{cutter.port}", "api_key": service.keys["ann"]}
    cutter.close()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("turn", range(2))
def test_a_stream_is_whole_however_often_its_connection_breaks(cut: tuple[Cutter, dict[str, Any]], turn: int) -> None:
    cutter, where = cut
    sandbox = Sandbox.create(**where)
    sandbox.run_code("1")
    out, err, shown = "", "", []
    for event in sandbox.stream(CODE):
        cutter.is_cutting = not isinstance(event, EndEvent)
        if isinstance(event, StdoutEvent):
            out += event.text
        elif isinstance(event, StderrEvent):
            err += event.text
        elif isinstance(event, ResultEvent):
            shown.append(event.result.text)
        elif isinstance(event, EndEvent):
            assert event.execution.stdout == OUT and event.execution.stderr == ERR
    cutter.is_cutting = False
    assert out == OUT and err == ERR
    assert sorted(shown[:-1]) == ["0", "10", "20", "30"] and shown[-1] == "'end'"
    assert cutter.cuts > 3, "the test cut nothing"
    sandbox.kill()


@pytest.mark.timeout(30)
def test_a_connection_that_never_gets_further_is_given_up(cut: tuple[Cutter, dict[str, Any]]) -> None:
    """An event that is larger than what ever comes through must not be asked for for ever."""
    cutter, where = cut
    sandbox = Sandbox.create(**where)
    sandbox.run_code("1")
    with pytest.raises(ConnectionLostError, match="same place"):
        for event in sandbox.stream("import os\nos.write(1, b'x' * 60000)\nimport time; time.sleep(20)"):
            cutter.is_cutting = True
            assert event
    cutter.is_cutting = False
    sandbox.kill()
