"""Files: writing what is read-only, reading what is not shown, gaining rights by a file."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

from kit import (
    CONFIG,
    REFUSALS,
    attempt,
    blocked,
    call,
    describe,
    escaped,
    libc,
    no_tool,
    open_to_read,
    read_text,
    refused,
    scratch_directory,
)

IMAGE_FILES = ("/etc/passwd", "/usr/lib/os-release", "/usr/bin/python3")


def image_file() -> str:
    for path in IMAGE_FILES:
        if os.path.exists(path):
            return os.path.realpath(path)
    no_tool("the image has no file to write to")


@attempt("files", "create a file in each read-only place", promise="D1", weak="host-root")
def create_anywhere() -> None:
    tried = []
    for place in ("/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/proc", "/dev"):
        if not os.path.isdir(place):
            continue
        path = os.path.join(place, f"escape-{os.getpid()}")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            if error.errno not in REFUSALS | {errno.ENOENT}:
                raise
            tried.append(f"{place}: {describe(error)}")
            continue
        os.unlink(path)
        escaped(f"{path} was created")
    blocked(", ".join(tried))


@attempt("files", "write to a file of the image", promise="D1 R1", weak="host-root")
def write_image() -> None:
    blocked(refused(lambda: os.close(os.open(image_file(), os.O_WRONLY)), "open for writing"))


@attempt("files", "write to a file of the image by its descriptor", promise="R1 R2", weak="host-root")
def write_by_descriptor() -> None:
    descriptor = os.open(image_file(), os.O_RDONLY)
    blocked(refused(lambda: os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY)), "reopen for writing"))


@attempt("files", "write to a file of the image through another root link", promise="R1", weak="host-root")
def write_by_root_link() -> None:
    for root in ("/proc/self/root", f"/proc/{os.getppid()}/root", "/proc/1/root", "/proc/thread-self/root"):
        path = root + image_file()
        refused(lambda path=path: os.close(os.open(path, os.O_WRONLY)), path, REFUSALS | {errno.ENOENT})
    blocked("four root links lead to the same read-only file")


@attempt("files", "overwrite the interpreter that runs", promise="R1", weak="host-root")
def write_self() -> None:
    path = os.path.realpath("/proc/self/exe")
    refusals = REFUSALS | {errno.ETXTBSY}
    refused(lambda: os.close(os.open("/proc/self/exe", os.O_WRONLY)), "/proc/self/exe", refusals)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    blocked(refused(lambda: os.chmod(path, mode), f"chmod {path}"))


@attempt("files", "link a file of the image into a writable place", promise="D1", weak="host-root")
def hard_link() -> None:
    target = os.path.join("/tmp" if CONFIG["runner"] == "host-root" else scratch_directory(), f"link-{os.getpid()}")
    refusals = REFUSALS | {errno.EXDEV}
    what = refused(lambda: link_and_remove(image_file(), target), "link", refusals)
    descriptor = os.open(image_file(), os.O_RDONLY)
    refused(
        lambda: os.link(f"/proc/self/fd/{descriptor}", target, follow_symlinks=True), "link by descriptor", refusals
    )
    blocked(what)


def link_and_remove(source: str, target: str) -> None:
    os.link(source, target)
    os.unlink(target)


@attempt("files", "make a nameless file in the image and link it", promise="D1", weak="host-root")
def nameless_file() -> None:
    for place in ("/usr", "/etc", "/"):
        refused(
            lambda place=place: os.close(os.open(place, os.O_TMPFILE | os.O_WRONLY, 0o600)),
            f"O_TMPFILE in {place}",
            REFUSALS | {errno.EOPNOTSUPP, errno.ENOENT},
        )
    blocked("O_TMPFILE refused")


@attempt("files", "change the mode, time or attributes of the image", promise="D1", weak="host-root")
def change_metadata() -> None:
    path = image_file()
    mode = stat.S_IMODE(os.stat(path).st_mode)
    refused(lambda: os.chmod(path, mode), "chmod")
    refused(lambda: os.utime(path, ns=(os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns)), "utime")
    blocked(refused(lambda: os.setxattr(path, "user.escape", b"1"), "setxattr", REFUSALS | {errno.ENOTSUP}))


@attempt("files", "map a file of the image shared and writable", promise="R17", weak="host-root")
def map_image() -> None:
    import mmap

    def action() -> None:
        with open(image_file(), "r+b") as stream:
            mmap.mmap(stream.fileno(), 1).close()

    blocked(refused(action, "map for writing"))


@attempt("files", "write to private pages by ptrace-like means", promise="R17", weak="-: the known holes are fixed")
def dirty_cow() -> None:
    # /proc/self/mem forces writes into private mappings; the page cache must stay as it is.
    import mmap

    path = image_file()
    before = open(path, "rb").read(64)
    descriptor = os.open(path, os.O_RDONLY)
    view = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR)
        os.pwrite(memory, b"\0" * 16, address)
    except OSError as error:
        blocked(f"/proc/self/mem: {describe(error)}")
    if open(path, "rb").read(64) != before:
        escaped("the page cache of the image was changed")
    blocked("only the private copy changed")


@attempt("files", "read the shadow file", promise="D1", weak="host-root")
def shadow() -> None:
    blocked(open_to_read("/etc/shadow"))


@attempt("files", "read the canary file in each place of the host", promise="D1", weak="host")
def canary_files() -> None:
    for path in CONFIG["canary_files"]:
        if os.path.lexists(path):
            escaped(f"{path} exists")
    blocked(f"{len(CONFIG['canary_files'])} planted files cannot be seen")


@attempt("files", "find the canary by walking everything", promise="D1", weak="host", seconds=60)
def walk_everything() -> None:
    seen, end = 0, time.monotonic() + 40
    for top in sorted(os.listdir("/")):
        if top in ("proc", "sys", "usr"):
            continue
        for directory, directories, names in os.walk("/" + top):
            seen += len(names)
            if any(CONFIG["token"] in name for name in (*names, *directories)):
                escaped(f"found in {directory}")
            if time.monotonic() > end:
                blocked(f"not among the first {seen} files")
    blocked(f"not among {seen} files")


@attempt("files", "list the home directories of the host", promise="D1", weak="host-root")
def homes() -> None:
    for place in ("/home", "/root"):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            if name in CONFIG["home_names"].get(place, []):
                escaped(f"{place}/{name} exists")
    blocked("no home directory of the host")


@attempt("files", "see what is in var and run", promise="D1", weak="host")
def var_and_run() -> None:
    for path in ("/var/lib/dpkg", "/var/log", "/var/lib/docker", "/run/lock", "/var/spool", "/run/docker.sock"):
        if os.path.exists(path):
            escaped(f"{path} exists")
    blocked("none of the host's state")


@attempt("files", "find Glovebox's own state", promise="R8 D4", weak="host-root")
def own_state() -> None:
    for path in CONFIG["state_paths"]:
        if os.path.lexists(path):
            escaped(f"{path} exists")
    blocked(f"{len(CONFIG['state_paths'])} paths are not there")


def runs_as_root(program: str) -> str | None:
    """Starts a program that waits, and looks at who it became."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [program, "-c", "true"], stdin=reader, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end and process.poll() is None:
            status = read_text(f"/proc/{process.pid}/status")
            if status.startswith(f"Name:\t{os.path.basename(program)}"):
                time.sleep(0.02)  # the name changes a moment before the ids do
                status = read_text(f"/proc/{process.pid}/status")
                uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
                return "as uids " + " ".join(uids) if uids[1] != str(os.getuid()) else None
            time.sleep(0.001)
        return None
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)


