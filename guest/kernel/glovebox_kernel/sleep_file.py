"""The file of a sleeping kernel: a header, a pickle stream, and the large buffers beside it, page by page.

    0      header: the line "GLOVEBOX-SLEEP 2", one line of JSON, one line with the checksum of both; zeros to 4096
    4096   the pickle stream
    area   the buffers, each at a multiple of 4096 from `area`
    table  JSON: `buffers`, [offset in the area, bytes, checksum] of each; `names`, [context, name] of each variable

Checksums are CRC-32. The header has those of the stream and of the table, and what lies between two parts is zero, so
no changed bit goes unnoticed. Buffers are written straight from the memory of arrays, without a copy, and read straight
into new memory. The file gets its name when it is complete and on the disk: there is the whole file, or none.
Version 1 had no checksums and no table; it can still be read.
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import sys
import zlib
from typing import Any

HEADER_BYTES = 4096
ALIGN = 4096
SMALL_BYTES = 4096
_MAGICS = {b"GLOVEBOX-SLEEP 1\n": 1, b"GLOVEBOX-SLEEP 2\n": 2}
_MAGIC = b"GLOVEBOX-SLEEP 2\n"
_IO_BYTES = 4 << 20


class SleepFileError(Exception):
    """The file cannot be used; the message says why. `names`: the variables that are lost with it, if known."""

    def __init__(self, message: str, names: list[list[str]] | None = None) -> None:
        super().__init__(message)
        self.names = names or []


class _CheckedStream(io.RawIOBase):
    """Writes to a descriptor at its position, and computes the checksum."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        done = os.write(self._fd, view)
        self.crc = zlib.crc32(view[:done], self.crc)
        return done


