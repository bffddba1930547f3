"""A second Glovebox behind TLS, for daemons whose engine it is: its daemon, a key, and a relay that ends TLS, whose
connections a test can cut."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.daemon import Daemon
from support.daemons import StartDaemon

PIECE = 64 << 10


def make_certificate(directory: Path, name: str = "localhost") -> tuple[Path, Path]:
    """A certificate that signs itself, for localhost and 127.0.0.1, and its key."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
        + ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key


class TlsRelay:
    """TLS on one side, TCP on the other. `cut` breaks all connections; `is_open` False refuses new ones."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.target = 0
        self.is_open = True
        self.connections = 0  # that were ever made
        self.limit: int | None = None  # bytes to the client until the connection is cut, once
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        if not self.is_open:
            connection.close()
            return
        try:
            inner = self.context.wrap_socket(connection, server_side=True)
            outer = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            connection.close()
            return
        self.connections += 1
        with self._lock:
            self._sockets |= {inner, outer}
        # One SSL object must not be read and written at once by two threads without care: each direction waits in
        # select, and a lock covers the calls.
        gate = threading.Lock()
        inner.setblocking(False)
        threading.Thread(target=self._up, args=(inner, outer, gate), daemon=True).start()
        self._down(inner, outer, gate)

    def _up(self, inner: ssl.SSLSocket, outer: socket.socket, gate: threading.Lock) -> None:
        try:
            while True:
                with gate:
                    try:
                        piece = inner.recv(PIECE)
                    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        piece = None
                if piece is None:
                    select.select([inner], [], [], 1)
                    continue
                if not piece:
                    break
                outer.sendall(piece)
        except (OSError, ValueError):
            pass
        self._end(inner, outer)

    def _down(self, inner: ssl.SSLSocket, outer: socket.socket, gate: threading.Lock) -> None:
        try:
            while True:
                piece = outer.recv(PIECE)
                if not piece:
                    break
                if self.limit is not None:
                    self.limit -= len(piece)
                    if self.limit < 0:
                        piece = piece[: max(0, len(piece) + self.limit)]
                view = memoryview(piece)
                while view:
                    with gate:
                        try:
                            view = view[inner.send(view) :]
                            continue
                        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                            pass
                    select.select([], [inner], [], 1)
                if self.limit is not None and self.limit < 0:
                    self.limit = None
                    break
        except (OSError, ValueError):
            pass
        self._end(inner, outer)

    def _end(self, *sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._lock:
            self._sockets -= set(sockets)

    def cut(self) -> int:
        """Breaks every connection; how many there were."""
        with self._lock:
            sockets = list(self._sockets)
        self._end(*sockets)
        return len(sockets) // 2

    def close(self) -> None:
        self._listener.close()
        self.cut()


class Remote:
    """The second Glovebox. `options` and `env` are what a daemon needs to use it."""

    def __init__(
        self, start: StartDaemon, directory: Path, *options: str, env: Mapping[str, str] | None = None
    ) -> None:
        self.certificate, key_file = make_certificate(directory)
        self.relay = TlsRelay(self.certificate, key_file)
        self.daemon: Daemon = start("--port", "0", *options, env=env, start=False)
        made = self.daemon.glovebox("serve", "--new-key", "test")
        self.key = made.stdout.strip()
        assert self.key.startswith("gb_"), made
        self.start()

    def start(self) -> None:
        self.daemon.start()
        with self.daemon._connect() as client:
            address = client.request("status")["daemon"]["api"]
        self.relay.target = int(address.rpartition(":")[2])

    def kill(self) -> None:
        self.daemon.kill()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.relay.port}"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--remote-url", self.url, "--remote-ca", str(self.certificate))

    @property
    def env(self) -> dict[str, str]:
        return {"SANDBOX_API_KEY": self.key}

    def sessions(self) -> list[dict]:
        with self.daemon._connect() as client:
            return [item for item in client.request("session.list")["sessions"] if item.get("key") == "test"]

    def show(self, session_id: str) -> dict:
        """The session there, as its operator sees it, by the id that it has at the daemon that uses it."""
        with self.daemon._connect() as client:
            name = next(item["name"] for item in self.sessions() if item["name"].endswith(session_id))
            return client.request("session.show", session=f"test/{name}")


@contextlib.contextmanager
def serve_remote(
    start: StartDaemon, directory: Path, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[Remote]:
    remote = Remote(start, directory, *options, env=env)
    try:
        yield remote
    finally:
        remote.relay.close()
