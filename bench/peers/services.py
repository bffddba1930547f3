"""dockerd, podman and incusd with the tests' image, and daemons of ours that use them."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from context import REPOSITORY, Bench, Daemon, say
from measure import Skipped

sys.path.insert(0, str(REPOSITORY / "tests"))

from support import engines  # noqa: E402
from support import incus as incus_server  # noqa: E402


class Services:
    """Each engine is a service on a socket of its own; podman needs a second one for gVisor."""

    def __init__(self, is_quick: bool) -> None:
        if os.geteuid() != 0:
            raise Skipped("dockerd and podman need root here")
        self.stack = contextlib.ExitStack()
        makers: dict[str, Callable[[], Any]] = {"docker": engines.docker, "podman": engines.podman}
        if not is_quick:
            makers |= {"podman-gvisor": lambda: engines.podman("runsc"), "incus": incus_server.incus}
        self.of: dict[str, Any] = {}
        try:
            for name, make in makers.items():
                say(f"starting {name}")
                self.of[name] = self.stack.enter_context(make())
        except (AssertionError, OSError) as error:
            self.stack.close()
            raise Skipped(f"an engine does not start here: {error}") from error
        self.boxes = 0

    def stop(self) -> None:
        self.stack.close()

    def options(self, podman: str = "podman") -> tuple[str, ...]:
        sockets: tuple[str, ...] = (
            "--docker-socket",
            str(self.of["docker"].socket),
            "--podman-socket",
            str(self.of[podman].socket),
        )
        if "incus" in self.of:
            sockets += ("--incus-socket", str(self.of["incus"].socket), "--incus-image", incus_server.IMAGE)
        return (*sockets, "--engine-image", engines.IMAGE, "--preload", "", "--box-pool", "0")

    def plain_run(self, name: str, runtime: str = "") -> int:
        """`docker run --rm IMAGE python3 -c 'print(1+1)'`, hardened as the seeds do, without a command line's own
        time. Returns the exit status."""
        api = self.of[name].api
        host = {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Memory": 512 << 20,
            "MemorySwap": 512 << 20,
            "NanoCpus": 10**9,
            "PidsLimit": 300 if runtime else 50,
            "Ulimits": [
                {"Name": "nofile", "Soft": 1024, "Hard": 4096},
                {"Name": "nproc", "Soft": 4096, "Hard": 4096},
            ],
            **({"Runtime": runtime} if runtime else {}),
        }
        config = {"Image": engines.IMAGE, "Cmd": ["python3", "-c", "print(1+1)"], "User": "1000:1000"}
        body = json.dumps({**config, "HostConfig": host}).encode()
        box = json.loads(api.ask("POST", "/containers/create", body).read())["Id"]
        api.ask("POST", f"/containers/{box}/start").read()
        status = json.loads(api.ask("POST", f"/containers/{box}/wait").read())["StatusCode"]
        api.ask("DELETE", f"/containers/{box}").read()
        return int(status)


def needed_by(kind: str) -> str:
    """Which of the services a kind of session needs; those of native and remote ones need none in particular."""
    return {"podman with gVisor": "podman-gvisor", "podman": "podman", "incus": "incus"}.get(kind, "docker")


def services(bench: Bench) -> Services:
    return bench.share("engine services", lambda: Services(bench.quick))


def daemon(bench: Bench, name: str, pool: int, *more: str, podman: str = "podman") -> Daemon:
    """A daemon that knows these engines, without a layer: boxes of all engines have the same Python."""
    options = (*services(bench).options(podman), *more)
    return bench.share(f"daemon {name}", lambda: Daemon(bench, pool, name, options))
