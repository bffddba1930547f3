"""The kernel's attack surface: calls and socket families that code in a box does not need and that had holes before."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct
import termios

from kit import (
    CONFIG,
    REFUSALS,
    attempt,
    blocked,
    call,
    call_number,
    describe,
    escaped,
    in_child,
    libc,
    no_tool,
    reach,
    read_text,
    refused,
)

ABSENT = "-: not built into the kernel this was written on"


def simple(title: str, promise: str, weak: str, name: str, *arguments: object) -> None:
    """An attempt that is one system call."""
    attempt("kernel", title, promise=promise, weak=weak)(lambda: reach(name, *arguments))


simple("set up an io_uring", "R14", "host", "io_uring_setup", 1, None)
simple("enter an io_uring", "R14", "host", "io_uring_enter", -1, 0, 0, 0, None, 0)
simple("register with an io_uring", "R14", "host", "io_uring_register", -1, 0, None, 0)
simple("handle page faults with userfaultfd", "R15", "host", "userfaultfd", 1)
simple("load an eBPF map", "R15", "host-root", "bpf", 0, ctypes.create_string_buffer(128), 0)
simple("list eBPF programs", "R15", "host-root", "bpf", 11, ctypes.create_string_buffer(128), 12)
simple("read the kernel's log by syslog", "R46", "host-root", "syslog", 10, None, 0)
simple("switch process accounting", "R15", "host-root", "acct", b"/nowhere/at/all")
simple("add swap space", "R34", "host-root", "swapon", b"/nowhere/at/all", 0)
simple("take swap space away", "R34", "host-root", "swapoff", b"/nowhere/at/all")
simple("load a kernel module", "R15", ABSENT, "init_module", None, 0, b"")
simple("load a kernel module from a file", "R15", ABSENT, "finit_module", -1, b"", 0)
simple("unload a kernel module", "R15", ABSENT, "delete_module", b"no_such_module", 0o4000)
simple("load another kernel with kexec", "R15", ABSENT, "kexec_load", 0, 0, None, 0)
simple("load another kernel from a file", "R15", ABSENT, "kexec_file_load", -1, -1, 0, b"", 0)
simple("reboot", "R15", "host-root", "reboot", 0, 0, 0, None)
simple("set the host name", "D1", "userns", "sethostname", b"escaped", 7)
simple("set the domain name", "D1", "userns", "setdomainname", b"escaped", 7)
simple("hang up the terminal", "R12", "host-root", "vhangup")
simple("ask for disk quotas", "R15", "host", "quotactl", 0x80000100, b"/nowhere/at/all", 0, None)
simple("ask for disk quotas by descriptor", "R15", "host", "quotactl_fd", -1, 0x80000100, 0, None)
simple("open a file by its handle", "R1 D1", "host-root", "open_by_handle_at", -1, b"\0" * 16, 0)
simple("watch the file system with fanotify", "R15", "host", "fanotify_init", 0x200, 0)
simple("keep memory secret from the kernel", "R15", "host", "memfd_secret", 0)
simple("compare kernel objects with kcmp", "R20", "host", "kcmp", os.getpid(), os.getpid(), 99, 0, 0)
simple("advise on another process's memory", "R20", "host", "process_madvise", -1, None, 0, 20, 0)
simple("reap another process's memory", "R20", "host", "process_mrelease", -1, 0)
simple("move pages between nodes", "R15", "host", "move_pages", 0, 0, None, None, None, 0xFF)
simple("migrate pages between nodes", "R15", "host", "migrate_pages", 0, 0, None, None)
simple("bind memory to a node", "R15", "host", "mbind", 0, 0, 99, None, 0, 0)
simple("set a memory policy", "R15", "host", "set_mempolicy", 99, None, 0)
simple("map pages into a pipe with vmsplice", "R17", "host", "vmsplice", -1, None, 0, 0)
simple("load a library with uselib", "R15", ABSENT, "uselib", b"/nowhere/at/all")
simple("make a keyring", "R13", "host", "add_key", b"keyring", b"escape", None, 0, -1)
simple("ask for a key", "R13", "host", "request_key", b"user", b"escape", None, -1)
simple("ask which session keyring this is", "R13", "host", "keyctl", 0, -3, 0)


@attempt("kernel", "read a key of the caller's session keyring", promise="R13 D4", weak="host")
def read_session_key() -> None:
    try:
        key = call("keyctl", 10, -3, b"user", CONFIG["key_name"].encode(), 0)  # KEYCTL_SEARCH
    except OSError as error:
        if error.errno in REFUSALS | {errno.ENOKEY}:
            blocked(f"keyctl search: {describe(error)}")
        raise
    buffer = ctypes.create_string_buffer(64)
    size = call("keyctl", 11, key, buffer, 64, 0)
    escaped(f"the key says {buffer.raw[:size]!r}")


@attempt("kernel", "count events with perf_event_open", promise="R15", weak="host")
def perf_event() -> None:
    attributes = ctypes.create_string_buffer(128)
    struct.pack_into("=IIQ", attributes, 0, 1, 128, 1)  # PERF_TYPE_SOFTWARE, task clock
    struct.pack_into("=Q", attributes, 40, 1 << 5 | 1 << 6)  # leave kernel and hypervisor out
    reach("perf_event_open", attributes, 0, -1, -1, 0)


@attempt("kernel", "set the clock", promise="R41", weak="host")
def set_clock() -> None:
    # The nanoseconds are impossible: never set, but the answer shows whether the call was let through.
    reach("clock_settime", 0, (ctypes.c_int64 * 2)(0, -1))


@attempt("kernel", "set the time of day", promise="R41", weak="host-root")
def set_time_of_day() -> None:
    # An impossible time zone is refused only after the permission was checked.
    reach("settimeofday", None, (ctypes.c_int32 * 2)(9999, 0))


@attempt("kernel", "tune the clock", promise="R41", weak="host-root")
def tune_clock() -> None:
    timex = ctypes.create_string_buffer(256)
    struct.pack_into("=I", timex, 0, 0x4000)  # ADJ_TICK
    struct.pack_into("=q", timex, 88, 1)  # impossible, and looked at after the permission
    reach("adjtimex", timex)


@attempt("kernel", "reach the input and output ports", promise="R15", weak=ABSENT)
def io_ports() -> None:
    reach("iopl", 3)


@attempt("kernel", "reach one port with ioperm", promise="R15", weak=ABSENT)
def io_port() -> None:
    reach("ioperm", 0x80, 1, 1)


@attempt("kernel", "change the segment table with modify_ldt", promise="R15", weak="host")
def modify_ldt() -> None:
    reach("modify_ldt", 0, ctypes.create_string_buffer(64), 64)


@attempt("kernel", "turn address randomisation off", promise="R22", weak="host")
def personality_randomize() -> None:
    reach("personality", 0x0040000)


@attempt("kernel", "make every page executable", promise="R22", weak="host")
def personality_exec() -> None:
    reach("personality", 0x0400000)


@attempt("kernel", "get a handle for a file", promise="R1", weak="host")
def name_to_handle() -> None:
    buffer = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + b"\0" * 128)
    reach("name_to_handle_at", -100, b"/", buffer, ctypes.byref(ctypes.c_int()), 0)


@attempt("kernel", "call the kernel by int 0x80", promise="R43", weak="host")
def foreign_abi() -> None:
    if os.uname().machine != "x86_64":
        no_tool("int 0x80 exists on x86_64 only")
    # mov eax, 20 (getpid of the 32-bit table); int 0x80; ret
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    got = function()
    if got == os.getpid():
        escaped("the 32-bit getpid answered")
    blocked(f"int 0x80 answered {got}")


@attempt("kernel", "call the kernel by the x32 table", promise="R43", weak=ABSENT)
def x32_abi() -> None:
    try:
        got = call_number(0x40000000 | 39)
    except OSError as error:
        if error.errno in REFUSALS:
            blocked(describe(error))
        raise
    escaped(f"the x32 getpid answered {got}")


@attempt("kernel", "lock a priority-inheriting futex", promise="R16", weak="host")
def futex_pi() -> None:
    word = ctypes.c_uint32(0)
    reach("futex", ctypes.byref(word), 6, 0, None, None, 0)


@attempt("kernel", "requeue to a priority-inheriting futex", promise="R16", weak="host")
def futex_requeue_pi() -> None:
    first, second = ctypes.c_uint32(0), ctypes.c_uint32(0)
    reach("futex", ctypes.byref(first), 12, 1, 0, ctypes.byref(second), 0)


@attempt("kernel", "wait to be requeued to a priority-inheriting futex", promise="R16", weak="host")
def futex_wait_requeue_pi() -> None:
    first, second = ctypes.c_uint32(0), ctypes.c_uint32(0)
    reach("futex", ctypes.byref(first), 11 | 128, 1, None, ctypes.byref(second), 0)  # the value differs: EAGAIN


FAMILIES = {
    "AF_ALG (crypto)": (38, socket.SOCK_SEQPACKET, 0, "R2 R17", ABSENT),
    "AF_PACKET": (17, socket.SOCK_RAW, 0x0300, "R15", "userns"),
    "AF_VSOCK": (40, socket.SOCK_STREAM, 0, "R15", "host"),
    "AF_KEY": (15, socket.SOCK_RAW, 2, "R15", ABSENT),
    "AF_RXRPC": (33, socket.SOCK_DGRAM, 2, "R17", ABSENT),
    "AF_TIPC": (30, socket.SOCK_STREAM, 0, "R15", ABSENT),
    "AF_CAN": (29, socket.SOCK_RAW, 1, "R15", ABSENT),
    "AF_BLUETOOTH": (31, socket.SOCK_RAW, 1, "R15", ABSENT),
    "AF_XDP": (44, socket.SOCK_RAW, 0, "R15", "userns"),
    "AF_SMC": (43, socket.SOCK_STREAM, 0, "R15", ABSENT),
    "netlink to xfrm": (16, socket.SOCK_RAW, 6, "R17", "host"),
    "netlink to netfilter": (16, socket.SOCK_RAW, 12, "R15", "host"),
    "netlink to audit": (16, socket.SOCK_RAW, 9, "R15", "host"),
    "netlink to the device events": (16, socket.SOCK_RAW, 15, "R15", "host"),
    "netlink to the socket table": (16, socket.SOCK_RAW, 4, "R46", "host"),
    "generic netlink": (16, socket.SOCK_RAW, 16, "R15", "host"),
    "a raw internet": (2, socket.SOCK_RAW, 1, "R15", "userns"),
    "a raw IPv6": (10, socket.SOCK_RAW, 58, "R15", "userns"),
}


def open_family(family: int, kind: int, protocol: int) -> None:
    try:
        socket.socket(family, kind, protocol).close()
    except OSError as error:
        if error.errno in REFUSALS | {errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT}:
            blocked(f"socket: {describe(error)}")
        raise
    escaped("the socket was made")


for _name, (_family, _kind, _protocol, _promise, _weak) in FAMILIES.items():
    attempt("kernel", f"open {_name} socket", promise=_promise, weak=_weak)(
        lambda f=_family, k=_kind, p=_protocol: open_family(f, k, p)
    )


def terminal_pair() -> tuple[int, int]:
    try:
        return os.openpty()
    except OSError as error:
        no_tool(f"no terminal of one's own: {error}")


def terminal_call(request: int, argument: bytes) -> None:
    """On a terminal of the attempt's own, made its controlling one: only a filter refuses there."""
    _, slave = terminal_pair()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    try:
        got = libc.ioctl(slave, ctypes.c_ulong(request), argument)
    except OSError as error:
        blocked(describe(error))
    code = ctypes.get_errno()
    if got == 0:
        escaped(f"ioctl {request:#x} worked")
    if code in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        blocked(f"ioctl {request:#x}: {errno.errorcode[code]}")
    escaped(f"ioctl {request:#x} was reached: {errno.errorcode[code]}")


