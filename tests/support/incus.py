"""An incusd of the tests' own: all of it below one directory, a `dir` pool, no bridge, and a proxy that is not there,
since it would look for lists of images outside. It is spoken to over its socket."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.dockerd import PATH, Dockerd
from support.images import archive

IMAGE = "glovebox-test"
_PLACES = f"/usr/libexec/incus:/usr/lib/incus:{PATH}"


class Incus:
    """A service that makes boxes, and its socket; as support.engines.Engine is for docker and podman."""

    name = "incus"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "unix.socket"
        self.process: subprocess.Popen[bytes] | None = None
        program = shutil.which("incusd", path=_PLACES)
        assert program and shutil.which("incus"), "incus is missing: run tools/setup.sh test"
        self.command = [program, "--group", "root"]

    def start(self) -> None:
        # A server with another home than the packaged one finds its own program by name.
        nowhere = "http://127.0.0.1:1"
        env = {**os.environ, "INCUS_DIR": str(self.directory), "PATH": _PLACES}
        env |= {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere}
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None and time.monotonic() < deadline, self.words()
            time.sleep(0.1)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
            return bool(self.ask("GET", "/1.0")["metadata"])
        return False

    def words(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Its containers stay, as with a restart of the package's service."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    kill = stop

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        api = Dockerd(self.directory)
        api.socket = self.socket
        told = json.loads(api.ask(method, path, json.dumps(body).encode() if body is not None else None).read())
        if told.get("type") == "async":
            told = json.loads(api.ask("GET", f"{told['operation']}/wait?timeout=120").read())
            assert told["metadata"]["status_code"] == 200, told
        return told

    def client(self, *words: str | Path) -> str:
        env = {**os.environ, "INCUS_SOCKET": str(self.socket), "INCUS_CONF": str(self.directory / "client")}
        done = subprocess.run(
            ["incus", *map(str, words)], capture_output=True, text=True, check=False, timeout=180, env=env
        )
        assert done.returncode == 0, f"incus {words[0]}: {done.stderr}"
        return done.stdout

    def serve_remotely(self, name: str) -> dict[str, str]:
        """As a server that a client reaches by TLS, under this name; the client's settings, as variables."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.client("config", "set", "core.https_address", address)
        token = self.client("config", "trust", "add", "--quiet", name).split()[-1]
        self.client("remote", "add", name, f"https://{address}", "--accept-certificate", "--token", token)
        return {"INCUS_CONF": str(self.directory / "client"), "INCUS_REMOTE": name}

    def prepare(self) -> None:
        self.ask("POST", "/1.0/storage-pools", {"name": "default", "driver": "dir"})
        root = {"root": {"type": "disk", "path": "/", "pool": "default"}}
        self.ask("PATCH", "/1.0/profiles/default", {"devices": root})

    def import_image(self, archive_name: str, image: str) -> None:
        metadata = b"architecture: x86_64\ncreation_date: 1700000000\nproperties: {description: made by the tests}\n"
        head = self.directory / "metadata.tar"
        with tarfile.open(head, "w") as tar:
            member = tarfile.TarInfo("metadata.yaml")
            member.size = len(metadata)
            tar.addfile(member, io.BytesIO(metadata))
        self.client("image", "import", head, archive(archive_name), "--alias", image)

    def boxes(self) -> list[dict[str, Any]]:
        """Instances of Glovebox that it has, ended ones too."""
        told = self.ask("GET", "/1.0/instances?recursion=1")["metadata"]
        return [box for box in told if "user.glovebox.owner" in box["config"]]

    def clear(self) -> None:
        for box in self.boxes():
            with contextlib.suppress(AssertionError):
                self.client("delete", "--force", box["name"])


@contextlib.contextmanager
def incus() -> Iterator[Incus]:
    directory = Path(tempfile.mkdtemp(prefix="glovebox-incus-", dir="/tmp"))
    engine = Incus(directory)
    # In memory: a pool without snapshots copies the image for each box, and Incus waits until the disk has the copy.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8g,mode=711", "glovebox-test", directory], check=True)
    try:
        engine.start()
        try:
            engine.prepare()
            engine.import_image("debian12-small", IMAGE)
            yield engine
        finally:
            if engine.process and engine.process.poll() is None:
                engine.clear()
            engine.stop()
    finally:
        for line in Path("/proc/self/mountinfo").read_text().splitlines()[::-1]:
            place = line.split()[4]
            if place == str(directory) or place.startswith(f"{directory}/"):
                subprocess.run(["umount", "-l", place], capture_output=True, check=False)
        shutil.rmtree(directory, ignore_errors=True)
