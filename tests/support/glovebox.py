"""Running the program under test, as root or as an ordinary user, in a place of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.cgroups import TestGroups

REPOSITORY = Path(__file__).resolve().parents[2]
USER_ID = 61234
PASSED_ON = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "GLOVEBOX_PYTHON")

Completed = subprocess.CompletedProcess[str]


def slowness() -> float:
    """How much slower than an ordinary machine this one is; time limits in tests are multiplied by it."""
    return float(os.environ.get("GLOVEBOX_TEST_SLOWNESS", "1"))


class Place:
    """A temporary directory that belongs to one user, with a HOME, a data directory and a TMPDIR.

    It lies in /tmp and not below pytest's own directory, which no other user may enter."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.uid = USER_ID if who == "user" and os.geteuid() == 0 else os.geteuid()
        self.path = Path(tempfile.mkdtemp(prefix=f"glovebox-test-{who}-", dir="/tmp"))
        os.chown(self.path, self.uid, self.uid if self.uid == USER_ID else -1)
        self.home = self.make("home")
        self.temporary = self.make("tmp")
        self.data = self.make("data")

    def make(self, name: str, mode: int = 0o700) -> Path:
        """A new directory in the place, owned by its user."""
        path = self.path / name
        path.mkdir(mode=mode)
        path.chmod(mode)
        self.give(path)
        return path

    def write(self, name: str, content: str | bytes, mode: int = 0o644) -> Path:
        """A new file in the place, owned by its user."""
        path = self.path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        self.give(path)
        return path

    def give(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Glovebox:
    """Calls the program: `glovebox("run", "-c", "print(42)")` returns a CompletedProcess with text output.

    The environment is a fixed one plus `env`; nothing of the caller's leaks in. A call that takes longer than
    `timeout` seconds is killed with its whole process group and raises subprocess.TimeoutExpired."""

    def __init__(self, binary: Path, place: Place, groups: TestGroups) -> None:
        self.binary = binary
        self.place = place
        self.groups = groups
        self.who = place.who
        self.more: dict[str, str] = {}  # variables of every call of this one
        self.changes_user = os.geteuid() == 0 and place.uid != 0

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        fixed = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.place.home),
            "TMPDIR": str(self.place.temporary),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "GLOVEBOX_DATA_DIR": str(self.place.data),
            "GLOVEBOX_SHARED_DATA_DIR": "none",  # nothing of this machine's own
        }
        if os.geteuid() == 0:
            fixed["GLOVEBOX_CGROUP_PARENT"] = self.groups.name
        fixed.update({name: os.environ[name] for name in PASSED_ON if name in os.environ})
        fixed.update(self.more)
        fixed.update(env or {})
        return fixed

    def own_socket(self) -> Glovebox:
        """A daemon at the user's own place could be of another user who is root here, too."""
        self.more["GLOVEBOX_SOCKET"] = str(self.place.data / "own.sock")
        return self

    def _become(self) -> None:
        """Between fork and exec: into the delegated group while still root, then the user for good."""
        if self.changes_user:
            self.groups.enter()
            os.setgroups([])
            os.setresgid(self.place.uid, self.place.uid, self.place.uid)
            os.setresuid(self.place.uid, self.place.uid, self.place.uid)

    def popen(self, *args: str | Path, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Starts it and returns at once; the leader of a session and process group of its own."""
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("cwd", self.place.home)
        return subprocess.Popen(
            [str(self.binary), *map(str, args)],
            env=self.environment(env),
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=self._become,
            **options,
        )

    def __call__(
        self,
        *args: str | Path,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        cwd: Path | None = None,
    ) -> Completed:
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        with self.popen(*args, env=env, stdin=stdin, cwd=cwd or self.place.home) as process:
            try:
                stdout, stderr = process.communicate(input, timeout=timeout * slowness())
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def json(self, *args: str | Path, **options: Any) -> dict[str, Any]:
        """`glovebox run --json …`: the result object. Whatever went wrong is in the message of the failure."""
        done = self("run", "--json", *args, **options)
        try:
            result = json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"no JSON; status {done.returncode}, stderr: {done.stderr}") from None
        assert isinstance(result, dict), result
        return result


def find_binary() -> Path:
    """$GLOVEBOX, or build/glovebox."""
    return Path(os.environ.get("GLOVEBOX", REPOSITORY / "build/glovebox")).absolute()


def reachable_binary(binary: Path, place: Place, also: Sequence[str] = ("glovebox*",)) -> Path:
    """The binary where any user can run it: itself, or a copy when it lies below a private directory."""
    if all(parent.stat().st_mode & 0o001 for parent in binary.parents) or place.uid == os.geteuid():
        return binary
    directory = place.make("bin", 0o755)
    for pattern in also:
        for path in binary.parent.glob(pattern):
            if path.is_file():
                shutil.copy2(path, directory / path.name)
    return directory / binary.name
