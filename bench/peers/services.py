"""dockerd and podman with the tests' image, and daemons of ours that use them."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from context import REPOSITORY, Bench, Daemon
from measure import Skipped

sys.path.insert(0, str(REPOSITORY / "tests"))

from support import engines  # noqa: E402


class Services:
    """Each engine is a service on a socket of its own; podman needs a second one for gVisor."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise Skipped("dockerd and podman need root here")
        self.stack = contextlib.ExitStack()
        makers: dict[str, Callable[[], Any]] = {"docker": engines.docker, "podman": engines.podman}
        makers["podman-gvisor"] = lambda: engines.podman("runsc")
        try:
            self.of = {name: self.stack.enter_context(make()) for name, make in makers.items()}
        except (AssertionError, OSError) as error:
            self.stack.close()
            raise Skipped(f"an engine does not start here: {error}") from error
        self.boxes = 0

    def stop(self) -> None:
        self.stack.close()

    def options(self, podman: str = "podman") -> tuple[str, ...]:
        sockets = ("--docker-socket", str(self.of["docker"].socket), "--podman-socket", str(self.of[podman].socket))
        return (*sockets, "--engine-image", engines.IMAGE, "--preload", "", "--stock", "0")

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


def services(bench: Bench) -> Services:
    return bench.share("engine services", Services)


def daemon(bench: Bench, name: str, pool: int, *more: str, podman: str = "podman") -> Daemon:
    """A daemon that knows these engines, without a layer: boxes of all engines have the same Python."""
    options = (*services(bench).options(podman), *more)
    return bench.share(f"daemon {name}", lambda: Daemon(bench, pool, name, options))
