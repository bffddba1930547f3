"""Other doors into a box: kernels of a daemon, forked from its nursery (`fast`) or executed (`fresh`).

The attempts' script is sent as the code of one `execute`. Attempts that share a box share a session; one that wants a
box of its own gets an ephemeral kernel, or a session where it is the session's own directory that is at stake. The
daemon is started as a run would be: with the canaries' variable, key and descriptor in its hands."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from typing import Any

from support.client import Client
from support.daemon import Daemon, wait_for

from .runners import Ended, Runner, Start, slowness
from .world import World

# What cannot be asked of a kernel, and why.
NOT_FOR_KERNELS = {
    "processes-reach-the-caller-s-terminal": "the caller's terminal never comes near a daemon's kernel",
    "files-read-what-stands-in-the-file-behind-stdout": "a kernel's output is a pipe, whatever the caller's is",
    "files-change-the-file-behind-stdin": "a kernel's input is /dev/null, whatever the caller's is",
}

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
STATUSES = {"timeout": 124, "oom": 137}

# Said first: by which door the code came in. A forked Python has the arguments of its nursery.
WHICH_DOOR = """\
import json, os
with open("/proc/self/cmdline", "rb") as arguments:
    os.write(1, json.dumps({"forked": b"glovebox_kernel.nursery" in arguments.read()}).encode() + b"\\n")
"""


def bytes_of(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


class KernelRunner(Runner):
    """Executes code in kernels of a daemon, which must have been started by `warm_daemon`."""

    inside = True

    def __init__(self, daemon: Daemon, mode: str) -> None:
        super().__init__(daemon.glovebox.place.uid)
        self.name = f"kernel-{mode}"
        self.daemon = daemon
        self.glovebox = daemon.glovebox
        self.mode = mode
        self.numbers = itertools.count(1)

    def paths(self, start: Start) -> dict[str, Any]:
        place = self.glovebox.place.path.name
        return {
            **super().paths(start),
            # The two pipes of its channel, which a kernel's children do not have, and its copies of 1 and 2.
            "own_descriptors": {"3": "pipe:", "4": "pipe:", "5": "pipe:", "6": "pipe:"},
            # Directories of the host that a session is made of: the kernel shows the path of whatever is mounted.
            "own_mounts": {
                "/workspace": f"/{place}/data/sessions/",
                "/run/session": f"/{place}/data/state/",
                "/opt/glovebox/packages": f"/{place}/data/state/",
            },
        }

    def request(self, start: Start) -> dict[str, Any]:
        limits: dict[str, float] = {}
        for name, field in (("memory", "memory_bytes"), ("tmp_size", "tmp_bytes"), ("disk", "disk_bytes")):
            if name in start.options:
                limits[field] = bytes_of(start.limit(name, ""))
        for name in ("cpus", "pids"):
            if name in start.options:
                limits[name] = float(start.limit(name, ""))
        timeout = float(start.limit("timeout", str(240 * slowness())))
        request: dict[str, Any] = {"mode": self.mode, "limits": limits, "operator": True}
        request["timeout_ms"] = int(timeout * 1000)
        if start.workspace:
            request["workspace"] = str(start.workspace)
        if start.data:
            request["data"] = str(start.data)
        if start.mount:
            request["mounts"] = [{"source": str(start.mount), "destination": "/mounted", "writable": False}]
        return request

    def run(self, start: Start, seconds: float) -> Ended:
        name = f"door-{next(self.numbers)}" if start.options.get("session") else None
        try:
            with self.daemon._connect(seconds) as client:
                answer = self._execute(client, name, start)
        except TimeoutError:
            raise subprocess.TimeoutExpired("execute", seconds) from None
        return self._ended(answer, start)

    def _execute(self, client: Client, name: str | None, start: Start) -> dict[str, Any]:
        code = WHICH_DOOR + start.script.read_text()
        try:
            return client.execute(code, name, **self.request(start))
        finally:
            if name is not None:
                client.request("session.remove", session=name)
            self._wait_for_end()

    def _wait_for_end(self) -> None:
        """Boxes and their files go away after the answer; what does not is for the judges to see."""
        state = self.daemon.data / "state"
        with contextlib.suppress(AssertionError):
            wait_for("everything to be gone", lambda: not self.left_things() and not os.listdir(state), 60.0)

    def _ended(self, answer: dict[str, Any], start: Start) -> Ended:
        said = answer["stdout"].splitlines()
        assert said and json.loads(said[0]) == {"forked": self.mode == "fast"}, f"not a {self.mode} kernel: {answer}"
        status = STATUSES.get(answer["status"], answer["exit_code"])
        text = json.dumps(answer) if start.options.get("json") else answer["stdout"]
        if answer["status"] == "timeout":
            text = ""  # being interrupted at the time limit is not a verdict
        trouble = f"{answer['status']}: {answer['stderr'] or answer['error']}"
        return Ended(status, text, trouble, answer["duration_ms"] / 1000, start=start)

    def left_things(self) -> list[str]:
        boxes = [str(path) for path in self.glovebox.groups.boxes()]
        return boxes + [f"process {pid}" for pid in self.glovebox.groups.processes()]


def warm_daemon(daemon: Daemon, world: World) -> None:
    """Starts it with what must not get in, and waits for its nursery."""
    daemon.env.update(world.environment())
    daemon.pass_fds = (world.canary_fd,)
    daemon.start(preexec=world.plant_key)
    with daemon._connect() as client:
        client.execute("pass")
        wait_for("the nursery to be ready", lambda: (client.request("status")["nursery"] or {}).get("state") == "ready")
