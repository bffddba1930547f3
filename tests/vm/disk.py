"""The test machine's disk: a small Debian-like tree made of this machine's own programs, this repository and its build.

Only what the tests need is copied: a list of programs, the shared libraries they ask for, and the standard library of
/usr/bin/python3. An ext4 image is made from the tree without mounting anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

# Programs in the machine. A missing one is an error: a test that needs it would otherwise fail in a puzzling way.
PROGRAMS = """bash sh cat chmod chown cp cut date dd df dirname basename du echo env false find grep head id
    kill ln ls mkdir mkfifo mknod mktemp mount mv nproc od printf ps python3 pwd readlink rm rmdir sed seq
    setpriv sha256sum sleep sort stat sync tail tar tee timeout touch tr true truncate umount uname uniq unshare
    wc xargs""".split()

EMPTY_DIRECTORIES = ["proc", "sys", "dev", "run", "tmp", "var/lib", "var/tmp", "home", "root", "results", "srv"]

REPOSITORY_PARTS = ["tests", "bench", "examples", "guest", "pyproject.toml"]

# Programs of the build that the tests in the machine use.
BUILT = ["glovebox*", "tests/unit/test_cgroup*", "tests/support/*"]

# Links of the system's top: /bin is usr/bin and so on, as every current Debian and Ubuntu has it.
TOP_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}

ETC_FILES = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\ntester:x:61234:61234:tester:/home/tester:/bin/bash\n",
    "group": "root:x:0:\ntester:x:61234:\n",
    "hostname": "glovebox-vm\n",
    "machine-id": "0123456789abcdef0123456789abcdef\n",
}


class DiskError(Exception):
    """The disk cannot be made; the message says why."""


def _usr_path(path: Path) -> Path:
    """Where a file lives below /usr: the libraries of /lib are really those of /usr/lib."""
    text = str(path)
    for short, long in TOP_LINKS.items():
        if text.startswith(f"/{short}/"):
            return Path("/" + long) / text[len(short) + 2 :]
    return path


def _copy_file(tree: Path, source: Path) -> None:
    """Copies one file and, when it is a link, everything the link leads to."""
    for _ in range(10):
        source = _usr_path(source)
        target = tree / str(source).lstrip("/")
        if target.exists() or target.is_symlink():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if not source.is_symlink():
            shutil.copy2(source, target)
            return
        link = os.readlink(source)
        target.symlink_to(link)
        source = Path(os.path.normpath(source.parent / link))
    raise DiskError(f"{source}: too many links")


def _find_programs() -> list[Path]:
    found: list[Path] = []
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")
        if path is None:
            raise DiskError(f"the program {name} is missing here: install it, the tests in the machine use it")
        found.append(Path(path))
    return found


def _libraries_of(files: Iterable[Path]) -> set[Path]:
    listing = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    ).stdout
    return {Path(path) for path in re.findall(r"(?:=>|^)\s+(/\S+) \(0x", listing, re.MULTILINE)}


def _python_library() -> Path:
    command = ["/usr/bin/python3", "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def _copy_locale(tree: Path) -> None:
    """C.UTF-8, which boxes run in; some releases have it inside the C library instead."""
    for name in ("C.utf8", "C.UTF-8"):
        source = Path("/usr/lib/locale") / name
        if source.is_dir():
            shutil.copytree(source, tree / "usr/lib/locale" / name)


def _copy_system(tree: Path) -> None:
    programs = _find_programs()
    standard_library = _python_library()
    for program in programs:
        _copy_file(tree, program)
    shutil.copytree(
        standard_library,
        tree / str(standard_library).lstrip("/"),
        symlinks=True,
        ignore=shutil.ignore_patterns("test", "tests", "idlelib", "tkinter", "lib2to3", "turtledemo", "config-*"),
    )
    extensions = list(standard_library.glob("lib-dynload/*.so"))
    for library in _libraries_of([*programs, *extensions]):
        _copy_file(tree, library)
    for name, target in TOP_LINKS.items():
        (tree / target).mkdir(parents=True, exist_ok=True)
        (tree / name).symlink_to(target)
    (tree / "etc").mkdir()
    for name, text in ETC_FILES.items():
        (tree / "etc" / name).write_text(text)
    for name in EMPTY_DIRECTORIES:
        (tree / name).mkdir(parents=True, exist_ok=True)
    # /tmp is on the disk: kernels before 6.3 cannot map the owners of a tmpfs.
    for name in ("tmp", "var/tmp"):
        (tree / name).chmod(0o1777)
    _copy_locale(tree)
    # The loader finds libraries without a cache in its default directories; Debian's own are among them only by name.
    (tree / "etc/ld.so.conf").write_text("/usr/lib/x86_64-linux-gnu\n/usr/lib\n")
    subprocess.run(["/sbin/ldconfig", "-r", str(tree)], check=True, capture_output=True)


def _copy_repository(tree: Path, repository: Path) -> None:
    place = tree / "repo"
    for part in REPOSITORY_PARTS:
        source = repository / part
        if source.is_dir():
            shutil.copytree(source, place / part, symlinks=True, ignore=shutil.ignore_patterns("corpus"))
        elif source.exists():
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place / part)
    build = repository / "build"
    found = [path for pattern in BUILT for path in build.glob(pattern)]
    binaries = [path for path in found if path.is_file() and os.access(path, os.X_OK)]
    for binary in binaries:
        target = place / binary.relative_to(repository)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(binary, target)
    if binaries:
        for library in _libraries_of(binaries):
            _copy_file(tree, library)
    packages = next((build / "venv/lib").glob("python3*/site-packages"), None)
    if packages is None:
        raise DiskError("build/venv is missing: run tools/setup.sh test")
    shutil.copytree(
        packages, place / "build/venv/site-packages", ignore=shutil.ignore_patterns("pip", "setuptools", "ruff*")
    )


def make_disk(repository: Path, work: Path, size_mib: int = 1024) -> Path:
    """Makes work/disk.ext4 afresh and returns it."""
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    _copy_repository(tree, repository)
    _copy_system(tree)
    image = work / "disk.ext4"
    image.unlink(missing_ok=True)
    command = ["mkfs.ext4", "-q", "-F", "-d", str(tree), "-E", "root_owner=0:0,quotatype=prjquota"]
    command += ["-I", "256", "-O", "^has_journal,project,quota"]
    command += [str(image), f"{size_mib}M"]
    environment = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    made = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if made.returncode != 0:
        raise DiskError(f"mkfs.ext4 failed: {made.stderr.strip()}")
    shutil.rmtree(tree)
    return image


def read_results(image: Path, into: Path) -> None:
    """Copies /results out of a disk that no machine uses any more."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    command = ["debugfs", "-R", f"rdump /results {into}", str(image)]
    subprocess.run(command, check=False, capture_output=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})
