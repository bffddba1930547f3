"""Which files of the host a box may see, and that it can only see them."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.beside import beside
from support.glovebox import Glovebox

# Everything that would change what lies below /mnt/tree, tried one by one inside; says which of them worked.
VANDALISE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.chdir("/mnt/tree")
attributes = (ctypes.c_uint64 * 4)(0, 1, 0, 0)  # clear MOUNT_ATTR_RDONLY
ways = {
    "create": lambda: open("new", "w"),
    "write": lambda: open("file", "a").write("x"),
    "truncate": lambda: os.truncate("file", 0),
    "unlink": lambda: os.unlink("file"),
    "rename": lambda: os.rename("file", "other"),
    "mkdir": lambda: os.mkdir("directory/new"),
    "chmod": lambda: os.chmod("file", 0o777),
    "utime": lambda: os.utime("file", (1, 1)),
    "symlink": lambda: os.symlink("a", "b"),
    "xattr": lambda: os.setxattr("file", "user.x", b"y"),
    "through /proc": lambda: open(f"/proc/self/fd/{os.open('file', os.O_RDONLY)}", "w"),
    "mount": lambda: call(libc.mount(None, b"/mnt/tree", None, 32 | 4096, None)),
    "umount": lambda: call(libc.umount2(b"/mnt/tree", 2)),
    "mount_setattr": lambda: call(libc.syscall(442, -100, b"/mnt/tree", 0, attributes, 32)),
}
def call(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), "")
for name, way in ways.items():
    try:
        way()
        print(name, "worked")
    except OSError:
        pass
print(open("file").read())
"""


def digest(tree: Path) -> str:
    """Of every name, content, mode and time below the tree."""
    total = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        total.update(f"{path} {status.st_mode} {status.st_mtime_ns} {status.st_uid}".encode())
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()


def make_tree(glovebox: Glovebox, name: str = "tree") -> Path:
    tree = glovebox.place.make(name, 0o755)
    glovebox.place.write(f"{name}/file", "content")
    glovebox.place.make(f"{name}/directory", 0o755)
    return tree


@pytest.mark.vm
def test_read_only_mount_stays_byte_identical(glovebox: Glovebox) -> None:
    tree = make_tree(glovebox)
    before = digest(tree)
    done = glovebox("run", "--mount", f"{tree}:/mnt/tree", "-c", VANDALISE)
    assert (done.stdout, digest(tree)) == ("content\n", before), done


def test_data_directory_is_shown_read_only(glovebox: Glovebox) -> None:
    tree = make_tree(glovebox)
    done = glovebox("run", "--data", tree, "-c", "print(open('/data/file').read()); open('/data/x', 'w')")
    assert done.stdout == "content\n" and "Read-only file system" in done.stderr, done


@pytest.mark.vm
def test_writable_mount_is_written_as_its_owner(glovebox: Glovebox) -> None:
    tree = make_tree(glovebox)
    done = glovebox("run", "--mount", f"{tree}:/mnt/tree:rw", "-c", "open('/mnt/tree/new', 'w').write('x')")
    assert done.returncode == 0, done.stderr
    assert (tree / "new").read_text() == "x" and (tree / "new").stat().st_uid == tree.stat().st_uid


def test_single_files_are_shown_and_written(glovebox: Glovebox) -> None:
    file = glovebox.place.write("file", "content")
    word = f"{file}:/mnt/shown"
    read_only = glovebox("run", "--mount", word, "-c", "print(open('/mnt/shown').read()); open('/mnt/shown', 'w')")
    assert read_only.stdout == "content\n" and "Read-only" in read_only.stderr, read_only
    writable = glovebox("run", "--mount", f"{word}:rw", "-c", "open('/mnt/shown', 'a').write('!')")
    assert (writable.returncode, file.read_text()) == (0, "content!"), writable.stderr


