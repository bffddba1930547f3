"""Control groups for the tests: one directory per test session, handed to the ordinary user where a user needs it.

On a pure v2 host and in the v2 tree of a hybrid one, a process may only be moved by a user who may write the
cgroup.procs of the group above both its old and its new place. So a user's glovebox starts inside `<name>/self`, and
its boxes are neighbours of that: just what systemd-run --user --scope -p Delegate=yes gives."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
DELEGATED_FILES = ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads")


def hierarchies() -> dict[str, Path]:
    """Where each controller (v1) and the v2 tree ("unified") are mounted."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        mount_point = Path(before.split(" ")[4])
        if kind == "cgroup2":
            found.setdefault("unified", mount_point)
        elif kind == "cgroup":
            for controller in CONTROLLERS:
                if controller in options.split(" ")[-1].split(","):
                    found.setdefault(controller, mount_point)
    return found


class TestGroups:
    """The directory `name` in every hierarchy. Only root can make one."""

    __test__ = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.directories = [path / name for path in hierarchies().values()]
        self.v2 = hierarchies().get("unified")

    def delegate(self, uid: int, gid: int) -> None:
        """Makes the directories and gives them to a user."""
        for directory in self.directories:
            directory.mkdir(exist_ok=True)
            if self.v2 is not None and directory.parent == self.v2:
                self._enable(self.v2)
                self._enable(directory)
                (directory / "self").mkdir(exist_ok=True)
            for path in [directory, *(directory / file for file in DELEGATED_FILES)]:
                if path.exists():
                    os.chown(path, uid, gid)

    def _enable(self, directory: Path) -> None:
        """Turns the controllers on for the groups below. In the empty tree of a hybrid host there are none."""
        offered = (directory / "cgroup.controllers").read_text().split()
        wanted = [f"+{controller}" for controller in CONTROLLERS if controller in offered]
        if wanted:
            (directory / "cgroup.subtree_control").write_text(" ".join(wanted))

    def enter(self) -> None:
        """Moves the calling process into the user's own place; called between fork and exec."""
        if self.v2 is not None:
            (self.v2 / self.name / "self" / "cgroup.procs").write_text("0")

    def boxes(self) -> Iterator[Path]:
        """The directories below ours: one for each box that still exists, in each hierarchy."""
        for directory in self.directories:
            if directory.is_dir():
                yield from (path for path in directory.iterdir() if path.is_dir() and path.name != "self")

    def cpu_weights(self) -> list[float]:
        """Of each box that has processes: its share of the processors, compared with a box at rest."""
        found = []
        for box in self.boxes():
            for file, full in (("cpu.shares", 1024), ("cpu.weight", 100)):
                with contextlib.suppress(OSError):
                    weight = int((box / file).read_text()) / full
                    if (box / "cgroup.procs").read_text():
                        found.append(weight)
        return found

    def processes(self) -> set[int]:
        """Everything that still runs in a box of this session."""
        found: set[int] = set()
        for box in self.boxes():
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in (box / "cgroup.procs").read_text().split())
        return found

    def remove(self) -> None:
        """Removes the directories; a process that a failed test left inside is killed first."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                (directory / "cgroup.kill").write_text("1")
            for path in sorted(directory.rglob("*/"), key=lambda path: -len(path.parts)):
                if path.is_dir():
                    _remove_directory(path)
            _remove_directory(directory)


def _remove_directory(path: Path) -> None:
    """rmdir, tried for a while: a killed process leaves its group a moment after it is gone from /proc."""
    for pause in (0.001, 0.01, 0.1, 0.5, 1.0):
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(pause)
