"""A dockerd of the tests' own: all of it below one directory, without a bridge and without touching iptables. It is
spoken to over its socket, so no docker client is needed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlencode

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=180)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Dockerd:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "d.sock"

    def ask(
        self, method: str, path: str, body: IO[bytes] | bytes | None = None, kind: str = "application/json"
    ) -> http.client.HTTPResponse:
        connection = _Connection(self.socket)
        connection.request(method, path, body=body, headers={"Content-Type": kind}, encode_chunked=False)
        response = connection.getresponse()
        if response.status >= 300:
            raise AssertionError(f"dockerd: {method} {path}: {response.status} {response.read(500)!r}")
        return response

    def import_tar(self, archive: Path, name: str, *changes: str) -> None:
        """`docker import --change ... archive name`."""
        query = urlencode([("fromSrc", "-"), ("repo", name), ("tag", "1"), *(("changes", text) for text in changes)])
        with archive.open("rb") as body:
            answered = self.ask("POST", f"/images/create?{query}", body, "application/x-tar").read()
        assert b'"error"' not in answered, answered

    def save(self, name: str, to: Path) -> None:
        """`docker save -o to name`."""
        _store(self.ask("GET", f"/images/{name}:1/get"), to)

    def export(self, name: str, to: Path) -> None:
        """`docker export -o to` of a container of the image, which never runs."""
        body = json.dumps({"Image": f"{name}:1", "Cmd": ["/bin/true"], "NetworkDisabled": True}).encode()
        made = json.loads(self.ask("POST", "/containers/create", body).read())
        _store(self.ask("GET", f"/containers/{made['Id']}/export"), to)
        self.ask("DELETE", f"/containers/{made['Id']}").read()


def _store(response: http.client.HTTPResponse, to: Path) -> None:
    part = to.with_suffix(".part")
    with part.open("wb") as file:
        shutil.copyfileobj(response, file, 1 << 20)
    part.rename(to)


def ping(dockerd: Dockerd) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        dockerd.ask("GET", "/_ping").read()
        return True
    return False


def _wait(dockerd: Dockerd, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if ping(dockerd):
            return
        time.sleep(0.1)
    raise AssertionError(f"dockerd does not serve: {log.read_text(errors='replace')[-1000:]}")


@contextlib.contextmanager
def dockerd() -> Iterator[Dockerd]:
    daemon = shutil.which("dockerd", path=PATH)
    assert daemon, "dockerd is missing: run tools/setup.sh test"
    directory = Path(tempfile.mkdtemp(prefix="glovebox-dockerd-", dir="/tmp"))
    log = directory / "log"
    options = [f"--data-root={directory}/data", f"--exec-root={directory}/exec", f"--pidfile={directory}/pid"]
    options += ["-H", f"unix://{directory}/d.sock", "--iptables=false", "--ip6tables=false", "--bridge=none"]
    options += ["--storage-driver=vfs"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [daemon, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PATH": PATH},
        )
    try:
        made = Dockerd(directory)
        _wait(made, process, log)
        yield made
    finally:
        process.terminate()  # dockerd ends its containerd too
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)
