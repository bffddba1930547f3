"""A root file system with the host's own Python and nothing else, for the peers that want an image."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import tarfile
from pathlib import Path

from context import SYSTEM_PYTHON, Bench


def archive(bench: Bench) -> Path:
    return bench.share("rootfs.tar", lambda: _make(bench.scratch / "rootfs.tar"))


def _libraries(program: str) -> set[str]:
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return set(re.findall(r"(/\S+) \(0x", done.stdout))


def _make(path: Path) -> Path:
    python = os.path.realpath(SYSTEM_PYTHON)
    version = re.sub(r".*python", "python", python)
    dynamic = glob.glob(f"/usr/lib/{version}/lib-dynload/*.so")
    libraries = set().union(*(_libraries(program) for program in [python, *dynamic]))
    with tarfile.open(path, "w") as tar:
        for link, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
            _add_link(tar, link, target)
        for directory in ("proc", "dev", "sys", "tmp", "etc"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            tar.addfile(entry)
        tar.add(python, "usr/bin/python3")
        tar.add(f"/usr/lib/{version}", f"usr/lib/{version}", filter=_leave_tests_out)
        for library in sorted(libraries):
            placed = library if library.startswith("/usr") else f"/usr{library}"
            tar.add(os.path.realpath(library), placed.lstrip("/"))
    return path


def _leave_tests_out(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if re.search(r"/(test|tests|idlelib|ensurepip)(/|$)", entry.name) else entry


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)
