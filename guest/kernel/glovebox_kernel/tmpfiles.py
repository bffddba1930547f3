"""Files in /tmp, the home directory and /dev/shm, which live in memory and end with the box: sleep carries them along.

Contents of large files go to the sleep file as buffers, everything else into the pickle. What is too much, or is no
file, holds the kernel back and is named: then the files stay where they are.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Iterable
from typing import Any

from glovebox_kernel.refusal import HeldBack
from glovebox_kernel.sleep_file import SleepFileReader, SleepFileWriter

BYTES_MAX = 256 << 20
FILES_MAX = 10_000
_SMALL_BYTES = 64 << 10
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TreeSaver:
    """`save` gives entries (path, kind, mode, time, data); `close` when the file is written."""

    def __init__(self, writer: SleepFileWriter) -> None:
        self._writer = writer
        self._maps: list[mmap.mmap] = []
        self._links: dict[tuple[int, int], str] = {}
        self._bytes = 0
        self.entries: list[tuple[str, str, int, int, Any]] = []

    def save(self, roots: Iterable[str]) -> list[tuple[str, str, int, int, Any]]:
        for root in roots:
            with contextlib.suppress(FileNotFoundError):
                self._directory(root, os.stat(root).st_dev)
        return self.entries

    def close(self) -> None:
        for one in self._maps:
            with contextlib.suppress(BufferError):
                one.close()

    def _directory(self, path: str, device: int) -> None:
        try:
            with os.scandir(path) as found:
                names = sorted(entry.name for entry in found)
        except OSError as error:
            raise _held(path, f"it cannot be read: {error.strerror}") from None
        for name in names:
            self._entry(os.path.join(path, name), device)

    def _entry(self, path: str, device: int) -> None:
        status = os.lstat(path)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR and status.st_dev != device:
            return  # something is mounted there: it is not the box's memory
        if len(self.entries) >= FILES_MAX:
            raise _held(path, f"there are more than {FILES_MAX} files in memory: move them to the workspace")
        first = self._links.setdefault((status.st_dev, status.st_ino), path)
        mode, time = stat.S_IMODE(status.st_mode), status.st_mtime_ns
        if kind == stat.S_IFDIR:
            self.entries.append((path, "directory", mode, time, None))
            self._directory(path, device)
        elif first != path:
            self.entries.append((path, "hard link", mode, time, first))
        elif kind == stat.S_IFREG:
            self.entries.append((path, "file", mode, time, self._content(path, status.st_size)))
        elif kind == stat.S_IFLNK:
            self.entries.append((path, "link", mode, time, os.readlink(path)))
        elif kind == stat.S_IFIFO:
            self.entries.append((path, "pipe", mode, time, None))
        else:
            raise _held(path, "a socket or device cannot be saved")

    def _content(self, path: str, size: int) -> Any:
        self._bytes += size
        if self._bytes > BYTES_MAX:
            raise _held(path, f"files in memory have more than {BYTES_MAX >> 20} MiB: move them to the workspace")
        try:
            with open(os.open(path, _READ_FLAGS), "rb") as file:
                if size < _SMALL_BYTES:
                    return file.read()
                mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise _held(path, f"it cannot be read: {error.strerror}") from None
        self._maps.append(mapped)
        return self._writer.reserve(memoryview(mapped)), size


def _held(path: str, why: str) -> HeldBack:
    return HeldBack([{"context": "", "name": path, "type": "file", "why": why}])


def tree_restore(entries: list[tuple[str, str, int, int, Any]], reader: SleepFileReader) -> list[str]:
    """Makes them again. Returns those that failed, with the reason."""
    lost = []
    for entry in entries:
        try:
            if not _restore_one(entry, reader):
                lost.append(f"{entry[0]}: damaged on the disk (the checksum is another)")
        except OSError as error:
            lost.append(f"{entry[0]}: {error.strerror}")
    for path, kind, mode, time, _ in reversed(entries):  # of directories last: their content changes the time
        with contextlib.suppress(OSError):
            if kind not in ("link", "hard link"):
                os.chmod(path, mode)
            os.utime(path, ns=(time, time), follow_symlinks=False)
    return lost


def _restore_one(entry: tuple[str, str, int, int, Any], reader: SleepFileReader) -> bool:
    path, kind, mode, _, data = entry
    if kind == "directory":
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode | 0o700)
        return True
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if kind == "link":
        os.symlink(data, path)
    elif kind == "hard link":
        os.link(data, path, follow_symlinks=False)
    elif kind == "pipe":
        os.mkfifo(path, mode)
    else:
        return _restore_file(path, mode, data, reader)
    return True


def _restore_file(path: str, mode: int, data: Any, reader: SleepFileReader) -> bool:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, mode | 0o600), "r+b", buffering=0) as file:
        if isinstance(data, bytes):
            file.write(data)
            return True
        offset, size = data
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as mapped, memoryview(mapped) as view:
            is_whole = reader.read_into(offset, view)
    if not is_whole:
        os.unlink(path)
    return is_whole