@attempt("kernel", "push input into a terminal with TIOCSTI", promise="R12", weak="host")
def tiocsti() -> None:
    terminal_call(0x5412, b"x")


@attempt("kernel", "hide TIOCSTI behind high bits", promise="R12", weak="host")
def tiocsti_high() -> None:
    terminal_call(0xF00005412, b"x")


@attempt("kernel", "paste with TIOCLINUX", promise="R12", weak="host")
def tioclinux() -> None:
    terminal_call(0x541C, b"\x03")


@attempt("kernel", "change the line discipline with TIOCSETD", promise="R12", weak="host")
def tiocsetd() -> None:
    terminal_call(0x5423, struct.pack("=i", 0))


@attempt("kernel", "have any capability", promise="D2", weak="host")
def capabilities() -> None:
    for line in read_text("/proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") and int(value, 16):
            escaped(line)
    blocked("all five sets are zero")


@attempt("kernel", "take a capability with capset", promise="D2", weak="userns")
def take_capability() -> None:
    header = struct.pack("=Ii", 0x20080522, 0)
    reach("capset", header, struct.pack("=6I", 1 << 21, 1 << 21, 0, 0, 0, 0))


@attempt("kernel", "raise an ambient capability", promise="D2", weak="-: needs a process that holds one inheritable")
def raise_ambient() -> None:
    blocked(refused(lambda: call("prctl", 47, 2, 21, 0, 0), "PR_CAP_AMBIENT_RAISE"))


