"""What Linux counts for a user or for the whole machine: one box has none of it, or a small share. The table in
docs/SECURITY.md names each resource; here is what a box gets when it asks for as much as it can."""

from __future__ import annotations

import fcntl
import json
import subprocess

import pytest
from support.glovebox import Glovebox, slowness

PROBE = r"""
import ctypes, errno, fcntl, json, mmap, os, resource, socket, time
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *arguments):
    answer = function(*arguments)
    return answer if answer >= 0 else errno.errorcode[ctypes.get_errno()]
def tried(action):
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno]
seen = {}
seen["inotify"] = call(libc.inotify_init1, 0)
context = ctypes.c_ulong(0)
seen["aio"] = call(libc.syscall, {"x86_64": 206, "aarch64": 0}[os.uname().machine], 1, ctypes.byref(context))
library = os.open("/usr", os.O_RDONLY)
seen["notify"] = tried(lambda: fcntl.fcntl(library, fcntl.F_NOTIFY, fcntl.DN_ACCESS))
program = os.open("/usr/bin/env", os.O_RDONLY)
seen["lease"] = tried(lambda: fcntl.fcntl(program, fcntl.F_SETLEASE, fcntl.F_RDLCK))
seen["lock of one's own"] = tried(lambda: fcntl.flock(os.open("/tmp/own", os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX))
seen["huge mmap"] = tried(lambda: mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000))
seen["huge memfd"] = tried(lambda: os.memfd_create("x", os.MFD_HUGETLB))
seen["huge shm"] = call(libc.shmget, 0, 2 << 20, 0o4000 | 0o1600)
seen["key"] = call(libc.syscall, {"x86_64": 248, "aarch64": 217}[os.uname().machine], b"user", b"x", b"y", 1, -3)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
terminals = []
try:
    while len(terminals) < 4000:
        terminals += os.openpty()
except OSError:
    pass
seen["terminals"] = len(terminals) // 2
for fd in terminals:
    os.close(fd)
class Event(ctypes.Structure):
    _fields_ = [("v", ctypes.c_void_p), ("signo", ctypes.c_int), ("how", ctypes.c_int), ("pad", ctypes.c_char * 48)]
timer, timers = ctypes.c_void_p(), 0
event = Event(None, 10, 0)  # SIGUSR1
while timers < 20000 and libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0:
    timers += 1
seen["timers"] = timers
seen["queue bytes"] = resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]
print(json.dumps(seen))
"""


@pytest.mark.vm
def test_a_box_gets_none_or_little_of_what_the_machine_counts(glovebox: Glovebox) -> None:
    done = glovebox("run", "--memory", "256m", "-c", PROBE)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    refusals = {
        "inotify": "ENOSYS",
        "aio": "ENOSYS",
        "notify": "EINVAL",
        "lease": "EINVAL",
        "huge mmap": "ENOMEM",
        "huge memfd": "ENOMEM",
        "huge shm": "ENOMEM",
        "key": "EPERM",
        "lock of one's own": None,
    }
    assert {name: seen[name] for name in refusals} == refusals
    assert 1 <= seen["terminals"] <= 32
    assert 1 <= seen["timers"] <= 1024
    assert 0 < seen["queue bytes"] <= 819200


# Fills as many connections as it can with bytes that are not read; TCP shows what it took, UDP what is there to read.
FLOOD = r"""
import resource, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
total = 0
if sys.argv[1] == "tcp":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1000)
    block, kept = bytes(1 << 20), []
    for _ in range(300):
        one = socket.create_connection(listener.getsockname())
        other = listener.accept()[0]
        kept.append((one, other))
        one.setblocking(False)
        try:
            while True:
                total += one.send(block)
        except BlockingIOError:
            pass
else:
    block, kept = bytes(60000), []
    for _ in range(1500):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        receiver.setblocking(False)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        kept.append(receiver)
        for _ in range(16):
            try:
                sender.sendto(block, receiver.getsockname())
            except OSError:
                break
    for receiver in kept:
        try:
            while True:
                total += len(receiver.recv(1 << 16))
        except OSError:
            pass
print(total >> 20)
"""


