"""A box from the pool is shown its caller's directories when it is taken: it is the box that would have been made."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, wait_for
from support.daemons import make_daemons

FROM_POOL = "from the daemon's pool"


@pytest.fixture(params=["root", "user"], scope="module")
def daemon(binary: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    for make in make_daemons(binary):
        yield make("--pool", "2", "--preload", "json", who=request.param)


@pytest.fixture
def directory(daemon: Daemon) -> Path:
    """With a file, a project's links, and the caller as its owner."""
    directory = daemon.glovebox.place.path / "shown"
    shutil.rmtree(directory, ignore_errors=True)
    (directory / ".sandbox").mkdir(parents=True)
    (directory / "input.txt").write_text("here")
    (directory / "helper.py").write_text("NAME = 'beside'\n")
    (directory / ".sandbox/kernel.sock").write_text("a link of the host")
    for path in (directory, *directory.rglob("*")):
        daemon.glovebox.place.give(path)
    return directory


def run(daemon: Daemon, *words: str) -> str:
    client = daemon.client()

    def is_full() -> bool:
        pool = client.request("status")["pool"]
        return pool["ready"] == pool["wanted"] and pool["light_ready"] == pool["light_wanted"]

    wait_for("the pool", is_full)
    done = daemon.cli("run", "--verbose", *words)
    assert done.returncode == 0, done.stderr
    assert FROM_POOL in done.stderr
    return done.stdout


WRITES = """
import os
print(os.getcwd(), open("input.txt").read(), sorted(os.listdir(".sandbox")), os.path.isdir("artifacts"))
open("made.txt", "w").write("by the box")
try:
    open(".sandbox/mine", "w")
except OSError as error:
    print(type(error).__name__)
"""


def test_a_workspace_is_writable_and_its_files_belong_to_its_owner(daemon: Daemon, directory: Path) -> None:
    first, second = run(daemon, "--workspace", str(directory), "-c", WRITES).splitlines()
    assert first == "/workspace here [] True" and second in ("OSError", "PermissionError")
    made = directory / "made.txt"
    assert made.read_text() == "by the box" and made.stat().st_uid == directory.stat().st_uid


def test_a_module_of_the_workspace_is_imported(daemon: Daemon, directory: Path) -> None:
    assert run(daemon, "--workspace", str(directory), "-c", "import helper; print(helper.NAME)") == "beside\n"


READS = """
import errno, os
print(open("/data/input.txt").read(), sorted(os.listdir("/data/.sandbox")))
try:
    open("/data/new", "w")
except OSError as error:
    print(error.errno in (errno.EROFS, errno.EACCES))
"""


def test_data_can_only_be_read(daemon: Daemon, directory: Path) -> None:
    assert run(daemon, "--data", str(directory), "-c", READS) == "here []\nTrue\n"


SEALED = """
import ctypes, os, re
libc = ctypes.CDLL(None, use_errno=True)
def refused(call, *words):
    return call(*words) < 0 and os.strerror(ctypes.get_errno())
try:
    open("/proc/self/comm", "w")
except PermissionError:
    print("landlock")
status = open("/proc/self/status").read()
print(re.search(r"Seccomp:\\s*(\\d)", status)[1], re.search(r"CapEff:\\s*(\\w+)", status)[1])
print(refused(libc.umount2, b"/workspace", 2), refused(libc.syscall, 444, 0, 0, 1))
print(refused(libc.syscall, {"x86_64": 317, "aarch64": 277}[os.uname().machine], 0, 0, 0), refused(libc.prctl, 22, 1))
"""


def test_a_box_with_late_mounts_is_sealed_like_any_other(daemon: Daemon, directory: Path) -> None:
    plain = run(daemon, "-c", SEALED)
    assert plain.splitlines() == [
        "landlock", "2 0000000000000000", "Operation not permitted Operation not permitted",
        "Function not implemented Invalid argument",
    ]  # fmt: skip
    assert run(daemon, "--workspace", str(directory), "--data", str(directory), "-c", SEALED) == plain


def test_a_kernel_that_waits_for_its_mounts_has_its_filter_and_no_capability(daemon: Daemon) -> None:
    """Code of the image is in its memory: it must not find a wall missing, whenever it gets to run."""
    run(daemon, "-c", "pass")
    data_dir = daemon.client().request("status")["daemon"]["data_dir"]
    waiting = [status for status in _children_of_supervisor(data_dir) if re.search(r"^NSpid:.*\t2$", status, re.M)]
    assert waiting
    for status in waiting:
        for row in ("Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
            assert f"\n{row}\n" in status


def _children_of_supervisor(data_dir: str) -> list[str]:
    """/proc/PID/status of each, as text."""
    statuses = {}
    supervisors = set()
    for process in Path("/proc").glob("[0-9]*"):
        statuses[process.name] = _read(process / "status")
        if _read(process / "cmdline").split("\0")[:2] == ["glovebox: supervisor", data_dir]:
            supervisors.add(process.name)
    return [status for status in statuses.values() if (parent := re.search(r"^PPid:\t(.*)$", status, re.M))
            and parent[1] in supervisors]  # fmt: skip


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


# What is mounted at each place; a workspace that was covered does not count.
LOOKS = """awk '{top[$5] = $6} END {for (place in top) print place, top[place]}' /proc/self/mountinfo
ls /; stat -c '%n %a %u' /data /workspace"""


def test_a_pool_box_has_the_same_mounts_as_a_new_one(daemon: Daemon, directory: Path) -> None:
    words = ["--workspace", str(directory), "--data", str(directory), "-l", "bash", "-c", LOOKS]
    ready = run(daemon, *words).splitlines()
    made = daemon.cli("run", "--memory", "300m", *words).stdout.splitlines()  # no box of that kind waits
    assert sorted(set(ready)) == sorted(set(made))


def test_forbidden_mounts_are_refused_with_the_same_message(daemon: Daemon) -> None:
    answered = [daemon.cli("run", *more, "--data", "/proc", "-c", "1") for more in ([], ["--no-daemon"])]
    assert answered[0].returncode == answered[1].returncode == 125
    assert answered[0].stderr.splitlines()[-1:] == answered[1].stderr.splitlines() != []
