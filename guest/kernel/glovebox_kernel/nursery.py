"""The nursery: imports modules once, and is forked for each kernel.

`python3 -m glovebox_kernel.nursery MODULE,…,NAME=VALUE,… [light]`, started by a supervisor (src/spawn/supervisor.h); the
variables are in its environment already, and in that of its kernels. Descriptor 3 is the maker's socket, 4 the pipe for answers, 5 the library guest/nursery/spawn.c. It never runs a user's
code, and ends when the maker's socket does.
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
from glovebox_kernel.cow_snapshot import CowSnapshot
from glovebox_kernel.forked_kernel import ForkedKernel
from glovebox_kernel.rehearsal import PYTHON_PROGRAM, rehearse_cells, rehearse_light_kernels, warmup_requests
from glovebox_kernel.trim import memory_keep, memory_trim

CHANNEL_FDS = 3, 4  # of a kernel; in a nursery they are the maker's, and only the library uses them
LIBRARY_FD = 5
_FOR_IMPORTS = "MALLOC_CONF", "JE_ARROW_MALLOC_CONF"  # variables of a nursery alone (src/box/seal/nursery_stage.c)
_PYTHON = ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")


def _library() -> ctypes.PyDLL:
    """PyDLL, not CDLL: its functions keep the interpreter's lock, so that no other thread runs during a fork."""
    library = ctypes.PyDLL(f"/proc/self/fd/{LIBRARY_FD}")
    os.close(LIBRARY_FD)
    library.spawn_announce.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]
    library.spawn_environment.restype = ctypes.c_char_p
    library.spawn_simulate.restype = None
    library.execute_program.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.execute_program.restype = library.execute_look_up.restype = None
    library.page_warmup_feed.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    for function in _PYTHON:
        getattr(ctypes.pythonapi, function).restype = None
    return library


def _other_threads() -> list[str]:
    """Names of the threads besides this one; waits for up to a second for those that are ending."""
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
    """The kernel that each fork will be. Its streams note what kind of file they write to, so 1 and 2 must be pipes."""
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


def _prepare(library: ctypes.PyDLL, snapshot: CowSnapshot, own_path: list[str], is_light: bool) -> ForkedKernel:
    """After the imports: do once what every kernel would do, and leave memory such that kernels write to little."""
    rehearse_cells()

    def on_idle() -> None:
        memory_trim()
        snapshot.release_equal_pages()

    if is_light:
        rehearse_light_kernels(library, on_idle)
    forked = ForkedKernel(_make_kernel(), library, own_path, on_idle)
    memory_keep()  # kernels trim when they are idle
    forked.rehearse_fork()
    forked.prepare()
    sys.path_importer_cache.clear()  # a kernel has another path, and reads the directories again
    gc.collect()
    memory_trim()
    gc.freeze()
    return forked


def _restore_environment(given: dict[str, str]) -> None:
    """That of a box, without what the imports needed and what they added."""
    for name in set(os.environ) - (set(given) - set(_FOR_IMPORTS)):
        del os.environ[name]
    for name, value in given.items():
        if os.environ.get(name, value) != value:
            os.environ[name] = value


def main() -> None:
    is_light = "light" in sys.argv[2:]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    library = _library()
    snapshot = CowSnapshot(library)
    if (code := library.spawn_open()) < 0:
        sys.exit(f"nursery: {os.strerror(-code)}")
    words = sys.argv[1].replace(",", " ").split() if len(sys.argv) > 1 else []
    names = [] if is_light else [word for word in words if "=" not in word]
    if not is_light:
        importlib.import_module("glovebox_kernel.sleep")  # only kernels of sessions need it
    given = dict(os.environ)
    failed = kernel.preload(names)
    _restore_environment(given)
    own_path = [part for part in sys.path if part and part != os.getcwd()]
    forked = _prepare(library, snapshot, own_path, is_light)
    if threads := _other_threads():
        library.spawn_announce(-errno.EDEADLK, 0, ",".join(threads).encode())
        return
    announced = 0, len(names) - len(failed), ",".join(failed).encode()
    requests = warmup_requests(PYTHON_PROGRAM)
    has_snapshot = snapshot.take()
    forked.before_fork()
    if has_snapshot and library.page_warmup_begin() == 0:
        forked.become_warmup_child(CHANNEL_FDS, requests, library.page_warmup_end)
    else:
        library.spawn_announce(*announced)
    if forked.wait_for_fork():
        forked.run()


if __name__ == "__main__":
    main()
