"""The nursery: imports what every kernel wants, once, and is forked for each kernel.

`python3 -m glovebox_kernel.nursery MODULE,MODULE… [light]`, started by a ward (src/session/ward.h) with the maker's socket as
descriptor 3 and the library guest/nursery/spawn.c as descriptor 4. It never runs a user's code, and ends when the maker's
socket does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import signal
import sys
import time
from typing import NoReturn

from glovebox_kernel import main as kernel
from glovebox_kernel.rehearsal import nursery_rehearse, nursery_try
from glovebox_kernel.trim import memory_trim

CHANNEL_FD = 3  # of a kernel; in a nursery it is the maker's socket, which nothing here reads or writes
LIBRARY_FD = 4
_PYTHON = ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
_ARENAS = ("PyObject_GetArenaAllocator", "PyObject_SetArenaAllocator")


def _library() -> ctypes.PyDLL:
    """PyDLL, not CDLL: the interpreter's lock is held throughout, so that a fork finds everything at rest."""
    library = ctypes.PyDLL(f"/proc/self/fd/{LIBRARY_FD}")
    os.close(LIBRARY_FD)
    library.spawn_announce.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]
    library.spawn_environment.restype = ctypes.c_char_p
    for function in (*_PYTHON, *_ARENAS):
        getattr(ctypes.pythonapi, function).restype = None
    return library


class _ArenaAllocator(ctypes.Structure):
    """PyObjectArenaAllocator."""

    _fields_ = (("context", ctypes.c_void_p), ("allocate", ctypes.c_void_p), ("free", ctypes.c_void_p))


class _Imprint:
    """This process's memory when it is ready, which its kernels share: guest/nursery/imprint.c."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        self._library = library
        self._usual = _ArenaAllocator()
        self._is_open = library.imprint_open() == 0
        if self._is_open:
            ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(self._usual))
            allocate, free = (
                ctypes.cast(function, ctypes.c_void_p)
                for function in (library.imprint_arena_allocate, library.imprint_arena_free)
            )
            ours = _ArenaAllocator(None, allocate, free)
            ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(ours))

    def fill(self) -> None:
        if self._is_open:
            self._library.imprint_fill(ctypes.pythonapi.PyObject_Malloc, ctypes.pythonapi.PyObject_Free)

    def end(self) -> None:
        """What is allocated from here on is a kernel's own."""
        if self._is_open:
            ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self._usual))

    def take(self) -> None:
        """Without it (an old system, no memory) kernels are forked all the same, and take more."""
        if self._is_open:
            self._library.imprint_take()

    def is_trial(self) -> bool:
        """Forks. In the child true; in the nursery false, when the child has shown what kernels read."""
        return self._is_open and self._library.trial_begin() == 0


class _Rest:
    """What a forked kernel does when nobody has asked it for a while."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        self._library = library

    def begin(self) -> None:
        memory_trim()
        self._library.imprint_return()


def _other_threads() -> list[str]:
    """Names of the threads besides this one; a moment's patience for those that are ending."""
    names: list[str] = []
    for _ in range(20):
        names = []
        for thread in os.listdir("/proc/self/task"):
            if thread == str(os.getpid()):
                continue
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm") as file:
                names.append(file.read().strip())
        if not names:
            break
        time.sleep(0.05)
    return names


def _widen_pools() -> None:
    """The libraries were loaded with one thread; a box with more processors gets as many as it has."""
    text = os.environ.get("OMP_NUM_THREADS", "1")
    if not text.isdigit() or int(text) <= 1:
        return
    for module, function in (("pyarrow", "set_cpu_count"), ("threadpoolctl", "threadpool_limits")):
        with contextlib.suppress(Exception):
            getattr(sys.modules[module], function)(int(text))


def _settle_in(library: ctypes.PyDLL, own_path: list[str]) -> None:
    """In the child: the box's environment in place of the nursery's."""
    index, left = 0, dict(os.environb)
    while (text := library.spawn_environment(index)) is not None:
        name, _, value = text.partition(b"=")
        if left.pop(name, None) != value:
            os.environb[name] = value
        index += 1
    for name in left:
        del os.environb[name]
    time.tzset()
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = ["", *given, *(part for part in own_path if part not in given)]
    kernel.after_fork()
    _widen_pools()


def _become_kernel(made: kernel.Kernel, library: ctypes.PyDLL, own_path: list[str]) -> NoReturn:
    """In the sealed child, from here on a kernel as any other."""
    _settle_in(library, own_path)
    kernel.serve(made, _Rest(library), is_awaited=bool(library.spawn_is_awaited()))


def _try(made: kernel.Kernel, library: ctypes.PyDLL, own_path: list[str]) -> NoReturn:
    """In a child that is no kernel and in no box: what kernels do at first. It ends in the library."""
    try:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        _settle_in(library, own_path)
        made.begin()
        nursery_try(made, CHANNEL_FD)
        library.trial_end()
    finally:
        os._exit(1)


def _make_kernel() -> kernel.Kernel:
    """The kernel that each fork will be. Its streams remember what they write to: pipes, then as now."""
    read_fd, write_fd = os.pipe()
    null_fds = os.dup(1), os.dup(2)
    for fd in (1, 2):
        os.dup2(write_fd, fd)
    made = kernel.make(CHANNEL_FD)
    for fd, null_fd in zip((1, 2), null_fds):
        os.dup2(null_fd, fd)
    for fd in (read_fd, write_fd, *null_fds):
        os.close(fd)
    return made


def _settle(imprint: _Imprint) -> kernel.Kernel:
    """After the imports: leave memory such that forks copy little, and write little of it afterwards."""
    nursery_rehearse()
    made = _make_kernel()
    for _ in range(8):
        ctypes.pythonapi.PyOS_BeforeFork()
        ctypes.pythonapi.PyOS_AfterFork_Child()
    sys.path_importer_cache.clear()  # lists of files that a kernel would read again anyway, with another path
    gc.collect()
    memory_trim()
    gc.freeze()
    imprint.fill()
    return made


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    library = _library()
    imprint = _Imprint(library)
    is_light = "light" in sys.argv[2:]
    if not is_light:
        library.trial_open()
    if (code := library.spawn_open()) < 0:
        sys.exit(f"nursery: {os.strerror(-code)}")
    names = [name for name in sys.argv[1].replace(",", " ").split() if name] if len(sys.argv) > 1 else []
    failed = kernel.preload(names)
    own_path = [part for part in sys.path if part and part != os.getcwd()]
    made = _settle(imprint)
    if threads := _other_threads():
        library.spawn_announce(-errno.EDEADLK, 0, ",".join(threads).encode())
        return
    imprint.end()
    if not is_light:
        # A kernel of one run gives nothing back, and what is mapped from a file is entered page by page: in a small
        # nursery that takes longer than to copy its page tables.
        imprint.take()
    announced = 0, len(names) - len(failed), ",".join(failed).encode()
    ctypes.pythonapi.PyOS_BeforeFork()  # once for all forks: from here on Python runs in kernels only
    if not is_light and imprint.is_trial():
        _try(made, library, own_path)
    library.spawn_announce(*announced)
    if library.spawn_serve() == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        _become_kernel(made, library, own_path)
    ctypes.pythonapi.PyOS_AfterFork_Parent()


if __name__ == "__main__":
    main()
