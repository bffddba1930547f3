"""Counting what runs leave behind: processes, mounts, control groups, loop devices, files.

Only what belongs to this test session is counted (its directories, its control groups, its descendants), so that
whatever else runs on the machine cannot disturb a test:

    before = count_host(glovebox)
    ...
    assert not left_behind(glovebox, before)
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from support.glovebox import Glovebox, slowness

COMMON_PLACES = ("/tmp", "/var/tmp", "/run", "/dev/shm")
PRIVATE_MARKER = ".glovebox-private"  # the first use of a data directory writes it, and it stays


@dataclass(frozen=True)
class HostCount:
    """Names of everything found; the sizes of the sets are the counts."""

    processes: frozenset[str]
    mounts: frozenset[str]
    groups: frozenset[str]
    loops: frozenset[str]
    files: frozenset[str]
    descriptors: frozenset[str]

    def new_since(self, before: HostCount) -> dict[str, list[str]]:
        """What is here now and was not then; empty when nothing was left."""
        new = {item.name: sorted(getattr(self, item.name) - getattr(before, item.name)) for item in fields(self)}
        return {name: items for name, items in new.items() if items}


def _processes(glovebox: Glovebox) -> Iterator[str]:
    """Descendants of this process, members of its groups, and processes that name its binary or its place."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            parents[int(entry.name)] = int(parent)
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines[int(entry.name)] = f"{entry.name} {state} {command.strip()}"
    members = glovebox.groups.processes()
    marks = (str(glovebox.binary), str(glovebox.place.path))
    for pid, line in lines.items():
        if pid == os.getpid():
            continue
        ancestor, seen = parents.get(pid, 0), 0
        while ancestor > 1 and ancestor != os.getpid() and seen < 64:
            ancestor, seen = parents.get(ancestor, 0), seen + 1
        if ancestor == os.getpid() or pid in members or any(mark in line for mark in marks):
            yield line


def _mounts(glovebox: Glovebox) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if str(glovebox.place.path) in line or "glovebox" in line:
            yield line


def _loops(glovebox: Glovebox) -> Iterator[str]:
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if str(glovebox.place.path) in (backing := path.read_text()):
                yield f"{path.parts[3]} {backing.strip()}"


def _files(glovebox: Glovebox) -> Iterator[str]:
    """Names below the place (the workspace a test asked for is its own business, so only data and tmp) and the common
    places. Directories of other test sessions are not ours."""
    for top in (glovebox.place.data, glovebox.place.temporary):
        for directory, _, names in os.walk(top):
            if "/images/" not in directory + "/":
                yield directory
                yield from (f"{directory}/{name}" for name in names if name != PRIVATE_MARKER)
    for common in COMMON_PLACES:
        with contextlib.suppress(OSError):
            for name in os.listdir(common):
                if "glovebox" in name and not name.startswith(("glovebox-test-", "glovebox-kernel-", "glovebox-demo-")):
                    yield f"{common}/{name}"


def count_host(glovebox: Glovebox) -> HostCount:
    return HostCount(
        processes=frozenset(_processes(glovebox)),
        mounts=frozenset(_mounts(glovebox)),
        groups=frozenset(map(str, glovebox.groups.boxes())),
        loops=frozenset(_loops(glovebox)),
        files=frozenset(_files(glovebox)),
        descriptors=frozenset(os.listdir("/proc/self/fd")),
    )


def left_behind(glovebox: Glovebox, before: HostCount, patience_s: float = 10.0) -> dict[str, list[str]]:
    """What is still there after a while: the kernel takes a moment to bury the dead."""
    deadline = time.monotonic() + patience_s * slowness()
    pause = 0.005
    while True:
        new = count_host(glovebox).new_since(before)
        if not new or time.monotonic() > deadline:
            return new
        time.sleep(pause)
        pause = min(pause * 2, 0.5)