@attempt("files", "gain by a set-user-ID program of the image", promise="D2", weak="host")
def setuid_program() -> None:
    tried = 0
    for program in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/chsh"):
        if not os.path.exists(program) or not os.stat(program).st_mode & stat.S_ISUID:
            continue
        tried += 1
        became = runs_as_root(program)
        if became:
            escaped(f"{program} runs {became}")
    if not tried:
        no_tool("the image has no set-user-ID program")
    blocked(f"{tried} programs run with the caller's uid")


@attempt("files", "give a file capabilities", promise="D2", weak="userns")
def file_capabilities() -> None:
    path = os.path.join(scratch_directory(), "program")
    shutil.copyfile(sys.executable, path)
    os.chmod(path, 0o755)
    value = b"\x01\0\0\x02" + b"\xff\xff\xff\xff\0\0\0\0" * 2
    blocked(refused(lambda: os.setxattr(path, "security.capability", value), "setxattr security.capability"))


@attempt("files", "give a file to root", promise="D2", weak="host-root")
def give_to_root() -> None:
    path = os.path.join(scratch_directory(), "file")
    open(path, "w").close()
    blocked(refused(lambda: os.chown(path, 0, 0), "chown to root", REFUSALS | {errno.EINVAL}))


@attempt("files", "leave a set-user-ID program in the workspace", promise="R11", weak="host", alone=True,
         box={"workspace": True})  # fmt: skip
