#!/usr/bin/env python3
"""Times of every engine beside native: making a session, a warm run, an ephemeral run from the pool, memory of a box.

Starts dockerd, podman and a daemon of its own (root). `docker run` and `podman run` of the same image, through their
API, are the measure: engines are compared within one run, in turns. Prints a table for docs/ENGINES.md."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "bench")]

from support import engines  # noqa: E402

from client import Client  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "7"))
WARM = 300


@contextlib.contextmanager
def daemon(*options: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="glovebox-bench-", dir="/tmp") as data:
        socket = f"{data}/s.sock"
        program = os.environ.get("GLOVEBOX", str(REPOSITORY / "build/glovebox"))
        process = subprocess.Popen(
            [program, "serve", "--socket", socket, "--stock", "0", *options],
            env={**os.environ, "GLOVEBOX_DATA_DIR": data},
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    Client(socket).request("ping")
                    break
                time.sleep(0.05)
            yield socket
        finally:
            with contextlib.suppress(OSError):
                Client(socket).request("shutdown", sessions="end")
            process.wait(60)


def median_ms(times: list[float]) -> float:
    return statistics.median(times) * 1000


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def one_run(client: Client, session: str | None) -> float:
    begun = time.perf_counter()
    client.execute("1+1", session)
    return time.perf_counter() - begun


def plain_run(engine: engines.Engine, runtime: str = "") -> None:
    """`docker run --rm IMAGE python3 -c 'print(1+1)'`, hardened as the seeds do, without a command line's own time."""
    config = {
        "Image": engines.IMAGE,
        "Cmd": ["python3", "-c", "print(1+1)"],
        "User": "1000:1000",
        "HostConfig": {
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
        },
    }
    box = json.loads(engine.api.ask("POST", "/containers/create", json.dumps(config).encode()).read())["Id"]
    engine.api.ask("POST", f"/containers/{box}/start").read()
    assert json.loads(engine.api.ask("POST", f"/containers/{box}/wait").read())["StatusCode"] == 0
    engine.api.ask("DELETE", f"/containers/{box}").read()


def main() -> None:
    with engines.docker() as docker, engines.podman() as podman, engines.podman("runsc") as podman_gvisor:
        sockets = ("--docker-socket", str(docker.socket), "--podman-socket", str(podman.socket))
        image = ("--engine-image", engines.IMAGE)
        with (
            daemon(*sockets, *image, "--pool", "0", "--preload", "") as socket,
            daemon("--podman-socket", str(podman_gvisor.socket), *image, "--pool", "0", "--preload", "") as gvisor,
        ):
            kinds: dict[str, tuple[str, dict[str, str], Callable[[], None] | None]] = {
                "native": (socket, {"engine": "native", "mode": "fresh"}, None),
                "docker": (socket, {"engine": "docker"}, lambda: plain_run(docker)),
                "podman": (socket, {"engine": "podman"}, lambda: plain_run(podman)),
                "docker, gVisor": (
                    socket,
                    {"engine": "docker", "isolation": "gvisor"},
                    lambda: plain_run(docker, "runsc"),
                ),
                "podman, gVisor": (
                    gvisor,
                    {"engine": "podman", "isolation": "gvisor"},
                    lambda: plain_run(podman_gvisor, "runsc"),
                ),
            }
            made: dict[str, list[float]] = {kind: [] for kind in kinds}
            plain: dict[str, list[float]] = {kind: [] for kind in kinds}
            memory: dict[str, int] = {}
            clients = {kind: Client(where) for kind, (where, _, _) in kinds.items()}
            for round_ in range(ROUNDS):
                for kind, (_, fields, run) in kinds.items():
                    name = f"{kind.replace(', ', '-')}-{round_}"
                    begun = time.perf_counter()
                    clients[kind].request("session.create", session=name, **fields)
                    done = clients[kind].execute("1+1", name)
                    made[kind].append(time.perf_counter() - begun)
                    assert done["result"] == {"text/plain": "2"}, done
                    memory[kind] = done["usage"]["memory_peak_bytes"]
                    if run:
                        plain[kind].append(timed(run))
            warm: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(WARM):
                for kind in kinds:
                    warm[kind].append(one_run(clients[kind], f"{kind.replace(', ', '-')}-0"))
        pooled: dict[str, list[float]] = {}
        for kind in ("native", "docker"):
            with daemon(*sockets, *image, "--engine", kind, "--pool", "8", "--preload", "") as socket:
                client = Client(socket)
                while client.request("status")["pool"]["ready"] < 8:
                    time.sleep(0.2)
                pooled[kind] = [one_run(client, None) for _ in range(6)]
        print("| engine | session, first run | plain run | ratio | warm `1+1` | to native | pooled run | memory |")
        print("|---|---|---|---|---|---|---|---|")
        for kind in kinds:
            create, run_ms, round_ms = median_ms(made[kind]), median_ms(plain[kind] or [0]), median_ms(warm[kind])
            ratio = f"{create / run_ms:.2f}" if run_ms else ""
            pool = f"{median_ms(pooled[kind]):.1f} ms" if kind in pooled else ""
            print(
                f"| {kind} | {create:.0f} ms | {f'{run_ms:.0f} ms' if run_ms else ''} | {ratio} | {round_ms:.2f} ms "
                f"| {round_ms / median_ms(warm['native']):.2f} | {pool} | {memory[kind] >> 20} MiB |"
            )


if __name__ == "__main__":
    main()
