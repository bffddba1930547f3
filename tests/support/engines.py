"""Engines of the tests' own: dockerd and `podman system service` on sockets of their own, with gVisor as a runtime, and
an image made by mmdebstrap in each."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from support.dockerd import PATH, Dockerd, ping
from support.glovebox import USER_ID
from support.images import archive

IMAGE = "glovebox-test:1"

# What docker and podman start for --runtime runsc. The socket of a box is the host's: gVisor lets a box connect to one
# only when asked.
RUNSC = """#!/bin/sh
exec {runsc} --platform=ptrace --network=none --fsgofer-host-uds --root {root} "$@"
"""


# Of itself podman raises them as far as root may, which fails where the tests' own root may not.
_LIMITS = '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=32768:32768"]\n'


def _find(name: str) -> str:
    path = shutil.which(name, path=PATH)
    assert path, f"{name} is missing: run tools/setup.sh test"
    return path


def _write_runtime(directory: Path) -> Path:
    script = directory / "runsc"
    script.write_text(RUNSC.format(runsc=_find("runsc"), root=directory / "runsc-state"))
    script.chmod(0o755)
    return script


class Engine:
    """A service that makes boxes, and its socket."""

    def __init__(self, name: str, directory: Path, command: list[str | Path], env: dict[str, str]) -> None:
        self.name = name
        self.directory = directory
        self.api = Dockerd(directory)
        self.command = list(map(str, command))
        self.env = {**os.environ, "PATH": PATH, **env}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.api.socket

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while not ping(self.api):
            assert self.process.poll() is None and time.monotonic() < deadline, self.words()
            time.sleep(0.1)

    def words(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def import_image(self, archive_name: str, image: str) -> None:
        repository, tag = image.split(":")
        where = f"/images/create?fromSrc=-&repo={repository}&tag={tag}"
        if self.name == "podman":
            where = f"/v4.0.0/libpod/images/import?reference=localhost/{image}"
        with archive(archive_name).open("rb") as body:
            answered = self.api.ask("POST", where, body, "application/x-tar").read()
        assert b'"error"' not in answered, answered

    def boxes(self, everyone: bool = True) -> list[dict]:
        """Containers of Glovebox that it has, ended ones too."""
        while True:
            try:
                answered = json.loads(self.api.ask("GET", f"/containers/json?all={str(everyone).lower()}").read())
                break
            except AssertionError as told:  # podman fails if a container goes while it makes the list
                if "no such container" not in str(told) and "does not exist" not in str(told):
                    raise
        return [box for box in answered if "glovebox.owner" in (box.get("Labels") or {})]


@contextlib.contextmanager
def _running(engine: Engine, archive_name: str) -> Iterator[Engine]:
    engine.start()
    try:
        engine.import_image(archive_name, IMAGE)
        yield engine
    finally:
        for box in engine.boxes() if engine.process and engine.process.poll() is None else []:
            with contextlib.suppress(AssertionError):  # it is being removed already
                engine.api.ask("DELETE", f"/containers/{box['Id']}?force=true").read()
        engine.stop()


def _remove(directory: Path) -> None:
    """With what an engine left mounted in it, such as the network of containers without one."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed([path for path in mounts if path.startswith(f"{directory}/")]):
        subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def docker() -> Iterator[Engine]:
    directory = Path(tempfile.mkdtemp(prefix="glovebox-docker-", dir="/tmp"))
    options = [f"--data-root={directory}/data", f"--exec-root={directory}/exec", f"--pidfile={directory}/pid"]
    options += ["-H", f"unix://{directory}/d.sock", "--iptables=false", "--ip6tables=false", "--bridge=none"]
    options += [f"--add-runtime=runsc={_write_runtime(directory)}", "--live-restore"]
    try:
        with _running(Engine("docker", directory, [_find("dockerd"), *options], {}), "debian12-venv") as engine:
            yield engine
    finally:
        _remove(directory)


@contextlib.contextmanager
def podman(runtime: str = "") -> Iterator[Engine]:
    """Podman's HTTP API cannot choose the runtime of a single container: gVisor needs a service of its own."""
    directory = Path(tempfile.mkdtemp(prefix="glovebox-podman-", dir="/tmp"))
    command: list[str | Path] = [_find("podman"), "--root", directory / "root", "--runroot", directory / "run"]
    if runtime == "runsc":
        command += ["--runtime", _write_runtime(directory)]
    command += ["--cgroup-manager", "cgroupfs", "--events-backend", "file", "system", "service", "--time", "0"]
    command += [f"unix://{directory}/d.sock"]
    (directory / "containers.conf").write_text(_LIMITS)
    engine = Engine("podman", directory, command, {"CONTAINERS_CONF": str(directory / "containers.conf")})
    try:
        with _running(engine, "debian12-venv"):
            yield engine
    finally:
        _remove(directory)


# In a mount namespace of its own, where the ordinary user of the tests has a name and a range of further ids.
_AS_USER = """
set -e
for file in passwd group subuid subgid; do mount --bind "$0/etc/$file" "/etc/$file"; done
exec setpriv --reuid {user} --regid {user} --clear-groups "$@"
"""


@contextlib.contextmanager
def podman_of_user() -> Iterator[Engine]:
    """`podman system service` of the ordinary user of the tests, who is in no file of this machine."""
    directory = Path(tempfile.mkdtemp(prefix="glovebox-podman-user-", dir="/tmp"))
    (directory / "etc").mkdir()
    for file, line in (
        ("passwd", f"glovebox-test:x:{USER_ID}:{USER_ID}::{directory}/home:/bin/sh"),
        ("group", f"glovebox-test:x:{USER_ID}:"),
        ("subuid", "glovebox-test:200000:65536"),
        ("subgid", "glovebox-test:200000:65536"),
    ):
        own = Path("/etc") / file
        assert own.exists(), f"{own} is missing: it comes with uidmap (tools/setup.sh test)"
        (directory / "etc" / file).write_text(own.read_text().rstrip() + f"\n{line}\n")
    (directory / "containers.conf").write_text(_LIMITS)
    directory.chmod(0o755)
    for name in ("home", "run", "root", "store", "log"):
        place = directory / name
        place.touch() if name == "log" else place.mkdir()
        os.chown(place, USER_ID, USER_ID)
    os.chown(directory, USER_ID, USER_ID)
    options: list[str | Path] = [_find("unshare"), "--mount", "sh", "-c", _AS_USER.format(user=USER_ID), directory]
    options += [_find("podman"), "--root", directory / "root", "--runroot", directory / "store"]
    options += ["--cgroup-manager", "cgroupfs", "--events-backend", "file", "system", "service", "--time", "0"]
    env = {"HOME": f"{directory}/home", "XDG_RUNTIME_DIR": f"{directory}/run"}
    env["CONTAINERS_CONF"] = str(directory / "containers.conf")
    engine = Engine("podman", directory, [*options, f"unix://{directory}/d.sock"], env)
    try:
        with _running(engine, "debian12-venv"):
            yield engine
    finally:
        with contextlib.suppress(OSError, ValueError):  # what keeps the user's namespaces
            os.kill(int((directory / "run/libpod/tmp/pause.pid").read_text()), signal.SIGKILL)
        _remove(directory)