def leave_setuid() -> None:
    # On the host the file belongs to the caller: a user who reaches it would run as the caller.
    path = os.path.join(CONFIG["workspace"], "innocent")
    with open(path, "w") as stream:
        stream.write("#!/bin/sh\n")
    refusals = []
    for mode in (0o4755, 0o2755, 0o6777):
        try:
            os.chmod(path, mode)
        except OSError as error:
            refusals.append(describe(error))
    descriptor = os.open(path, os.O_RDWR)
    for action in (
        lambda: os.fchmod(descriptor, 0o4755),
        lambda: libc.syscall(452, -100, path.encode(), 0o4755, 0),  # fchmodat2
        lambda: os.close(os.open(path + "2", os.O_CREAT | os.O_WRONLY, 0o4755)),
        lambda: os.mknod(path + "3", stat.S_IFREG | 0o4755),
        lambda: libc.syscall(437, -100, (path + "5").encode(), (ctypes.c_uint64 * 3)(0o101, 0o4755, 0), 24),  # openat2
        lambda: os.mkdir(path + "4", 0o6777),
    ):
        try:
            action()
        except OSError as error:
            refusals.append(describe(error))
    for name in os.listdir(CONFIG["workspace"]):
        mode = os.stat(os.path.join(CONFIG["workspace"], name)).st_mode
        if mode & (stat.S_ISUID | stat.S_ISGID):
            escaped(f"{name} has mode {stat.S_IMODE(mode):o}")
    blocked(f"no bit was set ({', '.join(refusals)})")


def change_tree(top: str) -> list[str]:
    """Every way of changing a directory that must stay as it is; gives what worked."""
    path, done = os.path.join(top, "file"), []
    actions = {
        "write": lambda: os.close(os.open(path, os.O_WRONLY)),
        "append": lambda: os.close(os.open(path, os.O_WRONLY | os.O_APPEND)),
        "truncate": lambda: os.truncate(path, 0),
        "unlink": lambda: os.unlink(path),
        "rename": lambda: os.rename(path, path + ".old"),
        "create": lambda: os.close(os.open(path + ".new", os.O_CREAT | os.O_WRONLY, 0o644)),
        "mkdir": lambda: os.mkdir(path + ".dir"),
        "symlink": lambda: os.symlink("/", path + ".link"),
        "link": lambda: os.link(path, path + ".hard"),
        "chmod": lambda: os.chmod(path, 0o777),
        "chmod of the top": lambda: os.chmod(top, 0o777),
        "utime": lambda: os.utime(path, (0, 0)),
        "setxattr": lambda: os.setxattr(path, "user.escape", b"1"),
        "nameless file": lambda: os.close(os.open(top, os.O_TMPFILE | os.O_WRONLY, 0o600)),
        "reopen": lambda: os.close(os.open(f"/proc/self/fd/{os.open(path, os.O_RDONLY)}", os.O_WRONLY)),
        "remount": lambda: call("mount", None, top.encode(), None, 32 | 4096, None),
        "mount_setattr": lambda: call("mount_setattr", -100, top.encode(), 0, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32),
    }
    for name, action in actions.items():
        try:
            action()
        except OSError:
            continue
        done.append(name)
    return done


def change_mount(destination: str) -> None:
    if not os.path.exists(os.path.join(destination, "file")):
        no_tool(f"{destination} is not mounted")
    done = change_tree(destination)
    if done:
        escaped(f"{destination}: {', '.join(done)} worked")
    blocked("17 ways refused")


@attempt("files", "change a read-only mount", promise="R7 D7", weak="host", alone=True, box={"mount": True})
def read_only_mount() -> None:
    change_mount(CONFIG["mount_place"])


@attempt("files", "change the data mount", promise="R7 D7", weak="host", alone=True, box={"data": True})
def data_mount() -> None:
    change_mount(CONFIG["data_place"])


@attempt("files", "leave links out of the box among the artifacts", promise="R9 D5", weak="-: Glovebox's own collector",
         alone=True, box={"json": True}, only="glovebox")  # fmt: skip
