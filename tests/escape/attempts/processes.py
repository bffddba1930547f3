"""Processes: reaching pid 1 (the agent), what is outside, and staying alive when the run is over."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import time

from kit import (
    CONFIG,
    FIRST_FDS,
    REFUSALS,
    attempt,
    blocked,
    call,
    describe,
    escaped,
    in_child,
    reach,
    refused,
)

GONE = REFUSALS | {errno.ESRCH, errno.ENOENT}


@attempt("processes", "attach to pid 1 with ptrace", promise="R20 D4", weak="userns")
def ptrace_attach() -> None:
    reach("ptrace", 0x4206, 1, 0, 0)  # SEIZE does not stop


@attempt("processes", "trace a child of one's own", promise="R20", weak="host")
def ptrace_child() -> None:
    def child() -> int:
        try:
            call("ptrace", 0, 0, 0, 0)
        except OSError as error:
            return 10 if error.errno in REFUSALS else 11
        return 0

    status = os.waitstatus_to_exitcode(in_child(child))
    if status == 10:
        blocked("PTRACE_TRACEME refused")
    escaped(f"child ended with {status}")


def io_vector(buffer: ctypes.Array[ctypes.c_char]) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), len(buffer))


@attempt("processes", "read memory with process_vm_readv", promise="R20", weak="host")
def vm_read() -> None:
    buffer, source = ctypes.create_string_buffer(8), ctypes.create_string_buffer(b"secrets!", 8)
    reach("process_vm_readv", os.getpid(), io_vector(buffer), 1, io_vector(source), 1, 0)


@attempt("processes", "write memory with process_vm_writev", promise="R20", weak="host")
def vm_write() -> None:
    buffer, source = ctypes.create_string_buffer(8), ctypes.create_string_buffer(b"secrets!", 8)
    reach("process_vm_writev", os.getpid(), io_vector(source), 1, io_vector(buffer), 1, 0)


for _name in ("mem", "environ", "maps", "smaps", "auxv", "syscall", "pagemap", "io", "personality"):
    attempt("processes", f"read {_name} of pid 1", promise="R1 D4", weak="userns")(
        lambda name=_name: read_of_init(name)
    )


def read_of_init(name: str) -> None:
    try:
        descriptor = os.open(f"/proc/1/{name}", os.O_RDONLY)
    except OSError as error:
        if error.errno in GONE:
            blocked(f"/proc/1/{name}: {describe(error)}")
        raise
    try:
        os.read(descriptor, 16)
    except OSError as error:
        if error.errno in GONE:
            blocked(f"read /proc/1/{name}: {describe(error)}")
        if name != "mem":
            raise
    escaped(f"/proc/1/{name} can be read")


@attempt("processes", "follow the links of pid 1", promise="R1 D4", weak="userns")
def links_of_init() -> None:
    for name in ("root", "cwd", "exe"):
        refused(lambda name=name: os.stat(f"/proc/1/{name}"), f"/proc/1/{name}", GONE)
        refused(lambda name=name: os.readlink(f"/proc/1/{name}"), f"/proc/1/{name}", GONE)
    blocked("root, cwd and exe refused")


@attempt("processes", "list the descriptors of pid 1", promise="R2 D4", weak="userns")
def descriptors_of_init() -> None:
    for name in ("fd", "fdinfo", "map_files"):
        refused(lambda name=name: os.listdir(f"/proc/1/{name}"), f"/proc/1/{name}", GONE)
    blocked("fd, fdinfo and map_files refused")


@attempt("processes", "overwrite the agent through its exe link", promise="R1", weak="userns")
def overwrite_agent() -> None:
    refused(lambda: os.stat("/proc/1/exe"), "/proc/1/exe", GONE)
    refusals = GONE | {errno.ETXTBSY}
    blocked(refused(lambda: os.close(os.open("/proc/1/exe", os.O_WRONLY)), "/proc/1/exe for writing", refusals))


@attempt("processes", "steal a descriptor of pid 1", promise="R2 D4", weak="userns")
def steal_descriptor() -> None:
    try:
        descriptor = call("pidfd_open", 1, 0)
    except OSError as error:
        if error.errno in GONE:
            blocked(f"pidfd_open: {describe(error)}")
        raise
    reach("pidfd_getfd", descriptor, 0, 0)


@attempt("processes", "steal a descriptor of one's own child", promise="R20", weak="host")
def steal_own() -> None:
    reach("pidfd_getfd", call("pidfd_open", os.getpid(), 0), 1, 0)


@attempt("processes", "cripple pid 1 with limits and priorities", promise="D4 R40", weak="-: would cripple the host",
         alone=True, box={"leftover": True, "timeout": "20"}, only="glovebox")  # fmt: skip
def cripple_init() -> None:
    # Where the agent has the tenant's uid the kernel allows this. It must gain nothing: the run ends all the same.
    done = []
    for name in ("NOFILE", "FSIZE", "NPROC", "DATA", "STACK", "AS", "CPU", "MEMLOCK"):
        try:
            resource.prlimit(1, getattr(resource, f"RLIMIT_{name}"), (0, 0))
            done.append(name)
        except OSError:
            pass
    for action in (
        lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
        lambda: os.sched_setaffinity(1, {min(os.sched_getaffinity(0))}),
        lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
    ):
        try:
            action()
            done.append("priority")
        except OSError:
            pass
    blocked(f"changed: {done}; the outside decides")


@attempt("processes", "signal pid 1", promise="D4", weak="-: would end the init of the host", box={"timeout": "20"})
def signal_init() -> None:
    refusals: set[str] = set()
    for number in (
        signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
        signal.SIGPIPE, signal.SIGCHLD, signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP, signal.SIGKILL, signal.SIGRTMIN,
    ):  # fmt: skip
        for _ in range(3):
            try:
                os.kill(1, number)
                refusals.add("ignored")
            except OSError as error:
                refusals.add(describe(error))
    time.sleep(0.2)
    blocked(f"pid 1 lives on: {', '.join(sorted(refusals))}")


@attempt("processes", "kill every process there is", promise="D4", weak="host", alone=True, box={"canary": True})
def kill_everything() -> None:
    # kill(-1) spares this process, which reports; whether the canary outside lives is checked outside.
    try:
        os.kill(-1, signal.SIGKILL)
    except OSError as error:
        blocked(f"kill -1: {describe(error)}")
    blocked("kill -1 went out; the outside decides")


@attempt("processes", "signal a process of the host by its number", promise="D4 R39", weak="host")
def signal_outside() -> None:
    try:
        os.kill(CONFIG["process_pid"], 0)
    except OSError as error:
        if error.errno in GONE:
            blocked(f"kill {CONFIG['process_pid']}: {describe(error)}")
        raise
    escaped(f"process {CONFIG['process_pid']} can be signalled")


@attempt("processes", "open a process of the host by pidfd", promise="D4 R39", weak="host")
def pidfd_outside() -> None:
    reach("pidfd_open", CONFIG["process_pid"], 0, refusals=GONE)


@attempt("processes", "find an open descriptor beyond the three", promise="R2 D4", weak="host")
def inherited_descriptors() -> None:
    own = CONFIG.get("own_descriptors", {})  # of a kernel: known by number and kind
    extra = {
        number: target
        for number, target in FIRST_FDS.items()
        if number > 2 and not (str(number) in own and target.startswith(own[str(number)]))
    }
    if extra:
        escaped(f"open at the start: {extra}")
    blocked("no other is open")


@attempt("processes", "find a host directory behind a standard descriptor", promise="R2 D4", weak="-: none is passed")
def standard_descriptors() -> None:
    for number in (0, 1, 2):
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode) or stat.S_ISBLK(mode):
            escaped(f"descriptor {number} is {FIRST_FDS.get(number)}")
        if stat.S_ISSOCK(mode) and CONFIG["token"] in FIRST_FDS.get(number, ""):
            escaped(f"descriptor {number} is {FIRST_FDS.get(number)}")
    blocked(f"{FIRST_FDS}")


@attempt("processes", "have a working directory outside", promise="R2", weak="host")
def working_directory() -> None:
    here = os.readlink("/proc/self/cwd")
    if here.startswith("(unreachable)") or CONFIG["token"] in here or here not in ("/", "/workspace", "/tmp"):
        escaped(f"the working directory is {here}")
    blocked(here)


@attempt("processes", "reach the caller's terminal", promise="R12 D4", weak="host", alone=True, box={"terminal": True})
def caller_terminal() -> None:
    import fcntl

    paths = ["/dev/tty", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2"]
    refusals = []
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            refusals.append(describe(error))
            continue
        for character in CONFIG["injection"].encode():
            try:
                fcntl.ioctl(descriptor, 0x5412, bytes([character]))
            except OSError as error:
                refusals.append(describe(error))
                break
    blocked(f"{', '.join(refusals)}; the outside decides")


@attempt("processes", "leave a process behind", promise="R38 D4", weak="host", alone=True, box={"leftover": True})
def leave_daemon() -> None:
    code = "import os, signal, sys, time\n" \
           "for n in range(1, 65):\n" \
           "    try: signal.signal(n, signal.SIG_IGN)\n" \
           "    except (OSError, ValueError): pass\n" \
           "os.setsid()\n" \
           "if os.fork(): os._exit(0)\n" \
           "print('up', flush=True)\n" \
           "time.sleep(300)\n"  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", code, CONFIG["leftover"]], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.wait()
    blocked("a daemon runs; the outside decides")


@attempt("processes", "outlive the time limit", promise="R40", weak="-: nothing else has a time limit", alone=True,
         box={"timeout": "2", "leftover": True}, only="glovebox")  # fmt: skip
def outlive_timeout() -> None:
    code = "import signal, sys, time\n" \
           "for n in range(1, 65):\n" \
           "    try: signal.signal(n, signal.SIG_IGN)\n" \
           "    except (OSError, ValueError): pass\n" \
           "print('up', flush=True)\n" \
           "time.sleep(300)\n"  # fmt: skip
    for stop in (False, True, False, True):
        process = subprocess.Popen([sys.executable, "-c", code, CONFIG["leftover"]], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        if stop:
            os.kill(process.pid, signal.SIGSTOP)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(300)


@attempt("processes", "dump a core", promise="R19", weak="host")
def core_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard > 1 or hard == resource.RLIM_INFINITY:
        escaped(f"cores may have {soft} of {hard} bytes")
    blocked("no cores")


@attempt("processes", "read shared memory of the host", promise="R25 D1", weak="host")
def host_shared_memory() -> None:
    try:
        segment = call("shmget", CONFIG["shm_key"], 0, 0)
    except OSError as error:
        if error.errno in GONE:
            blocked(f"shmget: {describe(error)}")
        raise
    escaped(f"segment {segment} of the host is here")


@attempt("processes", "see the host's System V objects in proc", promise="R25", weak="host")
def host_ipc_list() -> None:
    try:
        text = open("/proc/sysvipc/shm").read()
    except OSError as error:
        blocked(describe(error))
    if any(line.split()[:1] == [str(CONFIG["shm_key"])] for line in text.splitlines()):
        escaped("the host's segment is listed")
    blocked("not listed")


@attempt("processes", "open a message queue of the host", promise="R25 D1", weak="host")
def host_queue() -> None:
    try:
        call("mq_open", CONFIG["queue_name"].encode(), os.O_RDONLY, 0, 0)
    except OSError as error:
        if error.errno in GONE:
            blocked(f"mq_open: {describe(error)}")
        raise
    escaped("the queue of the host is here")


@attempt("processes", "run a program from memory with more rights", promise="R42", weak="-: rights, not running")
def memory_program() -> None:
    # Running from a memfd is allowed; it must not change who one is.
    descriptor = os.memfd_create("program")
    with open(sys.executable, "rb") as source:
        os.sendfile(descriptor, source.fileno(), 0, os.fstat(source.fileno()).st_size)
    code = "import os; print(open('/proc/self/status').read())"
    os.set_inheritable(descriptor, True)
    try:
        got = subprocess.run(
            [f"/proc/self/fd/{descriptor}", "-c", code],
            capture_output=True,
            text=True,
            pass_fds=[descriptor],
            timeout=15,
        )
    except OSError as error:
        blocked(f"memfd exec: {describe(error)}")
    for line in got.stdout.splitlines():
        if line.startswith("CapEff") and int(line.split()[1], 16):
            escaped(line)
        if line.startswith(("NoNewPrivs", "Seccomp:")) and line.split()[1] == "0":
            escaped(line)
    blocked("the same walls" if got.stdout else f"it did not run: {got.stderr[-100:]}")


@attempt("processes", "open the memory of a process of the host", promise="R20", weak="host")
def memory_outside() -> None:
    path = f"/proc/{CONFIG['process_pid']}/mem"
    blocked(refused(lambda: os.close(os.open(path, os.O_RDWR)), path, GONE))


@attempt("processes", "raise a hard limit", promise="D2", weak="-: needs CAP_SYS_RESOURCE")
def raise_hard_limit() -> None:
    for name in ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_MEMLOCK", "RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_RTPRIO"):
        number = getattr(resource, name, None)
        if number is None:
            continue
        soft, hard = resource.getrlimit(number)
        if hard == resource.RLIM_INFINITY:
            continue
        try:
            resource.setrlimit(number, (soft, hard + 1))
        except (OSError, ValueError):
            continue
        escaped(f"{name} went from {hard} to {hard + 1}")
    blocked("no hard limit can be raised")
