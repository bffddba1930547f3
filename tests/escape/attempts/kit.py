"""What every attempt to break out is made of. This file and the attempts run INSIDE the box.

An attempt is a function that must end in one of three ways, each said out loud:

    blocked(why)    the box held; `why` names the refusal
    escaped(what)   something was reached that must not be; `what` is the evidence
    no_tool(what)   the attempt could not be made at all: this is never a pass

Anything else (an unforeseen exception, no verdict, a hang, a death by another signal than SIGSYS) is BROKEN and
fails the test as well. Attempts are written so that a success does no harm: calls are made with arguments that the
kernel refuses only after it has checked the permission, files are opened for writing and not written.

Only the standard library is used, and raw system calls go through ctypes, so that nothing "passes" because a tool is
missing in the image.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

GROUPS = ("mounts", "kernel", "proc", "files", "processes", "network", "resources")

# Call numbers of x86_64; from 424 on they are the same everywhere.
CALLS = {
    "getpid": 39, "clone": 56, "io_setup": 206, "ptrace": 101, "syslog": 103, "personality": 135, "modify_ldt": 154,
    "pivot_root": 155, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
    "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172,
    "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179, "futex": 202, "clock_settime": 227,
    "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "migrate_pages": 256, "unshare": 272, "vmsplice": 278, "move_pages": 279, "perf_event_open": 298,
    "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320,
    "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "quotactl_fd": 443, "landlock_create_ruleset": 444, "memfd_secret": 447, "process_mrelease": 448,
    "statmount": 457, "listmount": 458, "open_tree_attr": 467, "adjtimex": 159, "vhangup": 153, "prctl": 157,
    "capset": 126, "shmget": 29, "shmat": 30, "mq_open": 240, "lookup_dcookie": 212, "uselib": 134,
}  # fmt: skip
GENERIC_CALLS = {  # where aarch64 differs: its own table
    "getpid": 172, "clone": 220, "io_setup": 0,
    "ptrace": 117, "syslog": 116, "personality": 92, "pivot_root": 41, "chroot": 51,
    "acct": 89, "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "swapoff": 225, "reboot": 142,
    "sethostname": 161, "setdomainname": 162, "init_module": 105, "delete_module": 106, "quotactl": 60, "futex": 98,
    "clock_settime": 112, "mbind": 235, "set_mempolicy": 237, "get_mempolicy": 236, "kexec_load": 104, "add_key": 217,
    "request_key": 218, "keyctl": 219, "migrate_pages": 238, "unshare": 97, "vmsplice": 75, "move_pages": 239,
    "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265,
    "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
    "finit_module": 273, "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282, "adjtimex": 171, "vhangup": 58,
    "prctl": 167, "capset": 91, "shmget": 194, "shmat": 196, "mq_open": 180,
}  # fmt: skip
if os.uname().machine == "aarch64":
    CALLS = {**{name: number for name, number in CALLS.items() if number >= 424}, **GENERIC_CALLS}

# How a wall says no. Everything else means that the kernel looked at the arguments: the call was reached.
REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS, errno.EAFNOSUPPORT})

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class Blocked(Exception):
    pass


class Escaped(Exception):
    pass


class NoTool(Exception):
    pass


def blocked(why: object) -> NoReturn:
    raise Blocked(describe(why))


def escaped(what: object) -> NoReturn:
    raise Escaped(describe(what))


def no_tool(what: object) -> NoReturn:
    raise NoTool(describe(what))


def describe(what: object) -> str:
    if isinstance(what, OSError) and what.errno is not None:
        return errno.errorcode.get(what.errno, str(what.errno))
    return str(what)


@dataclass
class Attempt:
    group: str
    title: str
    promise: str  # R1..R46 of the research, D1..D8 of the design's "what must hold"
    weak: str  # a runner in which it escapes, or "-: why that cannot be shown"
    run: Callable[[], object]
    alone: bool  # needs a box of its own
    box: dict[str, Any]  # what that box is started with
    only: str  # "" or the one runner for which the attempt has a meaning
    seconds: float
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.group + "-" + re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


ATTEMPTS: dict[str, Attempt] = {}
CONFIG: dict[str, Any] = {}  # from the outside: where its canaries are
FIRST_FDS: dict[int, str] = {}  # the descriptors open when the program began


def attempt(
    group: str,
    title: str,
    *,
    promise: str,
    weak: str,
    alone: bool = False,
    box: dict[str, Any] | None = None,
    only: str = "",
    seconds: float = 20,
) -> Callable[[Callable[[], object]], Callable[[], object]]:
    if group not in GROUPS:
        raise ValueError(f"unknown group {group}")

    def register(function: Callable[[], object]) -> Callable[[], object]:
        item = Attempt(group, title, promise, weak, function, alone or box is not None, box or {}, only, seconds)
        if item.id in ATTEMPTS:
            raise ValueError(f"two attempts are called {item.id}")
        ATTEMPTS[item.id] = item
        return function

    return register


# --- ways of trying -------------------------------------------------------------------------------------------------


def call(name: str, *arguments: Any) -> int:
    """One raw system call; raises OSError."""
    if name not in CALLS:
        no_tool(f"{name} does not exist on {os.uname().machine}")
    return call_number(CALLS[name], *arguments)


def call_number(number: int, *arguments: Any) -> int:
    converted = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    ctypes.set_errno(0)
    result = int(libc.syscall(ctypes.c_long(number), *converted))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def reach(name: str, *arguments: Any, refusals: frozenset[int] = REFUSALS) -> NoReturn:
    """Escapes when the call gets past the walls, whether it then succeeds or complains about its arguments."""
    try:
        result = call(name, *arguments)
    except OSError as error:
        if error.errno in refusals:
            blocked(f"{name}: {describe(error)}")
        escaped(f"{name} was reached: it answered {describe(error)}")
    escaped(f"{name} returned {result}")


def refused(action: Callable[[], object], what: str, refusals: frozenset[int] = REFUSALS) -> str:
    """Runs an action that must be refused; gives the refusal, escapes if it worked."""
    try:
        result = action()
    except OSError as error:
        if error.errno in refusals:
            return f"{what}: {describe(error)}"
        raise
    escaped(f"{what} worked" + (f": {result!r}"[:200] if result is not None else ""))


def open_to_write(path: str, *extra: int) -> str:
    """Opens and does not write. A file that is not there is as good as refused."""
    flags = os.O_WRONLY | os.O_NONBLOCK
    for flag in extra:
        flags |= flag
    try:
        if os.stat(path).st_rdev == os.makedev(1, 3):
            return f"{path} is masked by /dev/null"
    except OSError:
        pass  # the opening will tell
    return refused(lambda: os.close(os.open(path, flags)), f"open {path} for writing", REFUSALS | {errno.ENOENT})


def open_to_read(path: str) -> str:
    """Reads a little. Empty counts as refused: that is how masked files (a /dev/null on top) look."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in REFUSALS | {errno.ENOENT, errno.ENXIO}:
            return f"open {path}: {describe(error)}"
        raise
    try:
        data = os.read(descriptor, 4096)
    except OSError as error:
        if error.errno in REFUSALS | {errno.EIO, errno.EAGAIN, errno.EINVAL, errno.EISDIR}:
            return f"read {path}: {describe(error)}"
        raise
    finally:
        os.close(descriptor)
    if not data:
        return f"{path} is empty"
    escaped(f"{path} gives {data[:80]!r}")


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()


