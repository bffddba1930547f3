"""What lies outside of a box while attempts are made: canaries that must not be seen, read, reached or killed.

A world belongs to one user. It has services on the loopback, UNIX sockets, files in the places where files lie about, a
process, a key, shared memory, a terminal. Everything has a random token in its name, so that worlds do not meet, and
everything goes away with `close`."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import pwd
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

ETC_FILES = ("/etc/passwd", "/etc/group", "/etc/fstab", "/etc/environment", "/etc/ssh/sshd_config", "/etc/crontab")
NR_ADD_KEY, NR_KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
KEYCTL_JOIN_SESSION_KEYRING, SESSION_KEYRING = 1, -3
IPC_CREAT, IPC_RMID = 0o1000, 0

libc = ctypes.CDLL(None, use_errno=True)


def tree_digest(top: Path) -> str:
    """Names, kinds, modes, times and bytes of everything below."""
    digest = hashlib.sha256()
    for directory, names, files in os.walk(top):
        names.sort()
        for name in (".", *names, *sorted(files)):
            path = Path(directory, name)
            status = path.lstat()
            digest.update(f"{path.relative_to(top)} {status.st_mode:o} {status.st_uid} {status.st_size} ".encode())
            digest.update(f"{status.st_mtime_ns}\n".encode())
            if stat.S_ISREG(status.st_mode):
                digest.update(path.read_bytes())
    return digest.hexdigest()


class World:
    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.token = "canary" + secrets.token_hex(8)
        self.directory = Path(tempfile.mkdtemp(prefix=f"escape-{self.token}-", dir="/tmp"))
        self._give(self.directory, 0o755)
        self.cleanup: list[Callable[[], object]] = [lambda: shutil.rmtree(self.directory, ignore_errors=True)]
        self.counter = 0
        try:
            self._plant_files()
            self._plant_sockets()
            self._plant_memory()
            self.terminal_master, self.terminal_slave = os.openpty()
            self.terminal = os.path.basename(os.ttyname(self.terminal_slave))
            self.cleanup += [lambda: os.close(self.terminal_master), lambda: os.close(self.terminal_slave)]
            self.process: subprocess.Popen[bytes] | None = None
            self.start_process()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.stop_process()
        for action in reversed(self.cleanup):
            with contextlib.suppress(OSError):
                action()
        self.cleanup.clear()

    def _give(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.uid)

    # --- files ---

    def _plant_files(self) -> None:
        self.secret = f"secret of {self.token}"
        outside = self.make_directory("outside")
        self.canary_file = outside / f"{self.token}.txt"
        self.canary_file.write_text(self.secret)
        self._give(self.canary_file, 0o644)
        self.canary_files = [str(self.canary_file)]
        for place in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/srv", "/opt"):
            path = Path(place, f"{self.token}.txt")
            try:
                path.write_text(self.secret)
            except OSError:
                continue
            self._give(path, 0o644)
            self.canary_files.append(str(path))
            self.cleanup.append(path.unlink)
        self.canary_fd = os.open(outside, os.O_RDONLY | os.O_DIRECTORY)
        self.cleanup.append(lambda: os.close(self.canary_fd))

    def make_directory(self, name: str) -> Path:
        self.counter += 1
        path = self.directory / f"{name}-{self.counter}"
        path.mkdir()
        self._give(path, 0o755)
        return path

    def make_sealed_directory(self, name: str) -> Path:
        """A directory that must come out of a run as it went in."""
        path = self.make_directory(name)
        for file, text in (("file", "do not change"), ("other", "nor this")):
            (path / file).write_text(text)
            self._give(path / file, 0o644)
        return path

    def write(self, name: str, text: str) -> Path:
        self.counter += 1
        path = self.directory / f"{self.counter}-{name}"
        path.write_text(text)
        self._give(path, 0o644)
        return path

    # --- sockets ---

    def _serve(self, server: socket.socket) -> None:
        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.sendall(self.secret.encode())

        server.listen(16)
        threading.Thread(target=answer, daemon=True).start()
        self.cleanup.append(server.close)
        self.cleanup.append(lambda: server.shutdown(socket.SHUT_RDWR))

    def _serve_tcp(self, family: int, address: str) -> int:
        server = socket.socket(family, socket.SOCK_STREAM)
        try:
            server.bind((address, 0))
        except OSError:
            server.close()
            return 0
        self._serve(server)
        return int(server.getsockname()[1])

    def _plant_sockets(self) -> None:
        self.tcp_port = self._serve_tcp(socket.AF_INET, "127.0.0.1")
        self.tcp_any_port = self._serve_tcp(socket.AF_INET, "127.0.0.2")
        self.tcp6_port = self._serve_tcp(socket.AF_INET6, "::1")
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(("127.0.0.1", 0))
        self.udp_port = datagrams.getsockname()[1]
        threading.Thread(target=self._answer_datagrams, args=(datagrams,), daemon=True).start()
        self.cleanup.append(datagrams.close)
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind("\0" + self.token)
        self._serve(abstract)
        self.unix_path = str(self.directory / "socket")
        by_path = socket.socket(socket.AF_UNIX)
        by_path.bind(self.unix_path)
        self._give(Path(self.unix_path), 0o777)
        self._serve(by_path)

    def _answer_datagrams(self, server: socket.socket) -> None:
        server.settimeout(1)
        while server.fileno() >= 0:
            try:
                _, sender = server.recvfrom(100)
                server.sendto(self.secret.encode(), sender)
            except TimeoutError:
                continue
            except OSError:
                return

    # --- memory, keys, processes ---

    def _plant_memory(self) -> None:
        self.shm_key = 0x40000000 | secrets.randbits(29)
        self.shm_id = libc.shmget(self.shm_key, ctypes.c_size_t(4096), IPC_CREAT | 0o666)
        if self.shm_id < 0:
            raise OSError(ctypes.get_errno(), "shmget")
        self.cleanup.append(lambda: libc.shmctl(self.shm_id, IPC_RMID, None))
        librt = ctypes.CDLL("librt.so.1", use_errno=True)
        queue = librt.mq_open(f"/{self.token}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        if queue < 0:
            raise OSError(ctypes.get_errno(), "mq_open")
        os.fchmod(queue, 0o666)
        os.close(queue)
        self.cleanup.append(lambda: librt.mq_unlink(f"/{self.token}".encode()))

    def start_process(self) -> None:
        """A process of the same user, found by a word in its arguments that is not in the attempts' script."""
        self.stop_process()
        self.process_word = "process-" + secrets.token_hex(12)
        # It reads a pipe that ends with us, so that it does not outlive a killed test.
        code = "import os; os.write(1, b'up'); os.read(0, 1)"
        arguments = ["/usr/bin/python3", "-c", code, self.process_word]
        extra: dict[str, Any] = {}
        if os.geteuid() == 0 and self.uid != 0:
            extra = {"user": self.uid, "group": self.uid, "extra_groups": []}
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(arguments, start_new_session=True, cwd="/", **streams, **extra)
        assert self.process.stdout is not None
        self.process.stdout.read(2)  # up: from here on it only waits

    def stop_process(self) -> None:
        process = getattr(self, "process", None)
        if process is not None:
            process.kill()
            process.communicate()

    def process_lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def plant_key(self) -> None:
        """Between fork and exec: a session keyring of our own with a key in it, inherited by whatever comes."""
        libc.syscall(NR_KEYCTL, KEYCTL_JOIN_SESSION_KEYRING, None)
        payload = self.secret.encode()
        libc.syscall(NR_ADD_KEY, b"user", self.token.encode(), payload, ctypes.c_size_t(len(payload)), SESSION_KEYRING)

    # --- what the attempts get to know ---

    def environment(self) -> dict[str, str]:
        return {f"ESCAPE_{self.token.upper()}": self.secret, "SSH_AUTH_SOCK": self.unix_path}

    def config(self) -> dict[str, Any]:
        assert self.process is not None
        return {
            "token": self.token,
            "canary_file": str(self.canary_file),
            "canary_files": self.canary_files,
            "key_name": self.token,
            "secret_names": [self.token, "escape-docker-", "glovebox-test-"],
            "environment_name": f"ESCAPE_{self.token.upper()}",
            "host_name": os.uname().nodename,
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "machine_id": _read_or("/etc/machine-id"),
            "host_users": [user.pw_name for user in pwd.getpwall() if 1000 <= user.pw_uid < 60000],
            "sha256": {path: digest for path in ETC_FILES if (digest := _digest_or(path))},
            "home_names": {"/home": _names("/home"), "/root": _names("/root")},
            "state_paths": [
                os.path.expanduser("~/.local/share"),
                str(self.directory),
                "/var/lib/glovebox",
                "/run/glovebox",
            ],  # fmt: skip
            "process_pid": self.process.pid,
            "process_sha256": hashlib.sha256(self.process_word.encode()).hexdigest(),
            "terminal": self.terminal,
            "shm_key": self.shm_key,
            "queue_name": self.token,
            "tcp_port": self.tcp_port,
            "tcp_any_port": self.tcp_any_port,
            "tcp6_port": self.tcp6_port,
            "udp_port": self.udp_port,
            "abstract_name": self.token,
            "unix_path": self.unix_path,
            "host_addresses": _own_addresses(),
            "name_servers": [
                line.split()[1] for line in _read_or("/etc/resolv.conf").splitlines() if line.startswith("nameserver ")
            ],
            "injection": f"injected-{secrets.token_hex(6)}\n",
            "leftover": f"leftover-{secrets.token_hex(12)}",
        }


def _read_or(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _digest_or(path: str) -> str:
    """Of files that say something: an empty one is the same everywhere."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(data).hexdigest() if data.strip() else ""


def _names(path: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if name not in (".bashrc", ".profile", ".cache")]
    except OSError:
        return []


def _own_addresses() -> list[str]:
    """The host's address towards others; asking for the route sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [str(probe.getsockname()[0])]
