"""What a box shares with the host and its other boxes: resources that Linux counts for a user or for the machine, and
files of the image, which others open too."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import socket

from kit import CALLS, attempt, blocked, describe, escaped

MIB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)


def refused(answer: int) -> str:
    return errno.errorcode.get(ctypes.get_errno(), "?") if answer < 0 else ""


@attempt("files", "learn by inotify what others run", promise="R34", weak="host")
def watch_by_inotify() -> None:
    instance = LIBC.inotify_init1(0)
    if instance < 0:
        blocked(refused(instance))
    if LIBC.inotify_add_watch(instance, b"/usr/bin", 0x20) < 0:  # IN_OPEN
        blocked(refused(-1))
    escaped("a watch on /usr/bin")


@attempt("files", "learn by F_NOTIFY what others run", promise="R34", weak="host")
def watch_by_notify() -> None:
    directory = os.open("/usr/bin", os.O_RDONLY)
    try:
        fcntl.fcntl(directory, fcntl.F_NOTIFY, fcntl.DN_ACCESS)
    except OSError as error:
        blocked(describe(error))
    escaped("notified of every read in /usr/bin")


@attempt("files", "delay another process that opens a file by a lease", promise="R34", weak="host")
def hold_by_lease() -> None:
    file = os.open("/tmp/leased", os.O_CREAT | os.O_RDONLY, 0o600)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        blocked(describe(error))
    escaped("a lease on a file")


@attempt("resources", "take contexts of asynchronous I/O", promise="R34", weak="host", box={})
def take_contexts() -> None:
    taken = []
    for _ in range(100):
        context = ctypes.c_ulong(0)
        if LIBC.syscall(CALLS["io_setup"], 100, ctypes.byref(context)) < 0:
            break
        taken.append(context)
    if len(taken) == 100:
        escaped("10,000 of the machine's 65,536 events")
    blocked(f"{refused(-1)} after {len(taken)}")


@attempt("resources", "take terminals without end", promise="R34", weak="host", box={})
def take_terminals() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    terminals: list[int] = []
    try:
        while len(terminals) < 1000:
            terminals += os.openpty()
    except OSError as error:
        blocked(f"{describe(error)} after {len(terminals) // 2}")
    finally:
        for terminal in terminals:
            os.close(terminal)
    escaped("500 of the machine's terminals")


@attempt("resources", "ask for huge pages", promise="R34", weak="-: few hosts have any to give", box={})
def take_huge_pages() -> None:
    try:
        descriptor = os.memfd_create("huge", os.MFD_HUGETLB)
    except OSError as error:
        blocked(describe(error))
    try:
        mmap.mmap(descriptor, 2 * MIB)
    except OSError as error:
        escaped(f"the host's pool was asked, which had none left: {describe(error)}")
    escaped("a huge page of the host")


@attempt("resources", "keep bytes in sockets", promise="R34", weak="host", box={"memory": "128m"})
def keep_in_sockets() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1000)
    kept, total, block = [], 0, bytes(MIB)
    for _ in range(200):
        one = socket.create_connection(listener.getsockname())
        kept.append((one, listener.accept()[0]))
        one.setblocking(False)
        try:
            while True:
                total += one.send(block)
        except BlockingIOError:
            pass
    if total > 128 * MIB:
        escaped(f"{total // MIB} MiB in the sockets of a box of 128")
    blocked(f"{total // MIB} MiB")


@attempt("processes", "make a child of a process outside", promise="R15", weak="host")
def clone_parent() -> None:
    child = LIBC.syscall(CALLS["clone"], 0x8000 | 17, 0, 0, 0, 0)  # CLONE_PARENT | SIGCHLD
    if child == 0:
        os._exit(0)
    if child < 0:
        blocked(refused(child))
    escaped("a process whose parent is not ours")