def in_child(action: Callable[[], int], seconds: float = 10) -> int:
    """Runs the action in a forked child; gives its wait status."""
    child = os.fork()
    if child == 0:
        status = 101
        try:
            status = action()
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError("the child did not end")


def scratch_directory() -> str:
    """A place that can be written to."""
    for place in ("/workspace", "/tmp"):
        try:
            path = os.path.join(place, f"scratch-{os.getpid()}-{time.monotonic_ns()}")
            os.mkdir(path)
            return path
        except OSError:
            continue
    no_tool("neither /workspace nor /tmp can be written")


# --- the runner -----------------------------------------------------------------------------------------------------


def run_attempt(item: Attempt) -> tuple[str, str]:
    try:
        item.run()
    except Blocked as verdict:
        return "BLOCKED", str(verdict)
    except Escaped as verdict:
        return "ESCAPED", str(verdict)
    except NoTool as verdict:
        return "NO_TOOL", str(verdict)
    except BaseException as error:  # noqa: BLE001 - whatever it was, it must become a line of the report
        return "BROKEN", f"{type(error).__name__}: {error} (line {last_line(error)})"
    return "BROKEN", "the attempt ended without a verdict"


def last_line(error: BaseException) -> int:
    line, trace = 0, error.__traceback__
    while trace:
        line, trace = trace.tb_lineno, trace.tb_next
    return line


def run_forked(item: Attempt) -> tuple[str, str]:
    """Runs one attempt in a child of its own: one that kills itself or hangs is one line of the report too."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        verdict = run_attempt(item)
        os.write(writer, json.dumps((verdict[0], verdict[1][:500])).encode() + b"\n")
        os._exit(0)
    os.close(writer)
    data = read_until_end(reader, item.seconds * CONFIG.get("slowness", 1))
    os.close(reader)
    if data is None:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if data is None:
        return "BROKEN", f"no verdict after {item.seconds:g} s"
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return ("BLOCKED" if name == "SIGSYS" else "BROKEN"), f"killed by {name}"
    try:
        verdict, why = json.loads(data)
    except ValueError:
        return "BROKEN", f"unreadable verdict {data[:100]!r}"
    return verdict, why


def read_until_end(reader: int, seconds: float) -> bytes | None:
    data, end = b"", time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return None
        piece = os.read(reader, 65536)
        if not piece:
            return data
        data += piece
        if data.endswith(b"\n"):  # a descendant may hold the pipe open for ever
            return data


def report(row: dict[str, Any]) -> None:
    """One line, by one call, begun afresh: an attempt may have written to the same place, or read from it."""
    sys.stdout.flush()
    os.write(1, b"\n" + json.dumps(row).encode() + b"\n")


def main(names: list[str]) -> None:
    for name in names:
        report({"begin": name})
        item = ATTEMPTS[name]
        verdict, why = run_attempt(item) if item.alone else run_forked(item)
        report({"attempt": name, "verdict": verdict, "why": why})
    report({"done": len(names)})
