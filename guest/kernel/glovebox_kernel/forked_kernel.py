"""From the fork to the first request: what is left to do in a kernel that was forked from a nursery.

Linux copies every page that is written to after a fork, and Python writes to every object that it uses (reference
counts). So work that can be done before the fork is done there. A *prepared* kernel has done in the nursery all that
does not depend on the process, for the default environment of a box; with another environment it does that part again.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import sys
import time
from typing import Any, Callable, NoReturn

from glovebox_kernel import main as kernel
from glovebox_kernel.cow_snapshot import is_tried
from glovebox_kernel.program import program_set_end
from glovebox_kernel.reseed import reseed, reseed_is_short, reseed_prepared

# What spawn_serve returns in a kernel (guest/nursery/spawn.c).
_IS_AWAITED, _IS_USUAL, _HAS_PACKAGES, _IS_SECOND, _IS_UNSETTLED = 1, 2, 4, 8, 16


class ForkedKernel:
    def __init__(
        self, made: kernel.Kernel, library: ctypes.PyDLL, own_path: list[str], on_idle: Callable[[], None]
    ) -> None:
        self._made = made
        self._library = library
        self._own_path = own_path
        self._main_thread: Any = None
        self._has_environment = False
        self._is_prepared = False
        self._flags = 0
        made.set_on_idle(on_idle)

    def rehearse_fork(self) -> None:
        """In the nursery, first: Python's own functions around a fork do some things only once."""
        for _ in range(8):
            ctypes.pythonapi.PyOS_BeforeFork()
            ctypes.pythonapi.PyOS_AfterFork_Child()

    def prepare(self) -> None:
        """In the nursery, last: nothing between here and a fork may change what this did.

        The work of Python's hooks around a fork is done here too, unless this is a Python that it was not tried with,
        or there are modules that need more after a fork."""
        self._enter_environment()
        self._has_environment = True
        if not (is_tried() and _hooks_are_known() and reseed_is_short()):
            return
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            self._main_thread = threading.main_thread()
            self._main_thread._native_id = 2  # as in every kernel
        self._made.hook_forks()
        reseed()
        self._is_prepared = True

    def before_fork(self) -> None:
        """Once for all forks: from here on Python code runs in kernels only.

        Python's functions around a fork repair what other threads may have left half done, and call the hooks of
        modules. A nursery has one thread, and a prepared kernel does the work of the hooks itself."""
        if not self._is_prepared:
            ctypes.pythonapi.PyOS_BeforeFork()

    def become_warmup_child(self, fds: tuple[int, int], requests: bytes, end: Callable[[], object]) -> None:
        """In the child of the page warm-up, which is in no box: it runs as a kernel from here on, and calls `end`
        where a kernel would exit."""
        if self._simulate_fork(fds, requests) < 0:
            os._exit(1)  # the descriptors are still the nursery's
        os._exit = lambda _status: end()  # type: ignore[assignment]
        program_set_end(end)

    def wait_for_fork(self) -> bool:
        """Forks kernels. True in each kernel, after it is sealed; False in the nursery, after the last request."""
        self._flags = self._library.spawn_serve()
        is_kernel = self._flags >= 0
        if not self._is_prepared:
            (ctypes.pythonapi.PyOS_AfterFork_Child if is_kernel else ctypes.pythonapi.PyOS_AfterFork_Parent)()
        return is_kernel

    def run(self) -> NoReturn:
        """In the sealed child."""
        os._exit(self._serve())

    def rehearse_life(self, fds: tuple[int, int], requests: bytes) -> None:
        """In a nursery: all that a light kernel does, for these requests. This object is of no further use."""
        self._made.begin_rehearsal()
        self._has_environment = self._is_prepared = True
        other_fd = self._simulate_fork(fds, requests)
        if self.wait_for_fork():
            self._serve()
        if other_fd >= 0:
            os.close(other_fd)

    def _simulate_fork(self, fds: tuple[int, int], requests: bytes) -> int:
        """The next wait_for_fork returns as in a kernel, in this process, and the kernel finds these requests. Returns
        the other end of its channel, or less than 0."""
        flags = _IS_USUAL | _IS_SECOND | _IS_UNSETTLED | (0 if self._is_prepared else _IS_AWAITED)
        self._library.spawn_simulate(flags)
        return self._library.page_warmup_feed(*fds, requests, len(requests))

    def _serve(self) -> int:
        """Runs the kernel until its channel ends; returns its exit code."""
        self._begin()
        if self._flags & _IS_UNSETTLED:
            self._made.settle_later(self._library.spawn_settle)
        if not self._flags & _IS_AWAITED:
            self._library.page_warmup_own()
        return self._made.serve()

    def _begin(self) -> None:
        if not (self._has_environment and self._flags & _IS_USUAL):
            self._replace_environment()
            self._enter_environment()
            _set_thread_pools()
        if self._main_thread is not None and not self._flags & _IS_SECOND:
            self._main_thread._set_native_id()
        if self._is_prepared:
            reseed_prepared()
        else:
            kernel.after_fork()
        self._made.begin(bool(self._flags & _HAS_PACKAGES))

    def _replace_environment(self) -> None:
        """Replaces the nursery's environment by the box's."""
        index, left = 0, dict(os.environb)
        while (text := self._library.spawn_environment(index)) is not None:
            name, _, value = text.partition(b"=")
            if left.pop(name, None) != value:
                os.environb[name] = value
            index += 1
        for name in left:
            del os.environb[name]

    def _enter_environment(self) -> None:
        time.tzset()
        given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
        sys.path[:] = ["", *given, *(part for part in self._own_path if part not in given)]
        self._made.enter_environment()


def _hooks_are_known() -> bool:
    """True if the registered hooks for a forked child are those whose work is done here. Python cannot list them.

    random: see reseed. threading: makes new locks (no thread holds the old ones) and forgets other threads."""
    threading: Any = sys.modules.get("threading")
    known = (random._inst.seed, getattr(threading, "_after_fork", None))  # type: ignore[attr-defined]
    if threading is not None and not hasattr(threading.main_thread(), "_set_native_id"):
        return False
    lists = [found for found in gc.get_objects() if type(found) is list and known[0] in found]
    return len(lists) == 1 and all(hook in known for hook in lists[0])


def _set_thread_pools() -> None:
    """The nursery loaded the libraries with one thread; a box with more processors gets one for each."""
    text = os.environ.get("OMP_NUM_THREADS", "1")
    if not text.isdigit() or int(text) <= 1:
        return
    for module, function in (("pyarrow", "set_cpu_count"), ("threadpoolctl", "threadpool_limits")):
        with contextlib.suppress(Exception):
            getattr(sys.modules[module], function)(int(text))
