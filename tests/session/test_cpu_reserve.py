"""Processor time that is reserved for short requests while boxes compute: who gets it, and no code can abuse it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cgroups import hierarchies
from support.client import Client
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon
from support.glovebox import slowness

SCHED_DEADLINE = 6
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}[os.uname().machine]
BUSY_LOOP = "while True: pass"


def reserve(pid: int, part: float) -> bool:
    """True if Linux admits this part of a processor."""
    period = 100_000_000
    runtime = int(period * part)
    attributes = struct.pack("IIQiIQQQ", 48, SCHED_DEADLINE, 1, 0, 0, runtime, period, period)
    return bool(ctypes.CDLL(None).syscall(SCHED_SETATTR, pid, attributes, 0) == 0)


def free_tenths() -> int:
    """How many tenths of a processor Linux would admit now."""
    sleepers = []
    try:
        for count in range(10 * (os.cpu_count() or 1)):
            sleepers.append(subprocess.Popen(["sleep", "60"]))
            if not reserve(sleepers[-1].pid, 0.1):
                return count
        return len(sleepers)
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@pytest.fixture(scope="module", autouse=True)
def a_host_that_admits_reservations() -> None:
    if free_tenths() < 5:
        pytest.skip("optional: this host admits no reservation of processors")


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> Daemon:
    return start_daemon("--preload", "")


def kernel_of(client: Client, session: str) -> int:
    """The host's process id of a session's Python."""
    (pid,) = [one["pid"] for one in client.request("session.list")["sessions"] if one["name"] == session]
    members = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    (path,) = [line.split(":", 2)[2] for line in members if "memory" in line.split(":")[1].split(",")] or [
        line.split(":", 2)[2] for line in members if line.startswith("0:")
    ]
    group = (hierarchies().get("memory") or hierarchies()["unified"]) / path.lstrip("/")
    found = [int(one) for one in (group / "cgroup.procs").read_text().split()]
    return min(one for one in found if "python" in Path(f"/proc/{one}/comm").read_text())


def is_reserved(pid: int) -> bool:
    return os.sched_getscheduler(pid) & 0xFF == SCHED_DEADLINE


@contextlib.contextmanager
def computing(daemon: Daemon, session: str = "long", timeout_ms: int = 120000) -> Iterator[None]:
    client = daemon.client()
    number = client.begin("execute", session=session, code=BUSY_LOOP, timeout_ms=timeout_ms)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            daemon.client().request("session.interrupt", session=session)
            client.finish(number)


def ask_until_reserved(client: Client, pid: int, session: str = "short") -> None:
    def asked() -> bool:
        client.execute("1", session)
        return is_reserved(pid)

    wait_for("the kernel to have reserved time", asked)


def test_a_short_request_has_reserved_time_while_a_box_computes(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("1", "short")
    pid = kernel_of(client, "short")
    for _ in range(20):
        client.execute("1", "short")
        assert not is_reserved(pid)  # nobody competes with it
    with computing(daemon):
        ask_until_reserved(client, pid)
        assert not is_reserved(kernel_of(client, "long"))
        wait_for("it to be given back unused", lambda: not is_reserved(pid))


def test_an_executed_kernel_has_reserved_time_too(daemon: Daemon) -> None:
    client = daemon.client()
    client.request("session.create", session="short", users=True)  # forked kernels have no users
    client.execute("1", "short")
    pid = kernel_of(client, "short")
    with computing(daemon):
        ask_until_reserved(client, pid)


def test_threads_and_children_do_not_inherit_reserved_time(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("import os, subprocess, sys, threading", "short")
    code = (
        "seen = [os.sched_getscheduler(0) & 255]\n"
        "def look(): seen.append(os.sched_getscheduler(threading.get_native_id()) & 255)\n"
        "thread = threading.Thread(target=look)\n"
        "thread.start()\nthread.join()\n"
        "pid = os.fork()\n"
        "if not pid: os._exit(os.sched_getscheduler(0) & 255)\n"
        "seen.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\nseen"
    )
    pid = kernel_of(client, "short")
    with computing(daemon):
        ask_until_reserved(client, pid)
        seen = client.execute(code, "short")["result"]["text/plain"]
    assert seen == "[6, 0, 0]"


@pytest.mark.parametrize("code", ["while True: pass", "import time\nwhile True: time.sleep(0.0005)"])
def test_code_cannot_keep_reserved_time(daemon: Daemon, code: str) -> None:
    client = daemon.client()
    client.execute("1", "short")
    pid = kernel_of(client, "short")
    with computing(daemon):
        ask_until_reserved(client, pid)
        with computing(daemon, "short"):
            wait_for("the reservation to end", lambda: not is_reserved(pid), 5)


def test_a_long_request_is_not_held_up_by_its_reservation(daemon: Daemon) -> None:
    """The budget is a tenth of a processor: with it, 300 ms of work would take three seconds."""
    client = daemon.client()
    client.execute("import time", "short")
    pid = kernel_of(client, "short")
    with computing(daemon):
        ask_until_reserved(client, pid)
        before = time.monotonic()
        done = client.execute("end = time.process_time() + 0.3\nwhile time.process_time() < end: pass", "short")
        assert done["status"] == "ok"
        assert time.monotonic() - before < 2 * slowness()


def test_nothing_stays_reserved_on_the_host(daemon: Daemon) -> None:
    """Linux 6.18 does not give back what a process had reserved that sleeps while it leaves the class."""
    client = daemon.client()
    client.execute("1", "short")
    pid = kernel_of(client, "short")
    before = free_tenths()
    with computing(daemon):
        for _ in range(3):
            ask_until_reserved(client, pid)
            wait_for("it to be given back unused", lambda: not is_reserved(pid))
        wait_for("what was reserved to be free", lambda: free_tenths() == before)
        ask_until_reserved(client, pid)
    client.request("session.remove", session="short")
    wait_for("the kernel's end", lambda: not Path(f"/proc/{pid}").exists())
    wait_for("what was reserved to be free", lambda: free_tenths() == before)


def test_a_new_daemon_ends_the_reservations_of_one_that_crashed(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("1", "short")
    pid = kernel_of(client, "short")
    with computing(daemon):
        ask_until_reserved(client, pid)
        daemon.kill()
        assert is_reserved(pid)
        daemon.start()
        wait_for("the reservation to end", lambda: not is_reserved(pid))


def test_the_daemon_is_a_real_time_process_only_while_boxes_compute(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("1", "short")

    def policy() -> int:
        return os.sched_getscheduler(daemon.pid) & ~os.SCHED_RESET_ON_FORK

    assert policy() == os.SCHED_BATCH
    with computing(daemon):
        wait_for("the daemon to come first", lambda: policy() == os.SCHED_RR)
        client.execute("import os", "new")  # by processes that the daemon makes
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
        assert children
        assert {os.sched_getscheduler(int(child)) & 0xFF for child in children} <= {os.SCHED_OTHER, os.SCHED_BATCH}
    for _ in range(40):  # from then on: a box at rest does not compute, however long its last request was
        wait_for("the daemon to be ordinary", lambda: policy() == os.SCHED_BATCH, 2)
        time.sleep(0.1)
    daemon.client().begin("execute", session="long", code=BUSY_LOOP, timeout_ms=60000)
    wait_for("the daemon to come first again", lambda: policy() == os.SCHED_RR)
    client.request("session.remove", session="long")
    wait_for("the daemon to be ordinary again", lambda: policy() == os.SCHED_BATCH, 5)


# ---- all boxes together ----


def common_group(daemon: Daemon) -> Path:
    where = hierarchies()
    group = where.get("cpu", where.get("unified"))
    assert group is not None
    return group / daemon.glovebox.groups.name


def is_idle(daemon: Daemon) -> bool:
    return (common_group(daemon) / "cpu.idle").read_text() == "1\n"


def compete(client: Client, daemon: Daemon) -> bool:
    client.execute("1", "short")
    return is_idle(daemon)


def test_boxes_give_way_together_while_short_and_long_requests_compete(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("1", "short")
    assert not is_idle(daemon)
    with computing(daemon):
        wait_for("the boxes to be idle", lambda: compete(client, daemon))
        daemon.kill()
        assert is_idle(daemon)
        daemon.start()  # undoes what a crashed one left
        assert not is_idle(daemon)
        client = daemon.client()
        wait_for("the boxes to be idle again", lambda: compete(client, daemon))
        wait_for("them to be ordinary when nobody asks", lambda: not is_idle(daemon), 20)


def test_a_weight_that_the_operator_has_given_stays(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("1", "short")
    pid = kernel_of(client, "short")
    (file,) = [path for name in ("cpu.shares", "cpu.weight") if (path := common_group(daemon) / name).exists()]
    file.write_text("300")
    with computing(daemon):
        ask_until_reserved(client, pid)
        for _ in range(20):
            assert not compete(client, daemon)
            time.sleep(0.02)
    assert file.read_text() == "300\n"


def test_other_processes_of_the_host_do_not_starve_boxes_that_compute(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("1", "short")
    client.execute("import time", "long")
    others = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        running = daemon.client()
        number = running.begin("execute", session="long", code="while time.process_time() < 1: pass", timeout_ms=60000)
        end, was_idle = time.monotonic() + 30 * slowness(), False
        while time.monotonic() < end:
            was_idle = compete(client, daemon) or was_idle
            (state,) = [one["state"] for one in client.request("session.list")["sessions"] if one["name"] == "long"]
            if state != "running":
                break
            time.sleep(0.01)
        assert was_idle
        assert running.finish(number)["status"] == "ok"  # it would take minutes
        assert time.monotonic() < end
    finally:
        for other in others:
            other.kill()
            other.wait()
