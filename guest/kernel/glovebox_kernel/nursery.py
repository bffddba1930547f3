"""The nursery: imports what every kernel wants, once, and is forked for each kernel.

`python3 -m glovebox_kernel.nursery MODULE,MODULE… [light]`, started by a ward (src/spawn/supervisor.h) with the maker's socket as
descriptor 3, a pipe for answers to it as 4, and the library guest/nursery/spawn.c as 5. It never runs a user's code, and ends when the maker's
socket does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import importlib
import os
import signal
import sys
import time

from glovebox_kernel import main as kernel
from glovebox_kernel.birth import Birth
from glovebox_kernel.rehearsal import lives_rehearse, nursery_rehearse, trial_requests
from glovebox_kernel.trim import memory_keep, memory_trim

CHANNEL_FDS = 3, 4  # of a kernel; in a nursery they are the maker's, which nothing here reads or writes
LIBRARY_FD = 5
_PYTHON = ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
_ARENA_BYTES = 1 << 20
_ARENAS = ("PyObject_GetArenaAllocator", "PyObject_SetArenaAllocator")


def _library() -> ctypes.PyDLL:
    """PyDLL, not CDLL: the interpreter's lock is held throughout, so that a fork finds everything at rest."""
    library = ctypes.PyDLL(f"/proc/self/fd/{LIBRARY_FD}")
    library.spawn_announce.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]
    library.spawn_environment.restype = ctypes.c_char_p
    library.spawn_pretend.restype = None
    library.page_warmup_feed.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    library.cow_snapshot_arena_allocate.restype = ctypes.c_void_p
    library.cow_snapshot_arena_allocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.cow_snapshot_arena_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    for function in (*_PYTHON, *_ARENAS):
        getattr(ctypes.pythonapi, function).restype = None
    return library


class _ArenaAllocator(ctypes.Structure):
    """PyObjectArenaAllocator."""

    _fields_ = (("context", ctypes.c_void_p), ("allocate", ctypes.c_void_p), ("free", ctypes.c_void_p))


class _Imprint:
    """This process's memory when it is ready, which its kernels share: guest/nursery/cow_snapshot.c."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        self._library = library
        self._usual = _ArenaAllocator()
        self._is_open = library.cow_snapshot_open() == 0
        if self._is_open:
            ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(self._usual))
            allocate, free = (
                ctypes.cast(function, ctypes.c_void_p)
                for function in (library.cow_snapshot_arena_allocate, library.cow_snapshot_arena_free)
            )
            ours = _ArenaAllocator(None, allocate, free)
            ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(ours))

    def fill(self) -> None:
        """Last of all: what Python does after it leaves gaps again."""
        if self._is_open:
            # There may be no arena of ours yet, without which nothing is filled.
            arena = self._library.cow_snapshot_arena_allocate(None, _ARENA_BYTES)
            self._library.cow_snapshot_arena_free(None, arena, _ARENA_BYTES)
            self._library.cow_snapshot_fill(ctypes.pythonapi.PyObject_Malloc, ctypes.pythonapi.PyObject_Free)

    def end(self) -> None:
        """What is allocated from here on is a kernel's own."""
        if self._is_open:
            ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self._usual))

    def take(self) -> None:
        """Without it (an old system, no memory) kernels are forked all the same, and take more."""
        if self._is_open:
            self._library.cow_snapshot_take()

    def is_trial(self) -> bool:
        """Forks. In the child true; in the nursery false, when the child has shown what kernels read."""
        return self._is_open and self._library.page_warmup_begin() == 0


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


def _make_kernel() -> kernel.Kernel:
    """The kernel that each fork will be. Its streams remember what they write to: pipes, then as now."""
    read_fd, write_fd = os.pipe()
    null_fds = os.dup(1), os.dup(2)
    for fd in (1, 2):
        os.dup2(write_fd, fd)
    made = kernel.make(CHANNEL_FDS)
    made.expect_descriptors()
    for fd, null_fd in zip((1, 2), null_fds):
        os.dup2(null_fd, fd)
    for fd in (read_fd, write_fd, *null_fds):
        os.close(fd)
    return made


def _settle(imprint: _Imprint, library: ctypes.PyDLL, own_path: list[str], is_light: bool) -> Birth:
    """After the imports: leave memory such that forks copy little, and write little of it afterwards."""
    nursery_rehearse()

    def on_idle() -> None:
        memory_trim()
        library.cow_snapshot_return()

    if is_light:
        lives_rehearse(library, on_idle)
    birth = Birth(_make_kernel(), library, own_path, on_idle)
    memory_keep()  # its kernels trim when they rest
    birth.practise()
    if is_light:
        birth.prepare()
    sys.path_importer_cache.clear()  # lists of files that a kernel would read again anyway, with another path
    gc.collect()
    memory_trim()
    gc.freeze()
    return birth


def main() -> None:
    library = _library()
    is_light = "light" in sys.argv[2:]
    os.close(LIBRARY_FD)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    imprint = _Imprint(library)
    library.page_warmup_open()
    if (code := library.spawn_open()) < 0:
        sys.exit(f"nursery: {os.strerror(-code)}")
    names = [name for name in sys.argv[1].replace(",", " ").split() if name] if len(sys.argv) > 1 else []
    if not is_light:
        importlib.import_module("glovebox_kernel.sleep")  # what only kernels that stay need
    failed = kernel.preload(names)
    own_path = [part for part in sys.path if part and part != os.getcwd()]
    birth = _settle(imprint, library, own_path, is_light)
    if threads := _other_threads():
        library.spawn_announce(-errno.EDEADLK, 0, ",".join(threads).encode())
        return
    announced = 0, len(names) - len(failed), ",".join(failed).encode()
    requests = trial_requests(ends_as_program=not is_light)
    imprint.fill()
    imprint.end()
    imprint.take()
    birth.before_fork()
    if imprint.is_trial():
        birth.try_out(CHANNEL_FDS, requests, library.page_warmup_end)
    else:
        library.spawn_announce(*announced)
    if birth.await_fork():
        birth.become_kernel()


if __name__ == "__main__":
    main()