class SleepFileWriter:
    """Give the pickler `stream`, give it buffers with `reserve`, then `finish`, then `publish`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = f"{path}.{os.urandom(4).hex()}.tmp"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self._temporary, flags, 0o600)
        os.lseek(self.fd, HEADER_BYTES, os.SEEK_SET)
        self._raw = _CheckedStream(self.fd)
        self.stream = io.BufferedWriter(self._raw, 1 << 20)
        self._views: list[tuple[int, memoryview]] = []
        self._area_bytes = 0

    def reserve(self, view: memoryview) -> int:
        """A place in the area for these bytes; they are read when `finish` writes them."""
        offset = self._area_bytes
        self._views.append((offset, view))
        self._area_bytes = _align(offset + view.nbytes)
        return offset

    def finish(self, names: list[list[str]]) -> int:
        """Everything is in the file; its size."""
        self.stream.flush()
        stream_bytes = os.lseek(self.fd, 0, os.SEEK_CUR) - HEADER_BYTES
        area = _align(HEADER_BYTES + stream_bytes)
        table_at = area + self._area_bytes
        os.ftruncate(self.fd, table_at)
        buffers = [[offset, view.nbytes, self._write_buffer(view, area + offset)] for offset, view in self._views]
        self._views.clear()
        table = json.dumps({"buffers": buffers, "names": names}).encode()
        _write_all(self.fd, table, table_at)
        fields = {
            "python": sys.implementation.cache_tag,
            "stream": [stream_bytes, self._raw.crc],
            "area": area,
            "table": [table_at, len(table), zlib.crc32(table)],
        }
        head = _MAGIC + json.dumps(fields).encode() + b"\n"
        _write_all(self.fd, head + b"%08x\n" % zlib.crc32(head), 0)
        return table_at + len(table)

    def _write_buffer(self, view: memoryview, at: int) -> int:
        crc = 0
        flat = view.cast("B") if view.format != "B" or view.ndim != 1 else view
        for start in range(0, flat.nbytes, _IO_BYTES):
            piece = flat[start : start + _IO_BYTES]
            crc = zlib.crc32(piece, crc)
            _write_all(self.fd, piece, at + start)
        return crc

    def publish(self) -> None:
        os.fsync(self.fd)
        os.rename(self._temporary, self._path)
        os.close(self.fd)

    def discard(self) -> None:
        self._views.clear()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)
        with contextlib.suppress(OSError):
            os.close(self.fd)


class SleepFileReader:
    """`is_trial`: buffers are mapped, not read, so that a trial load takes no memory.

    Opening it checks header, table and stream. A buffer is checked when it is read: one that is not what it was is
    given as zeros, `spoilt` gets what was made of it, and `n_spoilt` is one more."""

    def __init__(self, fd: int, is_trial: bool = False) -> None:
        self.fd = fd
        self.spoilt: list[Any] = []  # arrays, and (address, bytes) of other memory
        self.n_spoilt = 0
        self.notes: list[str] = []
        self._crcs: dict[int, tuple[int, int]] = {}
        header = os.pread(fd, HEADER_BYTES, 0)
        self.version = next((number for magic, number in _MAGICS.items() if header.startswith(magic)), 0)
        size = os.fstat(fd).st_size
        if self.version == 1:
            self._read_header_1(header, size)
        elif self.version == 2:
            self._read_header_2(header, size)
        else:
            raise SleepFileError("it is not the file of a sleeping kernel, or its first bytes are damaged")
        self._map = memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_COPY)) if is_trial else None
        os.lseek(fd, HEADER_BYTES, os.SEEK_SET)
        self.stream = io.BufferedReader(io.FileIO(fd, "r", closefd=False), 1 << 20)

    def _read_header_1(self, header: bytes, size: int) -> None:
        fields: dict[str, Any] = json.loads(header[len(_MAGIC) :].partition(b"\n")[0])
        _check_python(fields["python"])
        if size != fields["bytes"]:
            raise SleepFileError(f"it has {size} bytes and should have {fields['bytes']}")
        self._area: int = fields["area"]

    def _read_header_2(self, header: bytes, size: int) -> None:
        end = header.find(b"\n", len(_MAGIC)) + 1
        if end == 0 or header[end:].rstrip(b"\0") != b"%08x\n" % zlib.crc32(header[:end]):
            raise SleepFileError("its header is damaged (the checksum is another)")
        fields: dict[str, Any] = json.loads(header[len(_MAGIC) : end])
        _check_python(fields["python"])
        table_at, table_bytes, table_crc = fields["table"]
        if size != table_at + table_bytes:
            raise SleepFileError(f"it has {size} bytes and should have {table_at + table_bytes}")
        table = _read_all(self.fd, table_bytes, table_at)
        if zlib.crc32(table) != table_crc:
            raise SleepFileError("its table is damaged (the checksum is another)")
        content = json.loads(table)
        self._area = fields["area"]
        stream_bytes, stream_crc = fields["stream"]
        crc = 0
        for start in range(0, stream_bytes, _IO_BYTES):
            crc = zlib.crc32(_read_all(self.fd, min(_IO_BYTES, stream_bytes - start), HEADER_BYTES + start), crc)
        if crc != stream_crc:
            raise SleepFileError("the part with the variables is damaged (the checksum is another)", content["names"])
        end = HEADER_BYTES + stream_bytes
        for offset, length, crc in content["buffers"]:
            self._crcs[offset] = (length, crc)
            self._check_gap(end, self._area + offset)
            end = self._area + offset + length
        self._check_gap(end, table_at)

    def _check_gap(self, start: int, end: int) -> None:
        """Zeros between two parts, less than a page. Nothing is lost with them."""
        if end > start and any(_read_all(self.fd, min(end - start, ALIGN), start)):
            self.notes.append(f"bytes {start} to {end} of the sleep file, which hold no data, have changed")

    def mapped(self, offset: int, size: int) -> memoryview | None:
        """The buffer as it is in the file, in a trial; None means: make room and call `read_into`."""
        if self._map is None:
            return None
        return self._map[self._area + offset : self._area + offset + size]

    def read_into(self, offset: int, view: memoryview) -> bool:
        """False, and zeros, when the buffer is not what was written."""
        done = crc = 0
        while done < view.nbytes:
            piece = view[done : done + _IO_BYTES]
            got = os.preadv(self.fd, [piece], self._area + offset + done)
            if got == 0:
                raise SleepFileError("it ends too early")
            crc = zlib.crc32(piece[:got], crc)
            done += got
        if self.version == 1 or self._crcs.get(offset) == (view.nbytes, crc):
            return True
        for start in range(0, view.nbytes, _IO_BYTES):
            view[start : start + _IO_BYTES] = bytes(min(_IO_BYTES, view.nbytes - start))
        self.n_spoilt += 1
        return False


def _check_python(tag: str) -> None:
    if tag != sys.implementation.cache_tag:
        raise SleepFileError(f"it was written by {tag}, and this is {sys.implementation.cache_tag}")


def _write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    view = memoryview(data)
    done = 0
    while done < view.nbytes:
        done += os.pwrite(fd, view[done:], at + done)


def _read_all(fd: int, size: int, at: int) -> bytes:
    parts = []
    while size > 0:
        part = os.pread(fd, size, at)
        if not part:
            raise SleepFileError("it ends too early")
        parts.append(part)
        size -= len(part)
        at += len(part)
    return b"".join(parts)


def _align(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


# Functions that rebuild an object are called by the unpickler and cannot be given the reader: it stands here.
current: SleepFileReader | None = None
