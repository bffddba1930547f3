"""/proc, /sys, /dev and what they reveal: the host's state, its devices, its name."""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from kit import (
    CONFIG,
    REFUSALS,
    attempt,
    blocked,
    describe,
    escaped,
    no_tool,
    open_to_read,
    open_to_write,
    read_text,
    refused,
    scratch_directory,
)

ABSENT = "-: not built into the kernel this was written on"

WRITES = {
    "the core pattern": ("/proc/sys/kernel/core_pattern", "R19", "host-root"),
    "the module loader's path": ("/proc/sys/kernel/modprobe", "R19", ABSENT),
    "the sysrq trigger": ("/proc/sysrq-trigger", "R19", ABSENT),
    "the sysrq mask": ("/proc/sys/kernel/sysrq", "R19", ABSENT),
    "binfmt_misc": ("/proc/sys/fs/binfmt_misc/register", "R19", "-: not mounted on the host this was written on"),
    "the hotplug helper": ("/sys/kernel/uevent_helper", "R19", ABSENT),
    "the panic switch": ("/proc/sys/kernel/panic_on_oops", "R19", "host-root"),
    "address randomisation": ("/proc/sys/kernel/randomize_va_space", "R22", "host-root"),
    "the memory policy": ("/proc/sys/vm/overcommit_memory", "R34", "host-root"),
    "the page cache": ("/proc/sys/vm/drop_caches", "R34", "host-root"),
    "the last pid": ("/proc/sys/kernel/ns_last_pid", "R39", "host-root"),
    "the shared memory bounds": ("/proc/sys/kernel/shmmax", "R34", "host-root"),
    "the packet forwarding": ("/proc/sys/net/ipv4/ip_forward", "R15", "host-root"),
    "the memory type ranges": ("/proc/mtrr", "R19", "host-root"),
    "the default interrupt affinity": ("/proc/irq/default_smp_affinity", "R19", "host-root"),
    "the kernel's messages": ("/dev/kmsg", "R46", "host-root"),
}

for _name, (_path, _promise, _weak) in WRITES.items():
    attempt("proc", f"write {_name}", promise=_promise, weak=_weak)(lambda path=_path: blocked(open_to_write(path)))

READS = {
    "the kernel's memory": ("/proc/kcore", ABSENT),
    "the kernel's messages": ("/proc/kmsg", "host-root"),
    "the host's keys": ("/proc/keys", "host"),
    "the host's interrupts": ("/proc/interrupts", "host"),
    "the host's timers": ("/proc/timer_list", "host-root"),
    "the page counts": ("/proc/kpagecount", "host-root"),
    "the page flags": ("/proc/kpageflags", "host-root"),
    "the page cgroups": ("/proc/kpagecgroup", "host-root"),
    "the scheduler's debug file": ("/proc/sched_debug", ABSENT),
    "the scheduler's debug directory": ("/sys/kernel/debug/sched/debug", ABSENT),
    "the kernel's slabs": ("/proc/slabinfo", "host-root"),
    "the kernel's mappings": ("/proc/vmallocinfo", "host-root"),
    "the firmware's tables": ("/sys/firmware/acpi/tables/DSDT", "host-root"),
    "the machine's serial number": ("/sys/class/dmi/id/product_uuid", ABSENT),
    "the trace buffer": ("/sys/kernel/tracing/trace", "-: not mounted on the host this was written on"),
    "the latency statistics": ("/proc/latency_stats", ABSENT),
}

for _name, (_path, _weak) in READS.items():
    attempt("proc", f"read {_name}", promise="R46", weak=_weak)(lambda path=_path: blocked(open_to_read(path)))


@attempt("proc", "read kernel addresses in kallsyms", promise="R46", weak="host-root")
def kallsyms() -> None:
    try:
        with open("/proc/kallsyms", encoding="ascii", errors="replace") as stream:
            lines = [stream.readline() for _ in range(200)]
    except OSError as error:
        blocked(describe(error))
    for line in lines:
        if line and int(line.split()[0], 16) > 0xFFFF:
            escaped(line.strip())
    blocked("no addresses")


@attempt("proc", "write any sysctl at all", promise="R19", weak="userns", seconds=60)
def any_sysctl() -> None:
    count = 0
    for directory, _, names in os.walk("/proc/sys"):
        for name in names:
            path = os.path.join(directory, name)
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                count += 1
                continue
            masked = stat.S_ISCHR(os.fstat(descriptor).st_mode)  # /dev/null lies on top
            os.close(descriptor)
            if not masked:
                escaped(f"{path} can be opened for writing")
    blocked(f"{count} sysctls refused")


@attempt("proc", "write anything else below proc", promise="R19", weak="host-root", seconds=60)
def any_proc_file() -> None:
    count = 0
    for top in ("/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/driver", "/proc/tty"):
        for directory, _, names in os.walk(top):
            for name in names:
                count += 1
                try:
                    descriptor = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_NONBLOCK)
                except OSError:
                    continue
                os.close(descriptor)
                escaped(f"{directory}/{name} can be opened for writing")
    blocked(f"{count} files refused")