def test_read_only_holds_for_mounts_below_the_mount(root_glovebox: Glovebox) -> None:
    """A file system of its own below the source, made in a mount namespace of its own."""
    tree = make_tree(root_glovebox)
    script = 'mount -t tmpfs none "$1/directory" && echo x >"$1/directory/f" && "$0" run --mount "$1:/mnt/t" -c "$2"'
    code = "print(open('/mnt/t/directory/f').read()); open('/mnt/t/directory/g', 'w')"
    command = ["/usr/bin/unshare", "-m", "sh", "-c", script, str(root_glovebox.binary), str(tree), code]
    environment = root_glovebox.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "x\n\n" and "Read-only file system" in done.stderr, done


def test_mounts_of_the_host_below_usr_are_shown(root_glovebox: Glovebox) -> None:
    """The overlay that gives a box inodes of its own for /usr would hide it."""
    script = 'mount -t tmpfs none /usr/src && echo x >/usr/src/f && "$0" run -c "$1"'
    code = "print(open('/usr/src/f').read()); open('/usr/src/g', 'w')"
    command = ["/usr/bin/unshare", "-m", "sh", "-c", script, str(root_glovebox.binary), code]
    environment = root_glovebox.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "x\n\n" and "Read-only file system" in done.stderr, done


def test_forbidden_sources_are_refused_by_name_of_the_rule(glovebox: Glovebox) -> None:
    secrets = [
        glovebox.place.make(f"home/{name}") for name in (".ssh", ".aws", ".gnupg", ".config", ".kube", ".docker")
    ]
    link = glovebox.place.path / "link"
    link.symlink_to("/etc")
    sources = [
        "/etc",
        "/etc/hostname",
        "/proc",
        "/sys",
        "/dev",
        "/run",
        "/boot",
        "/root",
        "/etc/../etc",
        link,
        "/var/run",
    ]
    sources += [*secrets, glovebox.place.data, glovebox.place.home / ".ssh/..", "/var"]
    for source in sources:
        done = glovebox("run", "--mount", f"{source}:/mnt/x", "-c", "print('ran')")
        assert (done.returncode, done.stdout) == (125, ""), f"{source}: {done}"
        # A small machine may lack /boot, and a user may not look into /root; the unit tests know every rule.
        reasons = ("never mountable", "does not exist", "it cannot be examined")
        assert any(reason in done.stderr for reason in reasons), f"{source}: {done.stderr}"
    whole = glovebox("run", "--mount", "/:/mnt/x", "-c", "print('ran')")
    assert whole.returncode == 125 and "it is the whole host" in whole.stderr, whole.stderr


def test_engine_socket_and_devices_are_refused(glovebox: Glovebox) -> None:
    path = glovebox.place.path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        done = glovebox("run", "--mount", f"{path}:/mnt/sock", "-c", "print('ran')")
    assert done.returncode == 125 and "it is a socket" in done.stderr, done.stderr
    variables = {"DOCKER_HOST": f"unix://{path}"}
    above = glovebox("run", "--mount", f"{glovebox.place.path}:/mnt/x", "-c", "print('ran')", env=variables)
    assert above.returncode == 125 and above.stdout == "", above


def test_places_of_the_box_cannot_be_covered(glovebox: Glovebox) -> None:
    tree = make_tree(glovebox)
    for place in ("/proc", "/dev/shm", "/etc", "/usr/bin", "/workspace", "/run/code", "/sys"):
        done = glovebox("run", "--mount", f"{tree}:{place}", "-c", "print('ran')")
        assert done.returncode == 125 and "is reserved" in done.stderr, f"{place}: {done.stderr}"


def test_swapping_a_link_wins_nothing(glovebox: Glovebox) -> None:
    """Another process flips the source between an allowed directory and /etc as fast as it can while boxes are made."""
    good = make_tree(glovebox, "good")
    link, spare = glovebox.place.path / "link", glovebox.place.path / "spare"
    link.symlink_to(good)

    def flip() -> None:
        for target in ("/etc", good):
            spare.symlink_to(target)
            os.replace(spare, link)

    outcomes = set()
    with beside(flip):
        for _ in range(25):
            done = glovebox("run", "--mount", f"{link}:/mnt/x", "--", "ls", "/mnt/x")
            refused = done.returncode == 125 and "cannot mount" in done.stderr
            outcomes.add("refused" if refused else done.stdout)
    assert outcomes <= {"refused", "directory\nfile\n"}, outcomes


