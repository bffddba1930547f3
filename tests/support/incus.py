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
PROGRAM_INSIDE = "/opt/glovebox-runtime/glovebox"
SOCKET_INSIDE = "/run/glovebox.sock"
_PLACES = f"/usr/libexec/incus:/usr/lib/incus:{PATH}"


def _host_pid(instance: str, pid: int) -> int:
    """Of a process of a container, by its id in there."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, StopIteration):
            lines = (directory / "status").read_text().splitlines()
            ids = next(line for line in lines if line.startswith("NSpid:")).split()[1:]
            if len(ids) > 1 and ids[1] == str(pid) and instance in (directory / "cgroup").read_text():
                return int(ids[0])
    return 0


class Incus:
    """A service that makes boxes, and its socket; as support.engines.Engine is for docker and podman."""

    name = "incus"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "unix.socket"
        self.process: subprocess.Popen[bytes] | None = None
        self.remote_env: dict[str, str] = {}  # of a client that is on another host, as far as it can tell
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
        if self.remote_env:
            return self.remote_env
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.client("config", "set", "core.https_address", address)
        token = self.client("config", "trust", "add", "--quiet", name).split()[-1]
        self.client("remote", "add", name, f"https://{address}", "--accept-certificate", "--token", token)
        self.remote_env = {"INCUS_CONF": str(self.directory / "client"), "INCUS_REMOTE": name}
        return self.remote_env

    def inside(self, instance: str, *words: str) -> Any:
        """What `glovebox WORDS --json` says in an instance with a Glovebox of its own."""
        program = ("env", f"GLOVEBOX_SOCKET={SOCKET_INSIDE}", "HOME=/root", PROGRAM_INSIDE)
        return json.loads(self.client("exec", instance, "--", *program, *words, "--json"))

    def session_inside(self, session_id: str) -> dict[str, Any]:
        """The session of an instance as whoever operates this host sees it: host paths, host process ids."""
        instance = next(box["name"] for box in self.boxes() if box["name"].endswith(session_id))
        shown = self.inside(instance, "session", "show", instance.removeprefix("s-"))
        root = self.directory / "storage-pools/default/containers" / instance / "rootfs"
        shown["workspace"] = f"{root}{shown['workspace']}"
        if shown.get("pid"):
            shown["pid"] = _host_pid(instance, shown["pid"])
        return shown

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
def incus_vm() -> Iterator[Incus]:
    """With an image for virtual machines: GLOVEBOX_TEST_INCUS_VM is what `incus launch --vm` takes, of a server that
    this host reaches, or the file of a unified image (`incus image export`)."""
    image = os.environ["GLOVEBOX_TEST_INCUS_VM"]
    with incus() as engine:
        drivers = engine.ask("GET", "/1.0")["metadata"]["environment"]["driver"]
        assert "qemu" in drivers, f"GLOVEBOX_TEST_INCUS_VM is set, and incusd has no virtual machines here: {drivers}"
        engine.client("image", "delete", IMAGE)
        source = ("import", image) if Path(image).exists() else ("copy", image, "local:", "--vm")
        engine.client("image", *source, "--alias", IMAGE)
        yield engine


@contextlib.contextmanager
def incus_remote() -> Iterator[Incus]:
    """One that clients reach by TLS alone, as on another host: what is done with its own socket is the tests' look."""
    with incus() as engine:
        engine.serve_remotely("far")
        yield engine


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
