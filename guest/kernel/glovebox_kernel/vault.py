"""The file of a sleeping kernel: a header, a pickle stream, and the large buffers beside it, page by page.

    0      header: the line "GLOVEBOX-SLEEP 1", then one line of JSON; padded with zeros to 4096 bytes
    4096   the pickle stream
    area   the buffers, each at a multiple of 4096 from `area`

Buffers are written straight from the memory of arrays, without a copy, and read straight into new memory. The file
gets its name when it is complete: there is the whole file, or none.
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import sys
from typing import Any

HEADER_BYTES = 4096
ALIGN = 4096
SMALL_BYTES = 4096
_MAGIC = b"GLOVEBOX-SLEEP 1\n"
_IO_BYTES = 1 << 30


class VaultError(Exception):
    """The file cannot be used; the message says why."""


class VaultWriter:
    """Give the pickler `stream`, give it buffers with `reserve`, then `finish`, then `publish`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = f"{path}.{os.urandom(4).hex()}.tmp"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self._temporary, flags, 0o600)
        os.lseek(self.fd, HEADER_BYTES, os.SEEK_SET)
        self.stream = io.BufferedWriter(io.FileIO(self.fd, "w", closefd=False), 1 << 20)
        self._views: list[tuple[int, memoryview]] = []
        self._area_bytes = 0

    def reserve(self, view: memoryview) -> int:
        """A place in the area for these bytes; they are read when `finish` writes them."""
        offset = self._area_bytes
        self._views.append((offset, view))
        self._area_bytes = _align(offset + view.nbytes)
        return offset

    def finish(self) -> int:
        """Everything is in the file; its size."""
        self.stream.flush()
        stream_bytes = os.lseek(self.fd, 0, os.SEEK_CUR) - HEADER_BYTES
        area = _align(HEADER_BYTES + stream_bytes)
        total = area + self._area_bytes
        os.ftruncate(self.fd, total)
        for offset, view in self._views:
            done = 0
            while done < view.nbytes:
                done += os.pwrite(self.fd, view[done : done + _IO_BYTES], area + offset + done)
        self._views.clear()
        header = json.dumps({"python": sys.implementation.cache_tag, "area": area, "bytes": total}).encode()
        os.pwrite(self.fd, _MAGIC + header + b"\n", 0)
        return total

    def publish(self) -> None:
        os.rename(self._temporary, self._path)
        os.close(self.fd)

    def discard(self) -> None:
        self._views.clear()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)
        with contextlib.suppress(OSError):
            os.close(self.fd)


class VaultReader:
    """`is_trial`: buffers are mapped, not read, so that a trial load takes no memory."""

    def __init__(self, fd: int, is_trial: bool = False) -> None:
        self.fd = fd
        header = os.pread(fd, HEADER_BYTES, 0)
        if not header.startswith(_MAGIC):
            raise VaultError("it is not the file of a sleeping kernel")
        fields: dict[str, Any] = json.loads(header[len(_MAGIC) :].partition(b"\n")[0])
        if fields["python"] != sys.implementation.cache_tag:
            raise VaultError(f"it was written by {fields['python']}, and this is {sys.implementation.cache_tag}")
        size = os.fstat(fd).st_size
        if size != fields["bytes"]:
            raise VaultError(f"it has {size} bytes and should have {fields['bytes']}")
        self._area: int = fields["area"]
        self._map = memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_COPY)) if is_trial else None
        os.lseek(fd, HEADER_BYTES, os.SEEK_SET)
        self.stream = io.BufferedReader(io.FileIO(fd, "r", closefd=False), 1 << 20)

    def mapped(self, offset: int, size: int) -> memoryview | None:
        """The buffer as it is in the file, in a trial; None means: make room and call `read_into`."""
        if self._map is None:
            return None
        return self._map[self._area + offset : self._area + offset + size]

    def read_into(self, offset: int, view: memoryview) -> None:
        done = 0
        while done < view.nbytes:
            got = os.preadv(self.fd, [view[done : done + _IO_BYTES]], self._area + offset + done)
            if got == 0:
                raise VaultError("it ends too early")
            done += got


def _align(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


# Functions that rebuild an object are called by the unpickler and cannot be given the reader: it stands here.
current: VaultReader | None = None