# Joins a box with every capability that there is in its user namespace, and tries to change what it sees.
UNDO = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUTS, NEWUSER = 0x20000, 0x4000000, 0x10000000
box = os.pidfd_open(int(sys.argv[1]))
assert libc.setns(box, NEWUSER | NEWNS) == 0, os.strerror(ctypes.get_errno())
attributes = (ctypes.c_uint64 * 4)(0, 1, 0, 0)  # clear MOUNT_ATTR_RDONLY
ways = {
    "write": lambda: libc.mount(None, b"/", None, 32 | 4096, None),
    "write anew": lambda: libc.syscall(442, -100, b"/", 0, attributes, 32),
    "uncover": lambda: libc.umount2(b"/proc/cmdline", 2),
    "cover": lambda: libc.mount(b"none", b"/etc", b"tmpfs", 0, None),
    "copy": lambda: libc.unshare(NEWNS),
    "any namespace": lambda: libc.unshare(NEWUTS),
}
for name, way in ways.items():
    print(name, "done" if way() == 0 else errno.errorcode[ctypes.get_errno()])
"""


@pytest.mark.vm
def test_no_capability_of_a_box_can_change_its_mounts(root_glovebox: Glovebox) -> None:
    """Without the second user namespace each of these works: a box has no capability, but if it had."""
    with root_glovebox.popen("run", "-c", "print('on'); input()", stdin=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "on\n"
        (pid, *_) = root_glovebox.groups.processes()
        done = subprocess.run([sys.executable, "-c", UNDO, str(pid)], capture_output=True, text=True, check=False)
        process.communicate("\n", timeout=60)
    refused = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    # ENOSPC is said to those who may, once there are as many as there can be: so the others were tried with rights.
    may_not = dict.fromkeys(("write", "write anew", "uncover", "cover"), "EPERM")
    assert refused == {**may_not, "copy": "ENOSPC", "any namespace": "ENOSPC"}, done


@pytest.mark.vm
def test_every_mount_of_a_box_is_without_set_user_id_and_devices(glovebox: Glovebox) -> None:
    tree = make_tree(glovebox)
    done = glovebox("run", "--mount", f"{tree}:/mnt/tree:rw", "-c", "print(open('/proc/self/mountinfo').read())")
    points = set()
    for line in done.stdout.strip().splitlines():
        point, options = line.split()[4:6]
        points.add(point)
        covered_or_device = point.startswith("/dev/") or "/null" in line.split()[3]
        assert "nosuid" in options.split(","), line
        assert "nodev" in options.split(",") or covered_or_device, line
    assert {"/", "/usr", "/proc", "/dev", "/tmp", "/workspace", "/mnt/tree"} <= points


def test_mount_table_names_nothing_that_was_not_shown(glovebox: Glovebox) -> None:
    lines = glovebox("run", "--", "cat", "/proc/self/mountinfo").stdout.splitlines()
    assert len(lines) > 20
    named = [line for line in lines if "glovebox" in line or " - cgroup" in line or " - sysfs" in line]
    assert named == []


def test_symlink_at_the_destination_is_not_followed(glovebox: Glovebox) -> None:
    """An earlier run may have left a link in the workspace where a mount is to appear."""
    workspace, tree = glovebox.place.make("workspace"), make_tree(glovebox)
    (workspace / "here").symlink_to("/tmp")
    words = ["--workspace", workspace, "--mount", f"{tree}:/workspace/here/deep", "--", "ls", "-R", "/tmp"]
    done = glovebox("run", *words)
    assert done.returncode == 125 and 'box step "mounts"' in done.stderr, done