@attempt("proc", "find a sysfs", promise="D1", weak="host")
def sysfs_present() -> None:
    for path in ("/sys/kernel", "/sys/class", "/sys/fs", "/sys/module", "/sys/firmware", "/sys/block", "/sys/bus"):
        if os.path.exists(path):
            escaped(f"{path} exists")
    blocked("no sysfs")


@attempt("proc", "find a cgroup file system", promise="R18", weak="host")
def cgroupfs_present() -> None:
    for line in read_text("/proc/self/mountinfo").splitlines():
        if line.split(" - ")[1].split()[0] in ("cgroup", "cgroup2"):
            escaped(line)
    for path in ("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/release_agent"):
        if os.path.exists(path):
            escaped(path)
    blocked("none is mounted")


@attempt("proc", "leave the control group", promise="R18 D2", weak="host-root")
def leave_cgroup() -> None:
    for top in ("/sys/fs/cgroup", "/cgroup", "/mnt/cgroup", "/dev/cgroup"):
        for directory, names, files in os.walk(top):
            if "cgroup.procs" in files:
                try:
                    os.close(os.open(f"{directory}/cgroup.procs", os.O_WRONLY))
                except OSError:
                    continue
                escaped(f"{directory}/cgroup.procs can be written")
            del names[50:]
    blocked("no cgroup.procs to write to")


@attempt("proc", "read the control group's path on the host", promise="R46 D8", weak="docker")
def cgroup_path() -> None:
    for path in ("/proc/self/cgroup", "/proc/1/cgroup", "/proc/self/cpuset"):
        try:
            lines = read_text(path).splitlines()
        except OSError:
            continue
        for line in lines:
            if line.rsplit(":", 1)[-1] != "/":
                escaped(f"{path}: {line}")
    blocked("every path is /")


@attempt("proc", "read the host's name", promise="R46 D1", weak="host")
def host_name() -> None:
    for where, name in (
        ("uname", os.uname().nodename),
        ("/proc/sys/kernel/hostname", read_text("/proc/sys/kernel/hostname").strip()),
    ):
        if name == CONFIG["host_name"]:
            escaped(f"{where} says {name}")
    for path in ("/etc/hostname", "/etc/hosts"):
        try:
            words = read_text(path).split()
        except OSError:
            continue
        if CONFIG["host_name"] in words:
            escaped(f"{path} says {CONFIG['host_name']}")
    blocked(f"the name is {os.uname().nodename}")


@attempt("proc", "read the host's boot id", promise="R46", weak="host")
def boot_id() -> None:
    try:
        value = read_text("/proc/sys/kernel/random/boot_id").strip()
    except OSError as error:
        blocked(describe(error))
    if value == CONFIG["boot_id"]:
        escaped(value)
    blocked("another boot id, or none")


@attempt("proc", "read the host's machine id", promise="R46", weak="-: shown on hosts that have one")
def machine_id() -> None:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            value = read_text(path).strip()
        except OSError:
            continue
        if value and value == CONFIG["machine_id"]:
            escaped(f"{path}: {value}")
    blocked("another machine id, or none")


@attempt("proc", "read the host's users", promise="D1", weak="host")
def host_users() -> None:
    for path in ("/etc/passwd", "/etc/group"):
        try:
            text = read_text(path)
        except OSError:
            continue
        if hashlib.sha256(text.encode()).hexdigest() == CONFIG["sha256"].get(path):
            escaped(f"{path} is the host's")
        for name in CONFIG["host_users"]:
            if text.startswith(name + ":") or f"\n{name}:" in text:
                escaped(f"{path} names the host's user {name}")
    blocked("the users are the box's own")


@attempt("proc", "read the host's resolver and tables in etc", promise="D1", weak="host")
def host_etc() -> None:
    for path, digest in CONFIG["sha256"].items():
        try:
            with open(path, "rb") as stream:
                data = stream.read()
        except OSError:
            continue
        if path.startswith("/etc/") and data and hashlib.sha256(data).hexdigest() == digest:
            escaped(f"{path} is the host's")
    blocked(f"{len(CONFIG['sha256'])} files of /etc are absent or the box's own")


