"""The first file system of the test machine: tests/vm/init.c, compiled static, and the drivers of its disk."""

from __future__ import annotations

import gzip
import lzma
import re
import stat
import subprocess
from pathlib import Path

# Drivers to load, in any order; what they need is found in the modules themselves. Missing ones are built in.
WANTED = ["virtio_pci", "virtio_blk", "ext4", "quota_v2", "loop", "overlay"]


class KernelError(Exception):
    """The kernel package lacks something; the message says what."""


def _read_module(path: Path) -> bytes:
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout
    return path.read_bytes()


def collect_modules(directory: Path) -> dict[str, bytes]:
    """Every wanted driver and what it needs, each after its needs."""
    files = {re.sub(r"\.ko(\.\w+)?$", "", path.name).replace("-", "_"): path for path in directory.rglob("*.ko*")}
    if not files:
        raise KernelError(f"no drivers below {directory}: remove build/vm and run tools/setup.sh test again")
    collected: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in collected or name not in files:
            return
        content = _read_module(files[name])
        found = re.search(rb"\0depends=([^\0]*)\0", content)
        for need in (found.group(1).decode() if found else "").split(","):
            if need:
                add(need.replace("-", "_"))
        collected[name] = content

    for name in WANTED:
        add(name)
    return collected


def _entry(name: str, mode: int, content: bytes, number: int) -> bytes:
    """One entry of a cpio archive in the "newc" form that kernels read."""
    encoded = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    header += b"\0" * (-len(header) % 4)
    return header + content + b"\0" * (-len(content) % 4)


def compile_init(source: Path, target: Path) -> None:
    command = ["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-static"]
    subprocess.run([*command, "-o", str(target), str(source)], check=True)


def make_initramfs(init: Path, modules: dict[str, bytes], target: Path) -> None:
    directory, executable, plain = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755, stat.S_IFREG | 0o644
    files: list[tuple[str, int, bytes]] = [(name, directory, b"") for name in ("dev", "proc", "root", "modules")]
    files.append(("init", executable, init.read_bytes()))
    files += [(f"modules/{name}", plain, content) for name, content in modules.items()]
    files.append(("modules/order", plain, "".join(f"{name}\n" for name in modules).encode()))
    archive = b"".join(_entry(*file, number) for number, file in enumerate(files, start=1))
    archive += _entry("TRAILER!!!", 0, b"", 0)
    target.write_bytes(gzip.compress(archive, compresslevel=1))
