"""The objects that all tables of a run share: a scratch directory, the layer, the daemons, the peers."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from client import Client
from measure import Skipped

REPOSITORY = Path(__file__).resolve().parents[1]
SYSTEM_PYTHON = "/usr/bin/python3"
API_KEY = "a-key-for-the-benchmark-alone"


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Daemon:
    """A daemon of our own with its own socket; stopped by the pid we started."""

    def __init__(self, bench: Bench, pool: int, name: str = "", more: tuple[str, ...] = ()) -> None:
        # A daemon has its data directory for itself.
        name = name or str(pool)
        data_dir = bench.data_dir.with_name(f"bench-data-{name}")
        place_layer(bench, data_dir)
        self.directory = bench.scratch / f"daemon-{name}"
        self.directory.mkdir()
        self.socket = str(self.directory / "g.sock")
        self.log = open(self.directory / "log", "wb")  # noqa: SIM115 - lives as long as the daemon
        command = [str(bench.glovebox), "serve", "--socket", self.socket, "--pool", str(pool), "--idle", "0", *more]
        self.process = subprocess.Popen(
            command,
            env=dict(bench.environment, GLOVEBOX_DATA_DIR=str(data_dir), SANDBOX_API_KEY=API_KEY),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        self.pool = pool
        self._wait(60)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError), self.connect() as client:
                client.request("ping")
                return
            time.sleep(0.02)
        tail = (self.directory / "log").read_text(errors="replace").strip()[-300:]
        self.stop()
        raise RuntimeError(f"glovebox serve did not come up: {tail or 'no output'}")

    def connect(self) -> Client:
        return Client(self.socket)

    def wait_for_pool(self, client: Client, seconds: float = 60) -> None:
        """Until the pool is full: the measured call then finds a kernel ready."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pool = client.request("status").get("pool") or {}
            wanted = min(self.pool, pool.get("wanted", self.pool)) + pool.get("light_wanted", 0)
            if pool.get("ready", 0) + pool.get("light_ready", 0) >= wanted:
                return
            time.sleep(0.002)
        raise RuntimeError(f"the pool was not filled within {seconds:g} s")

    def api_port(self) -> int:
        match = re.search(r"the API is at http://127\.0\.0\.1:(\d+)", (self.directory / "log").read_text())
        if not match:
            raise RuntimeError("the daemon did not say where its API is")
        return int(match.group(1))

    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(OSError), Client(self.socket, timeout=60) as client:
                client.begin("shutdown", sessions="end")
                with contextlib.suppress(Exception):
                    client.finish()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
        self.log.close()


class Bench:
    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.glovebox = REPOSITORY / "build/glovebox"
        self.scratch = Path(tempfile.mkdtemp(prefix="gb-bench-", dir="/tmp"))
        self.data_dir = REPOSITORY / "build/bench-data"
        self.environment = dict(os.environ, GLOVEBOX_DATA_DIR=str(self.data_dir), GLOVEBOX_NO_DAEMON="1")
        self._kept: dict[str, Any] = {}
        self._why_not: dict[str, Exception] = {}
        self._stops: list[Callable[[], None]] = []

    # Whatever is shared is made at first need, once; if that failed, it fails for all with the same message.

    def share(self, name: str, make: Callable[[], Any]) -> Any:
        if name in self._why_not:
            raise self._why_not[name]
        if name not in self._kept:
            try:
                self._kept[name] = make()
            except Exception as error:
                self._why_not[name] = error
                raise
            stop = getattr(self._kept[name], "stop", None)
            if stop:
                self._stops.append(stop)
        return self._kept[name]

    def close(self) -> None:
        for stop in reversed(self._stops):
            try:
                stop()
            except Exception as error:  # noqa: BLE001 - the others must still be stopped
                say(f"while stopping: {error}")
        shutil.rmtree(self.scratch, ignore_errors=True)

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def daemon(self, pool: int = 2) -> Daemon:
        def make() -> Daemon:
            known = subprocess.run([str(self.glovebox), "serve", "--help"], capture_output=True, check=False)
            if known.returncode != 0:
                raise Skipped("this glovebox has no daemon yet")
            return Daemon(self, pool)

        return self.share(f"daemon-{pool}", make)

    def service(self) -> Daemon:
        """A daemon that serves the REST API on a free port, too."""
        options = ("--port", "0", "--key-runs", "0", "--max-sandboxes", "2000")
        return self.share("service", lambda: Daemon(self, 0, "api", options))

    def layer(self) -> Path:
        place_layer(self, self.data_dir)
        return self.data_dir / "images/host/python"


def place_layer(bench: Bench, data_dir: Path) -> None:
    """The scientific layer in a data directory: links to one that is there already, or built with pip."""
    place = data_dir / "images/host"
    if (place / "python").is_dir():
        return
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = next((path for path in _layers() if (path / "python").is_dir()), None)
    if found:
        say(f"taking the scientific layer from {found}")
        place.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copytree(found, place, symlinks=True, copy_function=_link_or_copy, dirs_exist_ok=True)
    else:
        say("building the scientific layer; this takes minutes, once")
        environment = dict(bench.environment, GLOVEBOX_DATA_DIR=str(data_dir))
        subprocess.run([str(bench.glovebox), "image", "build", "host"], env=environment, check=True)


def _layers() -> list[Path]:
    near = [REPOSITORY / "build" / name / "images/host" for name in ("bench-data", "test-data")]
    return [*near, Path("/var/lib/glovebox/images/host")]


def _link_or_copy(source: str, destination: str) -> str:
    try:
        os.link(source, destination, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, destination, follow_symlinks=False)
    return destination