@attempt("proc", "see a process of the host", promise="D4", weak="host")
def see_processes() -> None:
    own = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        own += 1
        try:
            words = open(f"/proc/{name}/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        for word in words:
            if hashlib.sha256(word).hexdigest() == CONFIG["process_sha256"]:
                escaped(f"/proc/{name} is the canary outside")
    if own > 40:
        escaped(f"{own} processes are visible")
    blocked(f"{own} processes are visible, all of the box")


@attempt("proc", "see the host's process by its number", promise="D4", weak="host")
def see_process_number() -> None:
    path = f"/proc/{CONFIG['process_pid']}/cmdline"
    try:
        words = open(path, "rb").read().split(b"\0")
    except OSError as error:
        blocked(f"{path}: {describe(error)}")
    if any(hashlib.sha256(word).hexdigest() == CONFIG["process_sha256"] for word in words):
        escaped(path)
    blocked(f"{path} is another process")


@attempt("proc", "find more devices than a box has", promise="D1 R3", weak="host")
def device_list() -> None:
    wanted = {"null", "zero", "full", "random", "urandom", "tty", "shm", "pts", "ptmx"}
    links = {"fd", "stdin", "stdout", "stderr", "mqueue"}
    extra = set(os.listdir("/dev")) - wanted - links
    if "empty" in extra and os.path.isdir("/dev/empty") and not os.listdir("/dev/empty"):
        extra.remove("empty")  # a directory of the box's own, the lower half of the overlay of /usr
    if extra:
        escaped(f"/dev has {sorted(extra)[:10]}")
    missing = wanted - set(os.listdir("/dev"))
    if missing:
        no_tool(f"/dev lacks {sorted(missing)}")
    blocked(f"{sorted(os.listdir('/dev'))}")


@attempt("proc", "have a device that is not what its name says", promise="R3", weak="-: a box that is built wrongly")
def device_numbers() -> None:
    for name, numbers in {
        "null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0),
    }.items():  # fmt: skip
        status = os.lstat(f"/dev/{name}")
        if not stat.S_ISCHR(status.st_mode) or (os.major(status.st_rdev), os.minor(status.st_rdev)) != numbers:
            escaped(f"/dev/{name} is {stat.filemode(status.st_mode)} {status.st_rdev:#x}")
    if os.path.lexists("/dev/ptmx") and os.path.realpath("/dev/ptmx") not in ("/dev/pts/ptmx", "/dev/ptmx"):
        escaped(f"/dev/ptmx is {os.path.realpath('/dev/ptmx')}")
    blocked("six devices are what they should be")


@attempt("proc", "open a device of the machine", promise="D1", weak="host")
def machine_devices() -> None:
    names = "kvm fuse net/tun vsock mem port kmsg loop-control loop0 vda sda nvme0n1 console tty0 tty1 hwrng"
    for name in names.split():
        if os.path.lexists(f"/dev/{name}"):
            escaped(f"/dev/{name} exists")
    blocked(f"none of {len(names.split())}")


@attempt("proc", "put something into dev", promise="R3", weak="host-root")
def write_dev() -> None:
    path = f"/dev/escape-{os.getpid()}"

    def create() -> None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.unlink(path)

    blocked(refused(create, "create in /dev"))


@attempt("proc", "replace dev null", promise="R3", weak="docker")
def replace_null() -> None:
    def action() -> None:
        os.rename("/dev/null", "/dev/null.old")
        os.rename("/dev/null.old", "/dev/null")

    blocked(refused(action, "rename /dev/null", REFUSALS | {errno.EBUSY}))


def make_node(kind: int, major: int, minor: int) -> None:
    path = os.path.join(scratch_directory(), "node")
    try:
        os.mknod(path, kind | 0o666, os.makedev(major, minor))
    except OSError as error:
        if error.errno in REFUSALS:
            blocked(f"mknod: {describe(error)}")
        raise
    os.unlink(path)
    escaped(f"a device node {major}:{minor} was made")


@attempt("proc", "make a node for memory", promise="D1", weak="host-root")
def node_memory() -> None:
    make_node(stat.S_IFCHR, 1, 1)


@attempt("proc", "make a node for a disk", promise="D1", weak="host-root")
def node_disk() -> None:
    make_node(stat.S_IFBLK, 254, 0)


@attempt("proc", "make the overlay's whiteout node", promise="D1", weak="host")
def node_whiteout() -> None:
    make_node(stat.S_IFCHR, 0, 0)


@attempt("proc", "see the host's terminals", promise="D4 R12", weak="host")
def host_terminals() -> None:
    names = [name for name in os.listdir("/dev/pts") if name != "ptmx"]
    if CONFIG["terminal"] in names:
        escaped(f"/dev/pts has {names}")
    master, slave = os.openpty()
    name = os.ttyname(slave)
    os.close(master)
    os.close(slave)
    if not name.startswith("/dev/pts/"):
        escaped(name)
    blocked(f"/dev/pts has {names}; a new one is {name}")


@attempt("proc", "read the environment of the caller", promise="R24 D4", weak="host")
def caller_environment() -> None:
    name = CONFIG["environment_name"]
    if name in os.environ:
        escaped(f"{name}={os.environ[name]}")
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            data = open(f"/proc/{pid}/environ", "rb").read()
        except OSError:
            continue
        if name.encode() in data:
            escaped(f"/proc/{pid}/environ has {name}")
    for inherited in ("SSH_AUTH_SOCK", "SUDO_USER", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        if inherited in os.environ:
            escaped(f"{inherited} is set")
    blocked(f"{len(os.environ)} variables, none from outside")


@attempt("proc", "be exempt from the memory killer", promise="R37", weak="-: needs CAP_SYS_RESOURCE")
def oom_score() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w") as stream:
            stream.write("-1000")
    except OSError as error:
        if error.errno in REFUSALS:
            blocked(f"oom_score_adj: {errno.errorcode[error.errno]}")
        raise
    escaped("this process cannot be killed for memory any more")
