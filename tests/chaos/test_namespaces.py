"""Two daemons that share the control groups of a host, and nothing else: each in a container of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import Client
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon

# Shows another directory at the path of the data directory, to this daemon only.
APART = ("unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"')


@contextlib.contextmanager
def beside(first: Daemon, other_data: Path, *more: str) -> Iterator[Daemon]:
    """A daemon with the same path for its data directory, and another directory there."""
    second = Daemon(first.glovebox, *first.options)
    second.socket = str(first.glovebox.place.path / "second.sock")
    second.log = first.glovebox.place.path / "second.log"
    second.wrapper = (APART[0], *more, *APART[1:], other_data, first.data)
    try:
        yield second.start()
    finally:
        second.stop()


@pytest.fixture
def first(start_daemon: StartDaemon) -> Daemon:
    return start_daemon()


@pytest.mark.parametrize("more", [(), ("--pid", "--fork", "--kill-child", "--mount-proc")], ids=["mount", "pid"])
def test_daemons_with_one_path_in_different_namespaces_leave_each_others_boxes_alone(
    first: Daemon, more: tuple[str, ...]
) -> None:
    client = first.client()
    client.execute("x = 41", "s")
    other_data = first.glovebox.place.path / "other"
    shutil.copytree(first.data, other_data, ignore=shutil.ignore_patterns("*.sock", "state", "sessions", "registry*"))
    with beside(first, other_data, *more) as second:
        other = second.client()
        assert other.request("session.list")["sessions"] == []
        other.execute("x = 42", "s")
        assert client.execute("x", "s")["result"] == {"text/plain": "41"}
        # Nor when the first one comes again.
        first.kill()
        first.start()
        assert first.client().execute("x", "s")["result"] == {"text/plain": "41"}
        assert other.execute("x", "s")["result"] == {"text/plain": "42"}
    ids = [(place / "id").read_text().split()[0] for place in (first.data, other_data)]
    assert ids[0] != ids[1], "a copy of a data directory has an id of its own"


def make_group(daemon: Daemon, name: str, pid: int) -> list[Path]:
    groups = [directory / name for directory in daemon.glovebox.groups.directories if directory.is_dir()]
    for group in groups:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(pid))
    return groups


def test_a_start_ends_its_own_leftovers_and_does_not_wait_for_others(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    daemon.client().execute("1")  # so that the directories are there
    prefix = f"b-{(daemon.data / 'id').read_text().split()[0]}-"
    daemon.kill()
    mine, foreign = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
    try:
        make_group(daemon, prefix + "0" * 26, mine.pid)
        daemon.start()
        assert mine.wait(60) == -9
        wait_for("its groups to go", lambda: not list(daemon.glovebox.groups.boxes()))
        daemon.kill()
        groups = make_group(daemon, prefix + "1" * 26, foreign.pid)
        # Seen from another pid namespace, the processes in it have no number.
        daemon.wrapper = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        begun = time.monotonic()
        daemon.start()
        assert time.monotonic() - begun < 5
        assert daemon.words().count("another pid namespace") == 1, daemon.words()
        assert foreign.poll() is None and all(group.is_dir() for group in groups)
        with Client(daemon.socket) as client:
            assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
        daemon.stop()
    finally:
        for process in (mine, foreign):
            process.kill()
            process.wait()
    daemon.wrapper = ()
    daemon.start()
    wait_for("its groups to go", lambda: not list(daemon.glovebox.groups.boxes()))


def test_groups_of_an_older_version_are_removed_when_they_are_empty_and_left_when_not(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    daemon.client().execute("1", "s")  # so that the directories are there
    name = 2166136261
    for byte in str(daemon.data).encode():
        name = (name ^ byte) * 16777619 & 0xFFFFFFFF
    daemon.kill()
    directories = [directory for directory in daemon.glovebox.groups.directories if directory.is_dir()]
    empty = [directory / f"k-{name:08x}-{'0' * 26}" for directory in directories]
    for group in empty:
        group.mkdir()
    with subprocess.Popen(["sleep", "600"]) as anybodys:
        used = make_group(daemon, f"k-{name:08x}-{'1' * 26}", anybodys.pid)
        daemon.start()
        assert not any(group.exists() for group in empty)
        assert all(group.exists() for group in used) and anybodys.poll() is None
        assert "older version" in daemon.words()
        anybodys.kill()
    wait_for("the process to leave its group", lambda: not (used[0] / "cgroup.procs").read_text())
    daemon.kill()
    daemon.start()
    assert not any(group.exists() for group in used)
