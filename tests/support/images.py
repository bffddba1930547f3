"""Root file systems that people have, made once by the tools that make them and kept in build/test-images.

Debian comes from mmdebstrap; the archives of docker and podman are made of it by dockerd and podman themselves. Without
one of these tools the tests fail: tools/setup.sh test installs them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from support.dockerd import dockerd
from support.glovebox import REPOSITORY

DIRECTORY = Path(os.environ.get("GLOVEBOX_TEST_IMAGES", REPOSITORY / "build/test-images"))
SUITES = {"debian13": "trixie"}  # the others are bookworm
PACKAGES = {"debian12": "python3", "debian13": "python3,python3-numpy"}
PACKAGES |= {"debian12-apt": "ca-certificates", "caddy": "caddy,ca-certificates"}
# The libraries are those that images/Dockerfile installs, so that it can be built on this one without a registry.
PACKAGES["debian12-venv"] = "python3,python3-venv,libexpat1,libstdc++6,libxext6,libxrender1"
VARIANTS = {"debian12-apt": "apt", "caddy": "minbase"}
FILTERED = {"debian12-small": "debian12-venv", "without-python": "debian12", "elsewhere": "debian12"}
CHANGES = ("ENV COLOUR=teal", "ENV PATH=/opt/own/bin:/usr/bin:/bin", "ENV HOME=/elsewhere", "WORKDIR /srv")


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    """Of one image, or of the two that are made together: others are made beside it."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    together = name.partition("-")[0] if name.startswith(("docker-", "oci-")) else name
    with (DIRECTORY / f".lock-{together}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=600, env=env)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-500:]} {done.stderr[-1500:]}"


def _debian(name: str, to: Path) -> None:
    assert shutil.which("mmdebstrap"), "mmdebstrap is missing: run tools/setup.sh test"
    variant, suite = VARIANTS.get(name, "essential"), SUITES.get(name, "bookworm")
    # In memory: dpkg waits for the disk after each package, which takes three times as long as all the rest.
    with tempfile.TemporaryDirectory(prefix="glovebox-debian-", dir=_memory()) as work:
        command = ["mmdebstrap", "--quiet", f"--variant={variant}", f"--include={PACKAGES[name]}", suite, to]
        _run(*command, env={**os.environ, "TMPDIR": work})


def _memory() -> str | None:
    """A file system in memory with room for a root file system, if there is one."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage("/dev/shm").free > 2 << 30:
            return "/dev/shm"
    return None


def _docker(_: str, to: Path) -> None:
    """Both archives at once: most of the time goes into starting dockerd."""
    with dockerd() as daemon:
        daemon.import_tar(_make("debian13"), "glovebox-test", *CHANGES)
        saves = to.name.startswith("docker-save")
        daemon.save("glovebox-test", to if saves else DIRECTORY / "docker-save.tar")
        daemon.export("glovebox-test", DIRECTORY / "docker-export.tar" if saves else to)


def _podman(_: str, to: Path) -> None:
    assert shutil.which("podman"), "podman is missing: run tools/setup.sh test"
    store = DIRECTORY / "podman"
    podman = ["podman", "--root", store / "root", "--runroot", store / "run", "--storage-driver", "vfs"]
    changes = [word for text in CHANGES for word in ("--change", text)]
    try:
        _run(*podman, "import", "--quiet", *changes, _make("debian12"), "glovebox-test:1")
        kind = "oci-dir" if to.name.startswith("oci-dir") else "oci-archive"
        _run(*podman, "save", "--quiet", "--format", kind, "-o", to, "glovebox-test:1")
    finally:
        _run(*podman, "rmi", "--all", "--force")
        shutil.rmtree(store, ignore_errors=True)


def _filtered(source: Path, to: Path, rename: Callable[[str], str | None]) -> None:
    with tarfile.open(source) as old, tarfile.open(to, "w", format=tarfile.GNU_FORMAT) as new:
        for member in old:
            name = rename(member.name.removeprefix("./"))
            if name is None:
                continue
            member.name = name
            if member.islnk():
                target = rename(member.linkname.removeprefix("./"))
                if target is None:
                    continue
                member.linkname = target
            new.addfile(member, old.extractfile(member) if member.isreg() else None)


def _without_python(_: str, to: Path) -> None:
    _filtered(_make(FILTERED["without-python"]), to, lambda name: None if "python3" in name else name)


def _small(_: str, to: Path) -> None:
    """Without what no test needs: Incus unpacks an image for each box where its pool has no snapshots."""
    left_out = [f"usr/share/{name}" for name in ("perl", "doc", "zoneinfo", "man")]
    left_out += [f"usr/lib/x86_64-linux-gnu/{name}" for name in ("perl", "gconv", "libperl")]
    left_out += ["var/lib/dpkg/info", "var/cache"]
    _filtered(_make(FILTERED["debian12-small"]), to, lambda name: None if name.startswith(tuple(left_out)) else name)


def _elsewhere(_: str, to: Path) -> None:
    """The interpreter and its library in /opt/python, and nothing of it in /usr."""

    def rename(name: str) -> str | None:
        for old, new in (("usr/bin/python3.11", "bin/python3.11"), ("usr/lib/python3.11", "lib/python3.11")):
            if name == old or name.startswith(old + "/"):
                return "opt/python/" + new + name[len(old) :]
        return None if name.startswith(("usr/bin/python3", "usr/lib/python3")) else name

    _filtered(_make(FILTERED["elsewhere"]), to, rename)


def _busybox(_: str, to: Path) -> None:
    """One program and its names; no /etc, no /tmp, no /home."""
    program = shutil.which("busybox", path="/bin:/usr/bin")
    assert program, "busybox is missing: run tools/setup.sh test"
    names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    content = Path(program).read_bytes()
    with tarfile.open(to, "w") as archive:
        member = tarfile.TarInfo("bin/busybox")
        member.mode, member.size = 0o755, len(content)
        archive.addfile(member, io.BytesIO(content))
        for name in names:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            if name != "busybox":
                archive.addfile(link)


MAKERS: dict[str, Callable[[str, Path], None]] = {
    "debian12": _debian,
    "debian12-venv": _debian,
    "debian12-apt": _debian,
    "debian13": _debian,
    "caddy": _debian,
    "docker-save": _docker,
    "docker-export": _docker,
    "oci-archive": _podman,
    "oci-dir": _podman,
    "debian12-small": _small,
    "without-python": _without_python,
    "elsewhere": _elsewhere,
    "busybox": _busybox,
}


def _path(name: str) -> Path:
    """With what it is made of in its name: one that an older list of packages made is not taken."""
    if name == "oci-dir":
        return DIRECTORY / name
    source = FILTERED.get(name, name)
    if source not in PACKAGES:
        return DIRECTORY / f"{name}.tar"
    recipe = hashlib.sha256(f"{VARIANTS.get(source)} {PACKAGES[source]}".encode()).hexdigest()
    return DIRECTORY / f"{name}-{recipe[:8]}.tar"


def _make(name: str) -> Path:
    path = _path(name)
    with _lock(name):
        if not path.exists():
            part = DIRECTORY / f"{name}.new{'' if name == 'oci-dir' else '.tar'}"
            shutil.rmtree(part, ignore_errors=True)
            part.unlink(missing_ok=True)
            MAKERS[name](name, part)
            part.rename(path)
    return path


def archive(name: str) -> Path:
    """The archive (or, of `oci-dir`, the directory), made on first use. All users may read it."""
    path = _make(name)
    for place in (path, *path.rglob("*")) if path.is_dir() else (path,):
        place.chmod(0o755 if place.is_dir() else 0o644)
    return path
