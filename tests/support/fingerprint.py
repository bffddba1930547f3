"""Runs inside a box: prints everything about its sealing that can be seen from there, as JSON without anything that
differs from run to run. Two boxes with the same fingerprint are sealed alike."""

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator

STATUS_LINES = (
    "Uid",
    "Gid",
    "Groups",
    "Umask",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "SigBlk",
    "SigIgn",
    "SigPnd",
    "ShdPnd",
    "Threads",
    "CoreDumping",
    "Cpus_allowed_list",
)
COVERED = ("kcore", "keys", "kallsyms", "interrupts", "cmdline", "sys/kernel/random/boot_id", "acpi", "scsi", "tty")
LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]


def outcome(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as problem:
        return errno.errorcode.get(problem.errno, "?")
    return "done"


def read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(64).hex()
    except OSError as problem:
        return errno.errorcode.get(problem.errno, "?")


def listed(path: str) -> object:
    return sorted(os.listdir(path)) if os.path.isdir(path) else read(path)


def mounts() -> Iterator[list[str]]:
    """Point, options and kind of each; not where on the host it comes from."""
    for line in open("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        options = [word for word in after.split()[2].split(",") if not word.startswith(("uid=", "gid="))]
        yield [before.split()[4], before.split()[5], after.split()[0], *options]


def status() -> dict[str, list[str]]:
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip().split(":", 1) for line in file)
    return {name: lines.get(name, "").split() for name in STATUS_LINES}


def unshare() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) < 0:
        raise OSError(ctypes.get_errno(), "")


def device_command() -> None:
    with open("/dev/zero") as device:
        fcntl.ioctl(device, 0x5401, bytes(64))


def loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=10).close()


def lower_oom_score() -> None:
    """Away from being the first to go when memory runs out."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")


def controls() -> dict[str, int]:
    """What prctl reports: dumpable, securebits, timer slack and death signal."""
    libc = ctypes.CDLL(None)
    death = ctypes.c_int(-1)
    libc.prctl(2, ctypes.byref(death), 0, 0, 0)
    answered = {name: libc.prctl(number, 0, 0, 0, 0) for name, number in (("dumpable", 3), ("bits", 27), ("slack", 30))}
    return {**answered, "death signal": death.value, "personality": libc.personality(ctypes.c_ulong(0xFFFFFFFF))}


def timers() -> list[object]:
    kinds = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    with open("/proc/self/timers") as file:
        return [*(signal.getitimer(kind) for kind in kinds), file.read().count("ID: ")]


def own_descriptors() -> list[int]:
    return [fd for fd in range(64) if outcome(lambda: os.fstat(fd)) == "done"]  # noqa: B023


print(
    json.dumps(
        {
            "status": status(),
            "mounts": sorted(mounts()),
            "limits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
            "namespaces": {name: read(f"/proc/sys/user/{name}") for name in sorted(os.listdir("/proc/sys/user"))},
            "covered": {name: listed(f"/proc/{name}") for name in COVERED},
            "groups": open("/proc/self/cgroup").read(),
            "name": [os.uname().nodename, read("/etc/hostname"), read("/etc/machine-id")],
            "agent": {name: read(f"/proc/1/{name}") for name in ("environ", "maps", "mem")},
            "session": os.getsid(0) == os.getpid(),
            "agent's session": [os.getpgid(1), os.getsid(1)],
            "places": {path: sorted(set(os.listdir(path)) - {"artifacts"}) for path in ("/", "/dev", "/workspace")},
            "descriptors": own_descriptors(),
            "controls": controls(),
            "timers": timers(),
            "priority": [
                os.getpriority(os.PRIO_PROCESS, 0),
                os.sched_getscheduler(0),
                read("/proc/self/oom_score_adj"),
            ],
            "here": [os.getcwd(), os.readlink("/proc/self/root"), os.readlink("/proc/self/exe")],
            "ids": [os.getpid(), os.getppid(), os.getpgid(0), read("/proc/self/loginuid")],
            "environment": sorted(os.environ),
            "attempts": {
                "new user namespace": outcome(unshare),
                "lower its oom score": outcome(lower_oom_score),
                "write to the root": outcome(lambda: open("/x", "w")),
                "write to a knob": outcome(lambda: open("/proc/sys/kernel/hostname", "w")),
                "command to a device (Landlock)": outcome(device_command),
                "loopback": outcome(loopback),
            },
        },
        sort_keys=True,
    )
)