@attempt("kernel", "run without no_new_privs", promise="D2", weak="host")
def no_new_privs() -> None:
    got = call("prctl", 39, 0, 0, 0, 0)
    if got != 1:
        escaped("no_new_privs is not set")
    blocked("no_new_privs is 1")


@attempt("kernel", "run without a seccomp filter", promise="D2", weak="host")
def seccomp_mode() -> None:
    status = dict(line.split(":\t", 1) for line in read_text("/proc/self/status").splitlines() if ":\t" in line)
    if status.get("Seccomp") != "2":
        escaped(f"Seccomp: {status.get('Seccomp')}")
    blocked("mode 2")


@attempt("kernel", "become root with setuid", promise="D2", weak="host-root")
def become_root() -> None:
    def child() -> int:
        for action in (lambda: os.setresuid(0, 0, 0), lambda: os.setresgid(0, 0, 0), lambda: os.setgroups([0])):
            try:
                action()
                return 1
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EINVAL):
                    return 2
        return 0

    status = os.waitstatus_to_exitcode(in_child(child))
    if status:
        escaped(f"ids could be changed ({status})")
    blocked("setresuid, setresgid, setgroups: EPERM or EINVAL")


@attempt("kernel", "be root", promise="D2", weak="host-root")
def be_root() -> None:
    if 0 in (*os.getresuid(), *os.getresgid(), *os.getgroups()):
        escaped(f"ids {os.getresuid()} {os.getresgid()} {os.getgroups()}")
    blocked(f"uid {os.getuid()}, groups {os.getgroups()}")


@attempt("kernel", "map the zero page", promise="R15", weak="host-root")
def zero_page() -> None:
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    got = libc.mmap(None, 4096, 3, 0x32, -1, 0)  # FIXED | PRIVATE | ANONYMOUS at address 0
    if got in (None, 0):
        escaped("a page was mapped at 0")
    blocked(errno.errorcode[ctypes.get_errno()])


@attempt("kernel", "run in real time", promise="R34", weak="host-root")
def real_time() -> None:
    blocked(refused(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), "SCHED_FIFO"))


@attempt("kernel", "take a better nice value", promise="R34", weak="host-root")
def better_nice() -> None:
    blocked(refused(lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1), "nice"))
