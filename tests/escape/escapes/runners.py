"""Places to run a script in: Glovebox, and the others that the same attempts are made in for comparison.

host             no box at all, as an ordinary user: where most attempts are shown to be able to succeed
host-root        no box at all, as root; only for attempts that say so
userns           root of a user namespace with all other namespaces new, and the host's files
bwrap            plain bubblewrap, --unshare-all
docker           plain `docker run`
docker-hardened  `docker run` with everything that its manual offers: no capabilities, read-only, no network, limits
glovebox         the thing itself
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .world import World

PYTHON = "/usr/bin/python3"
OUTPUT_MAX = 256 << 20


def slowness() -> float:
    """How much slower than an ordinary machine this one is (an emulated one, say)."""
    return float(os.environ.get("GLOVEBOX_TEST_SLOWNESS", "1"))


@dataclass
class Start:
    """One box to be started: the attempts' script and what is asked for."""

    world: World
    script: Path
    options: Mapping[str, Any]
    workspace: Path | None = None
    mount: Path | None = None
    data: Path | None = None
    stdin: Path | None = None
    stdout: Path | None = None

    @property
    def needs_stdin(self) -> bool:
        """Standard input is for the attempt, not for the script."""
        return self.stdin is not None or bool(self.options.get("terminal"))

    def limit(self, name: str, default: str) -> str:
        return str(self.options.get(name, default))


@dataclass
class Ended:
    status: int
    stdout: str
    stderr: str
    seconds: float
    terminal: str = ""
    start: Start | None = field(default=None, repr=False)


class Runner:
    """Runs a script somewhere. `inside` says whether it has the paths of a box or those of the host."""

    name = "host"
    inside = False
    by_stdin = False  # the script comes by standard input, so that no mount of it can be seen

    def __init__(self, uid: int) -> None:
        self.uid = uid

    def command(self, start: Start) -> list[str]:
        return [PYTHON, str(start.script)]

    def environment(self, start: Start) -> dict[str, str]:
        return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp", **start.world.environment()}

    def become(self) -> None:
        if os.geteuid() == 0 and self.uid != 0:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)

    def paths(self, start: Start) -> dict[str, str]:
        """Where the attempts find what they were given."""
        if self.inside:
            return {"workspace": "/workspace", "mount_place": "/mounted", "data_place": "/data"}
        return {"workspace": str(start.workspace), "mount_place": str(start.mount), "data_place": str(start.data)}

    def run(self, start: Start, seconds: float) -> Ended:
        begin = time.monotonic()
        way = _run_terminal if start.options.get("terminal") else _run_files
        ended = way(self, start, seconds)
        ended.seconds = time.monotonic() - begin
        ended.start = start
        return ended

    def left_processes(self, word: str) -> list[int]:
        """Processes of the host that still carry the word."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def left_things(self) -> list[str]:
        """Whatever else a run left behind, where the runner can tell."""
        return []

    def close(self) -> None:
        """Ends whatever the runner needed."""


def _prepare(runner: Runner, start: Start, terminal: int | None) -> Callable[[], None]:
    def between_fork_and_exec() -> None:
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        runner.become()
        start.world.plant_key()

    return between_fork_and_exec


def _popen(
    runner: Runner, start: Start, terminal: int | None, before: list[str] | None = None, **streams: Any
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*(before or []), *runner.command(start)],
        env=runner.environment(start),
        cwd=start.world.directory,
        pass_fds=[start.world.canary_fd],
        start_new_session=True,
        preexec_fn=_prepare(runner, start, terminal),
        **streams,
    )


def _run_files(runner: Runner, start: Start, seconds: float) -> Ended:
    """With files as its output: a pipe would stay open as long as a process that was left behind holds it."""
    with contextlib.ExitStack() as stack:
        stdin: Any = subprocess.DEVNULL
        if start.stdin is not None:
            stdin = stack.enter_context(start.stdin.open("r+b"))
        elif runner.by_stdin:
            stdin = stack.enter_context(start.script.open("rb"))
        stdout: Any = stack.enter_context(start.stdout.open("r+b") if start.stdout else tempfile.TemporaryFile())
        stderr = stack.enter_context(tempfile.TemporaryFile())
        stdout.seek(0, os.SEEK_END)
        process = _popen(runner, start, None, stdin=stdin, stdout=stdout, stderr=stderr)
        try:
            process.wait(timeout=seconds)
        except BaseException:
            kill_group(process)
            raise
        for stream in (stdout, stderr):
            stream.seek(0)
        out, error = stdout.read(OUTPUT_MAX), stderr.read(OUTPUT_MAX)
    return Ended(process.returncode, out.decode(errors="replace"), error.decode(errors="replace"), 0)


# A stand-in for a shell: it has the terminal, runs the command, and then says what was typed meanwhile.
SHELL = """\
import os, select, subprocess, sys, termios, tty
code = subprocess.call(sys.argv[2:], close_fds=False)
tty.setcbreak(0, termios.TCSANOW)
typed = b""
while select.select([0], [], [], 0.3)[0]:
    piece = os.read(0, 4096)
    if not piece:
        break
    typed += piece