@pytest.mark.vm
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_bytes_that_wait_in_sockets_are_bounded(glovebox: Glovebox, kind: str) -> None:
    done = glovebox("run", "--memory", "128m", "-c", FLOOD, kind, timeout=120)
    if done.returncode == 137:  # v2 counts them as memory
        return
    assert done.returncode == 0 and 0 < int(done.stdout) < 64, done


def test_programs_of_the_host_cannot_be_watched_or_blocked(glovebox: Glovebox) -> None:
    """All ways to notice an open, or to delay it, on one file that the host then opens."""
    code = r"""
import ctypes, fcntl, os, signal, sys
fired = []
signal.signal(signal.SIGIO, lambda *_: fired.append("notified"))
libc = ctypes.CDLL(None)
for path in ("/usr/bin", "/usr/bin/env"):
    fd = os.open(path, os.O_RDONLY)
    for way in (lambda: fcntl.fcntl(fd, fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_MULTISHOT),
                lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK),
                lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)):
        try:
            way()
            fired.append("granted")
        except OSError:
            pass
if libc.inotify_init() >= 0:
    fired.append("inotify")
print("ready", flush=True)
sys.stdin.readline()
print(fired)
"""
    with glovebox.popen("run", "-c", code, stdin=subprocess.PIPE) as process:
        assert process.stdout and process.stdin and process.stdout.readline() == "ready\n"
        subprocess.run(["/usr/bin/env", "true"], check=True, timeout=20)
        stdout, stderr = process.communicate("\n", timeout=60 * slowness())
    assert stdout == "[]\n", (stdout, stderr)


LOCK = """
import fcntl, os, sys
fds = [os.open("/usr/bin/env", os.O_RDONLY), os.open("/usr/bin/env", os.O_RDONLY)]
try:
    fcntl.flock(fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(fds[1], fcntl.LOCK_SH | fcntl.LOCK_NB)
    print("locked", flush=True)
except OSError as error:
    print(error.errno, flush=True)
sys.stdin.readline()
"""


def test_locks_on_files_of_usr_are_the_boxs_own(glovebox: Glovebox) -> None:
    """One box locks a program; another one and the host lock it as well."""
    with glovebox.popen("run", "-c", LOCK, stdin=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == "locked\n"
        with open("/usr/bin/env", "rb") as program:
            fcntl.flock(program, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(program, fcntl.LOCK_UN)
            other = glovebox("run", "-c", LOCK, input="\n")
            assert other.stdout == "locked\n", other
        process.communicate("\n", timeout=60 * slowness())


# As many open files as its processes can have.
OPEN = r"""
import os, resource, signal
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
ours, theirs = os.pipe()
children = []
try:
    while len(children) < 100:
        child = os.fork()
        if child == 0:
            n = 0
            try:
                while True:
                    os.open("/dev/null", os.O_RDONLY)
                    n += 1
            except OSError:
                os.write(theirs, b"%d\n" % n)
            signal.pause()
        children.append(child)
except OSError:
    pass
text = b""
while text.count(b"\n") < len(children):
    text += os.read(ours, 65536)
print(sum(map(int, text.split())))
for child in children:
    os.kill(child, signal.SIGKILL)
"""


def test_open_files_of_a_box_are_bounded_by_its_processes_and_its_memory(glovebox: Glovebox) -> None:
    done = glovebox("run", "--pids", "8", "-c", OPEN, timeout=120)
    assert done.returncode == 0, done.stderr
    assert 4000 < int(done.stdout) <= 8 * 4096, done.stdout
    done = glovebox("run", "--pids", "100", "--memory", "32m", "-c", OPEN, timeout=120)
    assert done.returncode == 137 and "memory limit 32 MiB reached" in done.stderr, done
