"""A daemon of one test's own: its data directory, its socket, its control groups; killed by its process id."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from support.client import Client, DaemonError
from support.glovebox import Completed, Glovebox, slowness

PATIENCE_S = 60.0


def wait_for(what: str, condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The first true value of the condition. Never sleeps and hopes: only a hang reaches the deadline."""
    deadline = time.monotonic() + patience_s * slowness()
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {patience_s} s for {what}"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def process_state(pid: int) -> str:
    """The letter of /proc/PID/stat; "" when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_gone(pid: int) -> bool:
    return process_state(pid) in ("", "Z", "X")


def memory_of(pid: int, field: str = "VmRSS") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no {field}")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Daemon:
    """`glovebox serve` with a data directory of its own. Use `start`, then `client()` or `cli()`."""

    def __init__(self, glovebox: Glovebox, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.glovebox = glovebox
        self.options = ("--pool", "0", "--box-pool", "0", "--preload", "", "--timeout", "60s", *options)
        self.env = dict(env or {})
        self.data = glovebox.place.data
        self.socket = str(self.data / "d.sock")
        self.log = glovebox.place.path / "serve.log"
        self.output: int | None = None  # instead of the log: a descriptor
        self.wrapper: tuple[str | Path, ...] = ()  # a program that runs it
        self.pass_fds: tuple[int, ...] = ()  # what it is started with beyond the three; for tests of leaks
        self.process: subprocess.Popen[str] | None = None
        self.clients: list[Client] = []
        self.before = belongings(glovebox)

    # life and death

    def start(self, preexec: Callable[[], None] | None = None) -> Daemon:
        """Returns when it serves."""
        self.launch(preexec)
        wait_for("the daemon to serve", self._serves_or_died)
        assert self.process is not None and self.process.poll() is None, self.words()
        return self

    def launch(self, preexec: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        """Only starts the process."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        become = self.glovebox._become

        def prepare() -> None:
            become()
            os.umask(0o077)  # as in the background, where boxes must still see what is theirs
            if preexec:
                preexec()

        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*map(str, self.wrapper), str(self.glovebox.binary), "serve", "--socket", self.socket, *self.options],
                env=self.glovebox.environment(self.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log if self.output is None else self.output,
                cwd=self.glovebox.place.home,
                start_new_session=True,
                preexec_fn=prepare,
                pass_fds=self.pass_fds,
                text=True,
            )
        return self.process

    def _serves_or_died(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            return True
        try:
            with self._connect() as client:
                return client.request("ping")["ok"] is True
        except OSError:
            return False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """As a crash would: SIGKILL, and nothing else."""
        self._drop_clients()
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """Asks it to stop; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S * slowness())

    def stop(self) -> None:
        """Ends it and every session; whatever happened before, nothing of it stays."""
        self._drop_clients()
        if self.process is None:
            return
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            with contextlib.suppress(OSError, DaemonError), self._connect() as client:
                client.request("shutdown", sessions="end")
            try:
                self.process.wait(PATIENCE_S * slowness())
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(PATIENCE_S)
        for pid in self.vaults():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def leftovers(self) -> dict[str, list[str]]:
        """Processes, mounts and control groups that are still there after a stop, and state of no session."""
        left = self._left_behind()
        known = self.registered()
        for directory in ("state", "sessions"):
            path = self.data / directory
            unknown = [name for name in sorted(os.listdir(path)) if name not in known] if path.is_dir() else []
            if unknown:
                left[directory] = unknown
        return left

    def _left_behind(self) -> dict[str, list[str]]:
        left: dict[str, list[str]] = {}

        def look() -> bool:
            left.clear()
            for kind, found in belongings(self.glovebox).items():
                if new := sorted(found - self.before[kind]):
                    left[kind] = new
            return not left

        with contextlib.suppress(AssertionError):
            wait_for("nothing to be left", look, 30.0)
        return left

    def registered(self) -> set[str]:
        """Ids of the sessions in the registry."""
        path = self.data / "registry.db"
        if not path.exists():
            return set()
        try:
            with contextlib.closing(sqlite3.connect(path)) as registry:
                return {row[0] for row in registry.execute("SELECT id FROM session")}
        except sqlite3.Error:
            return set()

    def _drop_clients(self) -> None:
        while self.clients:
            self.clients.pop().close()

    # talking to it

    def client(self, timeout: float = 120.0) -> Client:
        """A connection that is closed with the daemon."""
        client = self._connect(timeout)
        self.clients.append(client)
        return client

    def _connect(self, timeout: float = 120.0) -> Client:
        """As the daemon's own user: it answers no other, and a connection belongs to the user that made it."""
        if not self.glovebox.changes_user:
            return Client(self.socket, timeout * slowness())
        os.seteuid(self.glovebox.place.uid)
        try:
            return Client(self.socket, timeout * slowness())
        finally:
            os.seteuid(0)

    def cli(self, *args: str | Path, **options: Any) -> Completed:
        """The command line, talking to this daemon."""
        options.setdefault("env", {"GLOVEBOX_SOCKET": self.socket, **self.env})
        return self.glovebox(*args, **options)

    def words(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    # looking at it

    def maker(self) -> int:
        """The process id of its maker."""
        return wait_for("a maker", lambda: next(_named("glovebox-maker", lambda pid: _parent(pid) == self.pid), 0))

    def vaults(self) -> list[int]:
        """Processes of this data directory's vault."""
        title = f"glovebox: vault {self.data}\0".encode()
        return list(_named("glovebox-vault", lambda pid: Path(f"/proc/{pid}/cmdline").read_bytes().startswith(title)))

    def helper(self, name: str) -> int:
        """The process id of a helper, as `status` reports it; 0 while it is down."""
        with self._connect() as client:
            return int(client.request("status")["helpers"][name]["pid"])

    def kernels(self) -> set[int]:
        """Processes in the boxes of this daemon, agents included."""
        return self.glovebox.groups.processes()

    def agent_of(self, session: str) -> int:
        """PID 1 of the session's box, as the host sees it."""
        with self._connect() as client:
            return int(client.request("session.show", session=session)["pid"])

    def kernel_of(self, session: str) -> int:
        """The session's Python, as the host sees it: process 2 of its box, whatever its parent is."""
        box = os.readlink(f"/proc/{self.agent_of(session)}/ns/pid")
        for pid in self.kernels():
            with contextlib.suppress(OSError):
                numbers = re.search(r"^NSpid:\s*(.*)$", Path(f"/proc/{pid}/status").read_text(), re.M)
                if os.readlink(f"/proc/{pid}/ns/pid") == box and numbers and numbers[1].split()[-1] == "2":
                    return pid
        raise AssertionError(f"session {session} has no kernel")

    def descriptors(self) -> int:
        """All but those of journals without a name, of which some wait for the next run."""
        return len(os.listdir(f"/proc/{self.pid}/fd")) - len(self.nameless())

    def nameless(self) -> list[int]:
        """The sizes of those."""
        sizes = []
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{self.pid}/fd/{fd}")
                if target.startswith(f"{self.data}/state/") and target.endswith(" (deleted)"):
                    sizes.append(os.stat(f"/proc/{self.pid}/fd/{fd}").st_size)
        return sizes


def belongings(glovebox: Glovebox) -> dict[str, set[str]]:
    """Processes, control groups and mounts of this data directory: those of a daemon beside it are not its own.

    A process belongs to it by its environment, its command line, its control group, or its parent. Files are judged by
    the tests themselves: a data directory keeps its registry, its locks and its sessions."""
    place, data = str(glovebox.place.path), f"GLOVEBOX_DATA_DIR={glovebox.place.data}\0".encode()
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    own = glovebox.groups.processes()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid = int(entry.name)
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            parents[pid] = int(parent)
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines[pid] = f"{pid} {state} {(entry / 'comm').read_text().strip()}: {command.strip()}"
            if place in command or data in (entry / "environ").read_bytes():
                own.add(pid)

    def is_own(pid: int) -> bool:
        for _ in range(64):
            if pid in own or pid <= 1:
                break
            pid = parents.get(pid, 0)
        return pid in own

    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": {line for pid, line in lines.items() if is_own(pid)},
        "groups": {str(path) for path in glovebox.groups.boxes()},
        "mounts": {line for line in mounts if f"{place}/" in line},
    }


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _named(name: str, accept: Callable[[int], bool]) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            if (
                (entry / "comm").read_text().strip() == name
                and accept(int(entry.name))
                and not is_gone(int(entry.name))
            ):
                yield int(entry.name)
