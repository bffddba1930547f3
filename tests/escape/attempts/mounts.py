"""Namespaces and mounts: getting another view of the files, or more rights over this one."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time

from kit import CONFIG, REFUSALS, attempt, blocked, call, escaped, in_child, reach, read_text, refused

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC = 1, 2, 4, 32, 4096, 8192, 16384
MNT_EXPIRE = 4
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
MOUNT_ATTR_RDONLY = 1

# A mount or clone that is refused for want of room in the namespace counts (max_*_namespaces is 0) is refused too.
FULL = REFUSALS | {errno.ENOSPC}


def mount_points() -> list[str]:
    return [line.split()[4].replace("\\040", " ") for line in read_text("/proc/self/mountinfo").splitlines()]


def private_directory() -> str:
    path = f"/tmp/mount-{os.getpid()}-{time.monotonic_ns()}"
    os.makedirs(path, exist_ok=True)
    return path


def mount_type(kind: bytes, options: bytes | None = None) -> None:
    place = private_directory().encode()
    try:
        call("mount", b"none", place, kind, MS_NOSUID, options)
    except OSError as error:
        if error.errno in REFUSALS:
            blocked(f"mount -t {kind.decode()}: {errno.errorcode[error.errno]}")
        escaped(f"mount was reached: {error}")
    entries = os.listdir(place)[:5]
    call("umount2", place, 2)
    escaped(f"{kind.decode()} was mounted: {entries}")


@attempt("mounts", "remount the root writable", promise="D7 R7", weak="userns")
def remount_root() -> None:
    reach("mount", None, b"/", None, MS_REMOUNT | MS_BIND, None)


@attempt("mounts", "remount every mount without its flags", promise="D7 R7", weak="userns")
def remount_each() -> None:
    for place in mount_points():
        refused(lambda place=place: call("mount", None, place.encode(), None, MS_REMOUNT | MS_BIND, None), place)
    blocked(f"{len(mount_points())} mounts refused")


@attempt("mounts", "take a mount away to see what is below", promise="D7", weak="userns")
def unmount_each() -> None:
    # MNT_EXPIRE only marks a mount on the first call: EAGAIN or EBUSY mean "could have".
    for place in mount_points():
        try:
            call("umount2", place.encode(), MNT_EXPIRE)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS, errno.EACCES):
                continue
            if error.errno == errno.EINVAL:
                escaped(f"umount2 {place} was reached (locked by the kernel alone)")
            escaped(f"umount2 {place}: {error}")
        escaped(f"{place} unmounted")
    blocked("umount2 refused everywhere")


@attempt("mounts", "clear read-only with mount_setattr", promise="D7 R7", weak="userns")
def setattr_root() -> None:
    attributes = (ctypes.c_uint64 * 4)(0, MOUNT_ATTR_RDONLY, 0, 0)
    reach("mount_setattr", AT_FDCWD, b"/", 0, attributes, ctypes.sizeof(attributes))


@attempt("mounts", "clear read-only on the whole tree", promise="D7 R7", weak="-: every host has a locked mount")
def setattr_tree() -> None:
    attributes = (ctypes.c_uint64 * 4)(0, MOUNT_ATTR_RDONLY, 0, 0)
    reach("mount_setattr", AT_FDCWD, b"/", AT_RECURSIVE, attributes, ctypes.sizeof(attributes))


@attempt("mounts", "mount a tmpfs", promise="D1", weak="userns")
def mount_tmpfs() -> None:
    mount_type(b"tmpfs")


@attempt("mounts", "mount a fresh proc without masks", promise="D1 R46", weak="userns")
def mount_proc() -> None:
    mount_type(b"proc")


@attempt("mounts", "mount sysfs", promise="D1", weak="userns")
def mount_sysfs() -> None:
    mount_type(b"sysfs")


@attempt("mounts", "mount a cgroup tree", promise="R18", weak="host-root")
def mount_cgroup() -> None:
    mount_type(b"cgroup2")


@attempt("mounts", "mount a cgroup v1 tree with a release agent", promise="R18", weak="host-root")
def mount_cgroup_v1() -> None:
    mount_type(b"cgroup", b"none,name=systemd")


@attempt("mounts", "mount a devpts", promise="D1", weak="userns")
def mount_devpts() -> None:
    mount_type(b"devpts", b"newinstance")


@attempt("mounts", "mount the message queues", promise="R25", weak="userns")
def mount_mqueue() -> None:
    mount_type(b"mqueue")


@attempt("mounts", "lay an overlay over usr", promise="D1", weak="userns")
def mount_overlay() -> None:
    base = private_directory()
    for name in ("upper", "work", "merged"):
        os.makedirs(f"{base}/{name}", exist_ok=True)
    options = f"lowerdir=/usr,upperdir={base}/upper,workdir={base}/work".encode()
    reach("mount", b"none", f"{base}/merged".encode(), b"overlay", 0, options)


@attempt("mounts", "bind a directory over another", promise="D1", weak="userns")
def mount_bind() -> None:
    place = private_directory().encode()
    reach("mount", b"/usr", place, None, MS_BIND, None)


@attempt("mounts", "move a mount", promise="D1", weak="userns")
def mount_move() -> None:
    # The source is no mount point: refused only after the permission was checked.
    reach("mount", private_directory().encode(), b"/tmp", None, MS_MOVE, None)


@attempt("mounts", "move_mount", promise="D1", weak="userns")
def move_mount() -> None:
    reach("move_mount", AT_FDCWD, b"/nowhere/at/all", AT_FDCWD, private_directory().encode(), 0)


@attempt("mounts", "pivot_root", promise="D1", weak="userns")
def pivot_root() -> None:
    reach("pivot_root", b".", b".")


@attempt("mounts", "chroot and climb out", promise="D1", weak="userns")
def chroot_climb() -> None:
    reach("chroot", private_directory().encode())


@attempt("mounts", "clone a mount with open_tree", promise="D1", weak="userns")
def open_tree_clone() -> None:
    reach("open_tree", AT_FDCWD, b"/", 1)


@attempt("mounts", "copy a tree with open_tree_attr", promise="D1", weak="-: needs Linux 6.15")
def open_tree_attr() -> None:
    attributes = (ctypes.c_uint64 * 4)(0, MOUNT_ATTR_RDONLY, 0, 0)
    reach("open_tree_attr", AT_FDCWD, b"/", 1, attributes, ctypes.sizeof(attributes))


@attempt("mounts", "open a file system with fsopen", promise="R15", weak="userns")
def fsopen() -> None:
    reach("fsopen", b"tmpfs", 0)


@attempt("mounts", "configure a file system with fsconfig", promise="R15", weak="host")
def fsconfig() -> None:
    reach("fsconfig", -1, 6, None, None, 0)


@attempt("mounts", "attach a file system with fsmount", promise="R15", weak="userns")
def fsmount() -> None:
    reach("fsmount", -1, 0, 0)


@attempt("mounts", "pick a file system with fspick", promise="R15", weak="userns")
def fspick() -> None:
    reach("fspick", AT_FDCWD, b"/", 0)


@attempt("mounts", "list the mounts of the host with listmount", promise="R46", weak="host")
def listmount() -> None:
    request = (ctypes.c_uint64 * 4)(24, 0xFFFFFFFFFFFFFFFF, 0, 0)
    ids = (ctypes.c_uint64 * 64)()
    reach("listmount", request, ids, 64, 0)


@attempt("mounts", "ask about a mount with statmount", promise="R46", weak="host")
def statmount() -> None:
    request = (ctypes.c_uint64 * 4)(24, 1, 1, 0)
    buffer = ctypes.create_string_buffer(4096)
    reach("statmount", request, buffer, 4096, 0)


NAMESPACES = {
    "user": 0x10000000,
    "mount": 0x00020000,
    "pid": 0x20000000,
    "network": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
    "time": 0x00000080,
}


def unshare_one(flag: int) -> None:
    reach("unshare", flag, refusals=FULL)


def clone_with(flags: int) -> None:
    try:
        child = call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)
    except OSError as error:
        if error.errno in FULL:
            blocked(f"clone: {errno.errorcode[error.errno]}")
        escaped(f"clone was reached: {error}")
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    escaped(f"clone with {flags:#x} made a process")


def register_namespaces() -> None:
    """One attempt for each namespace by unshare, and one by clone where clone can ask for it."""
    for name, flag in NAMESPACES.items():
        weak = "host" if name == "user" else "userns"
        attempt("mounts", f"unshare a {name} namespace", promise="R15 D1", weak=weak)(
            lambda flag=flag: unshare_one(flag)
        )
        if name != "time":
            attempt("mounts", f"clone into a new {name} namespace", promise="R15 D1", weak=weak)(
                lambda flag=flag: clone_with(flag)
            )


register_namespaces()


@attempt("mounts", "clone a user namespace together with all others", promise="R15", weak="host")
def clone_everything() -> None:
    clone_with(0x7E020000)


@attempt("mounts", "clone3 a user namespace", promise="R15", weak="host")
def clone3_user() -> None:
    arguments = (ctypes.c_uint64 * 11)(NAMESPACES["user"], 0, 0, 0, signal.SIGCHLD)
    try:
        child = call("clone3", arguments, ctypes.sizeof(arguments))
    except OSError as error:
        if error.errno in FULL:
            blocked(f"clone3: {errno.errorcode[error.errno]}")
        escaped(f"clone3 was reached: {error}")
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    escaped("clone3 made a process in a new user namespace")


@attempt("mounts", "become root in a user namespace of one's own", promise="R15 D2", weak="host")
def root_in_namespace() -> None:
    me = os.getuid()

    def child() -> int:
        try:
            call("unshare", NAMESPACES["user"])
        except OSError as error:
            return 10 if error.errno in FULL else 11
        with open("/proc/self/uid_map", "w") as stream:
            stream.write(f"0 {me} 1")
        return 0 if os.getuid() == 0 else 12

    status = os.waitstatus_to_exitcode(in_child(child))
    if status == 10:
        blocked("no user namespace")
    escaped(f"child ended with {status}")


@attempt("mounts", "join a namespace of pid 1 through proc", promise="D4", weak="userns")
def setns_proc() -> None:
    refusals = []
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        path = f"/proc/1/ns/{name}"
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            if error.errno not in REFUSALS | {errno.ENOENT}:
                raise
            refusals.append(errno.errorcode[error.errno or 0])
            continue
        os.close(descriptor)
        escaped(f"{path} can be opened")
    blocked("/proc/1/ns/*: " + " ".join(sorted(set(refusals))))


@attempt("mounts", "setns with a namespace file of one's own", promise="D4", weak="userns")
def setns_self() -> None:
    descriptor = os.open("/proc/self/ns/uts", os.O_RDONLY)
    reach("setns", descriptor, NAMESPACES["uts"])


@attempt("mounts", "setns with a pidfd of pid 1", promise="D4", weak="userns")
def setns_pidfd() -> None:
    descriptor = call("pidfd_open", 1, 0)
    reach("setns", descriptor, NAMESPACES["mount"])


@attempt("mounts", "allow more namespaces by sysctl", promise="R15", weak="userns")
def raise_namespace_counts() -> None:
    for name in ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup"):
        refused(
            lambda name=name: os.close(os.open(f"/proc/sys/user/max_{name}_namespaces", os.O_WRONLY)),
            name,
            REFUSALS | {errno.ENOENT},
        )
    blocked("max_*_namespaces cannot be written")


@attempt("mounts", "climb above the root", promise="D1", weak="host")
def climb_above_root() -> None:
    wanted = CONFIG["canary_file"]
    starts = ["/", "/..", "/../../../..", "/proc/self/root", "/proc/self/cwd/../../../..", "/proc/1/root"]
    starts += ["/oldroot", "/.oldroot", "/old_root", "/put_old", "/host", "/mnt", "/media", "/newroot", "/.pivot_root"]
    starts += [f"/proc/{os.getppid()}/root", f"/proc/self/task/{os.getpid()}/root", "/workspace/../..", "/proc/1/cwd"]
    for start in starts:
        try:
            text = read_text(start + wanted)
        except OSError:
            continue
        escaped(f"{start}{wanted} says {text[:40]!r}")
    blocked(f"{len(starts)} ways up do not lead to the host")


@attempt("mounts", "climb with an open directory of the root", promise="D1 R2", weak="host")
def climb_by_descriptor() -> None:
    descriptor = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(20):
        descriptor = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
    relative = CONFIG["canary_file"].lstrip("/")
    try:
        found = os.open(relative, os.O_RDONLY, dir_fd=descriptor)
    except OSError as error:
        blocked(f".. from /: {errno.errorcode[error.errno or 0]}")
    escaped(os.read(found, 40))


@attempt("mounts", "read host paths in mountinfo", promise="R46", weak="docker")
def mountinfo_paths() -> None:
    own = CONFIG.get("own_mounts", {})  # of a session: where its own directories may come from
    for name in ("mountinfo", "mounts", "mountstats"):
        try:
            lines = read_text(f"/proc/self/{name}").splitlines()
        except OSError:
            continue
        if name == "mountinfo":
            fields = [line.split() for line in lines]
            lines = [" ".join(words) for words in fields if own.get(words[4], "\0") not in words[3]]
        text = "\n".join(lines)
        for secret in CONFIG["secret_names"]:
            if secret in text:
                escaped(f"/proc/self/{name} shows {secret}")
    blocked("no host path in mountinfo, mounts, mountstats")


@attempt("mounts", "find the host's file systems still mounted", promise="D1", weak="host")
def host_mounts() -> None:
    for line in read_text("/proc/self/mountinfo").splitlines():
        fields = line.split()
        if fields[4] == "/" and fields[3] == "/" and fields[fields.index("-") + 1] not in ("tmpfs", "overlay"):
            escaped(f"the root of a disk is mounted as /: {line}")
        if fields[4] in ("/boot", "/home", "/root", "/var", "/run", "/host", "/oldroot"):
            escaped(line)
    blocked("only what the box mounts is mounted")