with open(sys.argv[1], "wb") as stream:
    stream.write(typed)
sys.exit(code)
"""


def _run_terminal(runner: Runner, start: Start, seconds: float) -> Ended:
    """With a terminal as the controlling one, as a person would start it."""
    typed = start.world.write("typed", "")
    master, slave = os.openpty()
    if os.geteuid() == 0:
        os.fchown(slave, runner.uid, -1)  # as login does
    try:
        shell = [PYTHON, "-c", SHELL, str(typed)]
        process = _popen(runner, start, slave, before=shell, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        output = _read_terminal(master, time.monotonic() + seconds)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            kill_group(process)
            raise
    finally:
        os.close(master)
    text = output.decode(errors="replace").replace("\r\n", "\n")
    return Ended(process.returncode, text, "", 0, terminal=typed.read_text(errors="replace"))


def _read_terminal(master: int, end: float) -> bytes:
    output = b""
    while time.monotonic() < end and len(output) < OUTPUT_MAX:
        if not select.select([master], [], [], max(0, end - time.monotonic()))[0]:
            break
        try:
            piece = os.read(master, 65536)
        except OSError:  # EIO: the other side is closed
            break
        output += piece
    return output


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


class HostRoot(Runner):
    name = "host-root"

    def become(self) -> None:
        pass


class UserNamespace(Runner):
    name = "userns"

    def command(self, start: Start) -> list[str]:
        return [
            "unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup",
            "--fork", "--mount-proc", PYTHON, str(start.script),
        ]  # fmt: skip


class Bubblewrap(Runner):
    name = "bwrap"
    inside = True
    by_stdin = True

    def command(self, start: Start) -> list[str]:
        command = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]
        for name in ("bin", "sbin", "lib", "lib64"):
            command += ["--symlink", f"usr/{name}", f"/{name}"]
        command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        command += ["--bind", str(start.workspace), "/workspace"] if start.workspace else ["--tmpfs", "/workspace"]
        command += ["--chdir", "/workspace"]
        if start.mount:
            command += ["--ro-bind", str(start.mount), "/mounted"]
        if start.data:
            command += ["--ro-bind", str(start.data), "/data"]
        if start.needs_stdin:
            command += ["--ro-bind", str(start.script), "/script.py"]
        return [*command, PYTHON, "/script.py" if start.needs_stdin else "-"]


class Docker(Runner):
    """A plain `docker run`: what people type. Its daemon is running already."""

    name = "docker"
    inside = True
    by_stdin = True

    def __init__(self, uid: int, client: list[str], image: str) -> None:
        super().__init__(uid)
        self.client, self.image = client, image

    def become(self) -> None:
        pass  # the client talks to a daemon of root

    def options(self, start: Start) -> list[str]:
        del start
        return []

    def command(self, start: Start) -> list[str]:
        command = [*self.client, "run", "--rm", "--init", "-w", "/workspace"]
        if start.needs_stdin:
            command += ["-v", f"{start.script}:/script.py:ro"]
        command += ["-i"] if not start.options.get("terminal") else ["-it"]
        if start.workspace:
            command += ["-v", f"{start.workspace}:/workspace"]
        if start.mount:
            command += ["-v", f"{start.mount}:/mounted:ro"]
        if start.data:
            command += ["-v", f"{start.data}:/data:ro"]
        script = "/script.py" if start.needs_stdin else "-"
        return [*command, *self.options(start), self.image, PYTHON, script]


class DockerHardened(Docker):
    name = "docker-hardened"

    def options(self, start: Start) -> list[str]:
        memory = start.limit("memory", "512m")
        options = [
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only", "--network", "none",
            "--user", "65000:65000", "--cgroupns", "private", "--pids-limit", start.limit("pids", "50"),
            "--memory", memory, "--memory-swap", memory, "--cpus", start.limit("cpus", "1"),
            "--ulimit", "nofile=1024:4096", "--ulimit", "core=0", "--ulimit", f"fsize={1 << 30}",
            "--hostname", "sandbox",
            "--tmpfs", f"/tmp:mode=1777,nr_inodes=100000,size={start.limit('tmp_size', '100m')}",
        ]  # fmt: skip
        if not start.workspace:
            options += ["--tmpfs", f"/workspace:mode=1777,nr_inodes=100000,size={start.limit('disk', '512m')}"]
        else:
            start.workspace.chmod(0o777)
        return options


class GloveboxRunner(Runner):
    """`glovebox run`, as the user of the place it was given."""

    name = "glovebox"
    inside = True

    def __init__(self, glovebox: Any, *words: str) -> None:
        super().__init__(glovebox.place.uid)
        self.glovebox = glovebox
        self.words = words

    def become(self) -> None:
        self.glovebox._become()

    def environment(self, start: Start) -> dict[str, str]:
        environment: dict[str, str] = self.glovebox.environment(start.world.environment())
        return environment

    def command(self, start: Start) -> list[str]:
        # Alone: what lies beside the script is the harness's own, with canaries and sockets in it.
        command = [str(self.glovebox.binary), "run", "--alone", *self.words]
        for name in ("memory", "cpus", "pids", "timeout", "tmp_size", "disk"):
            default = str(240 * slowness()) if name == "timeout" else None
            if name in start.options or default:
                command += ["--" + name.replace("_", "-"), start.limit(name, default or "")]
        if start.options.get("json"):
            command.append("--json")
        for flag, path in (("--workspace", start.workspace), ("--data", start.data)):
            if path:
                command += [flag, str(path)]
        if start.mount:
            command += ["--mount", f"{start.mount}:/mounted:ro"]
        return [*command, str(start.script)]

    def left_things(self) -> list[str]:
        boxes = [str(path) for path in self.glovebox.groups.boxes()]
        return boxes + [f"process {pid}" for pid in self.glovebox.groups.processes()]


class EngineRunner(Runner):
    """A box that docker or podman makes for a daemon of Glovebox: an ephemeral run for each."""

    name = "glovebox"
    inside = True

    def __init__(self, glovebox: Any, socket: str) -> None:
        super().__init__(0)
        self.glovebox = glovebox
        self.socket = socket

    def command(self, start: Start) -> list[str]:
        limits = {
            {"tmp_size": "tmp"}.get(name, name): start.limit(name, "")
            for name in ("memory", "cpus", "pids", "tmp_size", "disk")
            if name in start.options
        }
        seconds = float(start.limit("timeout", str(240 * slowness())).removesuffix("s"))
        order: dict[str, Any] = {"script": str(start.script), "limits": limits, "timeout_ms": int(seconds * 1000)}
        for name, path in (("workspace", start.workspace), ("data", start.data)):
            if path:
                order |= {name: str(path), "operator": True}
        if start.mount:
            order["mounts"] = [{"source": str(start.mount), "destination": "/mounted", "writable": False}]
            order["operator"] = True
        return [PYTHON, str(Path(__file__).with_name("engine_run.py")), self.socket, json.dumps(order)]