def link_artifacts() -> None:
    top = "/workspace/artifacts"
    os.makedirs(top, exist_ok=True)
    os.symlink(CONFIG["canary_file"], f"{top}/leak.txt")
    os.symlink(os.path.dirname(CONFIG["canary_file"]), f"{top}/leak")
    os.symlink("/proc/self/environ", f"{top}/environ.txt")
    os.symlink("../" * 30 + CONFIG["canary_file"].lstrip("/"), f"{top}/up.txt")
    os.mkfifo(f"{top}/fifo.txt")
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{top}/socket.txt")
    with open(f"{top}/honest.txt", "w") as stream:
        stream.write("honest")
    blocked("the links are made; the host decides")


@attempt("files", "give artifacts hostile names", promise="R32 D5", weak="-: Glovebox's own collector", alone=True,
         box={"json": True}, only="glovebox")  # fmt: skip
def hostile_names() -> None:
    top = b"/workspace/artifacts"
    os.makedirs(top, exist_ok=True)
    for name in (
        b"new\nline",
        b"\x1b[31mred",
        b"bad-\xff\xfe-utf8",
        b"quote\"'`$(id)",
        b"n" * 250,
        b"-rf",
        b" ",
        b"...",
    ):
        with open(os.path.join(top, name), "wb") as stream:
            stream.write(b"x")
    deep = top.decode()
    for _ in range(20):
        deep += "/d"
        os.mkdir(deep)
    blocked("the names are made; the host decides")


@attempt("files", "swap the artifacts directory for a link", promise="R4 R5 D5", weak="-: Glovebox's own collector",
         alone=True, box={"json": True, "workspace": True}, only="glovebox")  # fmt: skip
def swap_artifacts() -> None:
    outside = os.path.dirname(CONFIG["canary_file"])
    shutil.rmtree("/workspace/artifacts", ignore_errors=True)
    os.symlink(outside, "/workspace/artifacts")
    child = os.fork()
    if child == 0:  # goes on swapping while the host looks
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.mkdir("/workspace/other")
        end = time.monotonic() + 20
        while time.monotonic() < end:
            os.rename("/workspace/artifacts", "/workspace/swap")
            os.rename("/workspace/other", "/workspace/artifacts")
            os.rename("/workspace/swap", "/workspace/other")
        os._exit(0)
    time.sleep(0.2)
    blocked("the swapping goes on; the host decides")


@attempt("files", "leave a tree that cannot be removed", promise="R38", weak="-: Glovebox's own cleaning", alone=True,
         box={"session": True}, only="glovebox")  # fmt: skip
def unremovable_tree() -> None:
    os.chdir("/workspace")
    for _ in range(1500):  # far beyond PATH_MAX
        os.mkdir("dddddddd")
        os.chdir("dddddddd")
    open("file", "w").close()
    os.chmod(".", 0)
    os.chdir("/workspace")
    os.mkdir("closed")
    open("closed/file", "w").close()
    os.chmod("closed", 0)
    blocked("the tree is made; the host decides")


@attempt("files", "read what stands in the file behind stdout", promise="D4", weak="host", alone=True,
         box={"stdout_file": True})  # fmt: skip
def stdout_file() -> None:
    for number in (0, 1, 2):
        for flags in (os.O_RDONLY, os.O_RDWR):
            try:
                descriptor = os.open(f"/proc/self/fd/{number}", flags | os.O_NONBLOCK)
                text = os.read(descriptor, 4096)
            except OSError:
                continue
            if CONFIG["token"].encode() in text:
                escaped(f"descriptor {number} shows {text[:40]!r}")
    blocked("no descriptor leads to the file")


@attempt("files", "change the file behind stdin", promise="D4", weak="host", alone=True, box={"stdin_file": True})
def stdin_file() -> None:
    refusals = []
    for number in (0, 1, 2):
        try:
            descriptor = os.open(f"/proc/self/fd/{number}", os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            refusals.append(describe(error))
            continue
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            escaped(f"descriptor {number} is a file of the host that can be written")
        os.close(descriptor)
    try:
        if stat.S_ISREG(os.fstat(0).st_mode):
            os.fchmod(0, 0o600)
            escaped("the mode of the file behind stdin can be changed")
    except OSError as error:
        refusals.append(describe(error))
    blocked(f"no regular file can be written ({', '.join(refusals)})")


@attempt("files", "find files of another box in tmp or shm", promise="R25", weak="host")
def shared_tmp() -> None:
    for place in ("/tmp", "/dev/shm", "/var/tmp"):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        foreign = [name for name in names if CONFIG["token"] in name]
        if foreign:
            escaped(f"{place} has {foreign}")
    blocked("/tmp and /dev/shm are private")
