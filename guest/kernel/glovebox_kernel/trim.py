"""Trim: the bytes of large data go to disk and their memory back to the system, while the kernel lives on.

The objects stay where they are. Only the pages under them are written to a file and dropped (MADV_DONTNEED), and read
back to the same addresses before the next run, with a check that they are what was written. So dtypes, indexes, views,
identity between names and what any other object holds are the same by construction. It requires that no code looks in
between: the loop runs no user code until then, and a kernel with user threads or user signal handlers is not trimmed.

The file has no name: it vanishes with the process, which is also when the memory it stands for is gone. Pages are
dropped only after all of them are written; a failure before that changes nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import signal
import sys
import zlib
from collections.abc import Iterable
from typing import Any

from glovebox_kernel.context import Context
from glovebox_kernel.memory import RegionFinder, regions_merge, regions_private

_MADV_DONTNEED = 4
_THRESHOLD_BYTES = 1 << 20
_IO_BYTES = 4 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = 16 << 20
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class TrimError(Exception):
    """Nothing was trimmed; the message has the reason."""


class Trimmer:
    def __init__(self) -> None:
        self.is_trimmed = False
        self._fd = -1
        self._regions: list[tuple[int, int]] = []
        self._crc = 0

    def trim(self, contexts: Iterable[Context], directory: str) -> dict[str, Any]:
        """Write and drop; returns fields of ANSWER. Raises TrimError or OSError with everything as it was."""
        self.restore()
        obstacle = memory_watcher()
        if obstacle is not None:
            raise TrimError(obstacle)
        gc.collect()
        regions, names = _find_regions(contexts)
        if regions:
            fd = _open_unnamed(directory)
            try:
                crc = _transfer(os.pwritev, fd, regions)
            except BaseException:
                os.close(fd)
                raise
            self._fd, self._regions, self._crc, self.is_trimmed = fd, regions, crc, True
            for address, size in regions:
                # A failure (locked memory) leaves the pages as they are: nothing is lost, only not gained.
                _libc.madvise(address, size, _MADV_DONTNEED)
        memory_release()
        return {"bytes": sum(size for _, size in regions), "names": names}

    def restore(self) -> None:
        """Bring everything back. An OSError here means that data is lost: the process must not go on."""
        if not self.is_trimmed:
            return
        if _transfer(os.preadv, self._fd, self._regions) != self._crc:
            raise OSError(errno.EIO, "it is not what was written (the checksum is another)")
        os.close(self._fd)
        self._fd, self._regions, self.is_trimmed = -1, [], False


def memory_release() -> None:
    """Returns freed memory that allocators keep to the system."""
    pyarrow: Any = sys.modules.get("pyarrow")
    with contextlib.suppress(AttributeError):
        if pyarrow is not None:
            pyarrow.default_memory_pool().release_unused()
    memory_trim()


def memory_trim() -> None:
    """The same for the C library alone."""
    with contextlib.suppress(AttributeError):  # only glibc has it
        _libc.malloc_trim(0)


def memory_keep() -> None:
    """Keeps freed memory until the next memory_trim: to get a page again costs microseconds, and code that prints
    a megabyte, or works on arrays of some, frees and needs hundreds of them in every run."""
    with contextlib.suppress(AttributeError):
        _libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        _libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)


def memory_watcher() -> str | None:
    """What could access memory between two runs: a sentence, or None."""
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if others:
            return f"threads are running: {', '.join(others[:10])}"
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        module = getattr(handler, "__module__", "") or ""
        is_ours = module.startswith(_PACKAGE) or handler is signal.default_int_handler
        if callable(handler) and not isinstance(handler, signal.Handlers) and not is_ours:
            return f"a handler is set for signal {int(number)}"
    return None


_PACKAGE = __name__.partition(".")[0]


def _find_regions(contexts: Iterable[Context]) -> tuple[list[tuple[int, int]], list[str]]:
    finder = RegionFinder(_threshold("DF_BYTES"), _threshold("NP_BYTES"))
    regions = []
    names = []
    for context in contexts:
        for name, value in context.user_items():
            found = finder.find(value)
            if found:
                regions += found
                names.append(name)
    return regions_private(regions_merge(regions)), names


def _threshold(name: str) -> int:
    try:
        return max(0, int(os.environ.get(name, "")))
    except ValueError:
        return _THRESHOLD_BYTES


def _open_unnamed(directory: str) -> int:
    with contextlib.suppress(OSError):
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | os.O_EXCL, 0o600)
    path = os.path.join(directory, f".trim-{os.urandom(8).hex()}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return fd


def _transfer(move: Any, fd: int, regions: list[tuple[int, int]]) -> int:
    """pwritev or preadv between the regions, one after the other in the file, and memory; the checksum of all."""
    offset = crc = 0
    for address, size in regions:
        view = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
        done = 0
        while done < size:
            moved = move(fd, [view[done : done + _IO_BYTES]], offset + done)
            if moved == 0:
                raise OSError(errno.EIO, "the trim file is shorter than the memory it holds")
            crc = zlib.crc32(view[done : done + moved], crc)
            done += moved
        offset += size
    return crc
