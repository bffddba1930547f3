"""A service behind TLS, as a proxy gives it: both halves of the package check its certificate; streams go through."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from glovebox import AsyncSandbox, DaemonUnavailableError, Sandbox
from support.service import Service


class Proxy:
    """TLS outside, plain HTTP to the service inside; one thread for each direction of each connection."""

    def __init__(self, certificate: Path, key: Path, port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = port
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as outside:
            with socket.create_connection(("127.0.0.1", self._target)) as inside:
                back = threading.Thread(target=_copy, args=(inside, outside), daemon=True)
                back.start()
                _copy(outside, inside)
                back.join()

    def close(self) -> None:
        self._listener.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def secure(service: Service, tmp_path: Path) -> Iterator[dict[str, Any]]:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    proxy = Proxy(certificate, key, service.port)
    yield {"url": f"https://localhost:{proxy.port}", "api_key": service.keys["ann"], "certificate": certificate}
    proxy.close()


def test_a_service_behind_tls(secure: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = secure.pop("certificate")

    async def asynchronous() -> str | None:
        async with await AsyncSandbox.create(**secure) as sandbox:
            assert [event.type async for event in sandbox.stream("print(1)")][-1] == "end"
            await sandbox.files.write("blob", b"x" * 1_000_000)
            assert len(await sandbox.files.read("blob", "bytes")) == 1_000_000
            return (await sandbox.run_code("6 * 7")).text

    with pytest.raises(DaemonUnavailableError, match="(?i)certificate"):
        Sandbox.create(**secure)
    with pytest.raises(DaemonUnavailableError, match="(?i)certificate"):
        asyncio.run(asynchronous())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Sandbox.create(**secure) as sandbox:
        assert sandbox.run_code("6 * 7").text == "42"
        assert "".join(event.text for event in sandbox.stream("print(1)") if event.type == "stdout") == "1\n"
        sandbox.files.write("blob", b"x" * 1_000_000)
        assert len(sandbox.files.read("blob", "bytes")) == 1_000_000
    assert asyncio.run(asynchronous()) == "42"
