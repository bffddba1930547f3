"""From the fork to the first request: what a kernel that was forked has left to do.

Every page that is written to after a fork must be copied, and Python writes to whatever it looks at (counts of
references). So the cheapest line is one that ran before the fork. A *prepared* birth has done there all that does not
depend on the process, for the environment that most boxes have; in any other box it does that part again.
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
from glovebox_kernel.program import program_set_end
from glovebox_kernel.reseed import reseed, reseed_is_short, reseed_prepared

_IS_AWAITED, _IS_USUAL, _HAS_PACKAGES, _IS_SECOND, _IS_UNSETTLED = 1, 2, 4, 8, 16  # what spawn_serve says in a kernel


class Birth:
    def __init__(
        self, made: kernel.Kernel, library: ctypes.PyDLL, own_path: list[str], on_idle: Callable[[], None]
    ) -> None:
        self._made = made
        self._library = library
        self._own_path = own_path
        self._main_thread: Any = None
        self._is_prepared = False
        self._order = 0
        made.set_on_idle(on_idle)

    def practise(self) -> None:
        """In the nursery, before it is prepared: what is done once only is then done."""
        for _ in range(8):
            ctypes.pythonapi.PyOS_BeforeFork()
            ctypes.pythonapi.PyOS_AfterFork_Child()

    def prepare(self) -> None:
        """In the nursery, before all else that lasts: nothing between here and a fork may change what it did."""
        if not (_hooks_are_known() and reseed_is_short()):
            return
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            self._main_thread = threading.main_thread()
            self._main_thread._native_id = 2  # as every kernel's
        self._enter_environment()
        reseed()
        self._is_prepared = True

    def before_fork(self) -> None:
        """Once for all forks: from here on Python runs in kernels only.

        The functions of Python around a fork put right what threads may have left half done, and call the hooks of
        modules. Here is one thread, at rest, and a prepared birth does what the hooks would."""
        if not self._is_prepared:
            ctypes.pythonapi.PyOS_BeforeFork()

    def pretend(self, fds: tuple[int, int], requests: bytes) -> int:
        """What follows is as in a kernel, asked for this. The other end of its channel, or less than 0."""
        self._library.spawn_pretend(_IS_USUAL | _IS_SECOND | _IS_UNSETTLED | (0 if self._is_prepared else _IS_AWAITED))
        return self._library.page_warmup_feed(*fds, requests, len(requests))

    def try_out(self, fds: tuple[int, int], requests: bytes, end: Callable[[], object]) -> None:
        """In a child that is no kernel and in no box. It is like one from here on, and ends in the library."""
        if self.pretend(fds, requests) < 0:
            os._exit(1)  # they are still the nursery's
        os._exit = lambda _status: end()  # type: ignore[assignment]
        program_set_end(end)

    def await_fork(self) -> bool:
        """True in each kernel, sealed, and in the nursery never: False after the last order."""
        if self._is_prepared:
            self._order = self._library.spawn_serve()
            return self._order >= 0
        self._order = self._library.spawn_serve()
        if self._order >= 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
        else:
            ctypes.pythonapi.PyOS_AfterFork_Parent()
        return self._order >= 0

    def become_kernel(self) -> NoReturn:
        """In the sealed child."""
        os._exit(self.live())

    def live(self) -> int:
        """All that a kernel does, until its channel ends; its exit code."""
        self._begin()
        if self._order & _IS_UNSETTLED:
            self._made.settle_later(self._library.spawn_settle)
        if not self._order & _IS_AWAITED:
            self._made.rehearse()
        return self._made.serve()

    def rehearse(self, fds: tuple[int, int], requests: bytes) -> None:
        """In a nursery: the life of a light kernel. Its Kernel is of no further use."""
        self._made.pretend()
        self._is_prepared = True
        other_fd = self.pretend(fds, requests)
        if self.await_fork():
            self.live()
        if other_fd >= 0:
            os.close(other_fd)

    def _begin(self) -> None:
        if not (self._is_prepared and self._order & _IS_USUAL):
            self._replace_environment()
            self._enter_environment()
            _widen_pools()
        if self._main_thread is not None and not self._order & _IS_SECOND:
            self._main_thread._set_native_id()
        if not self._is_prepared:
            kernel.after_fork()
        else:
            reseed_prepared()
        self._made.begin(bool(self._order & _HAS_PACKAGES))

    def _replace_environment(self) -> None:
        """The box's in place of the nursery's."""
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
    """Are the hooks for a forked child those whose work is done here? Python keeps them in a list that it shows nobody.

    random: see reseed. threading: makes its locks anew, which nobody holds, and forgets other threads."""
    threading: Any = sys.modules.get("threading")
    known = (random._inst.seed, getattr(threading, "_after_fork", None))  # type: ignore[attr-defined]
    if threading is not None and not hasattr(threading.main_thread(), "_set_native_id"):
        return False
    lists = [found for found in gc.get_objects() if type(found) is list and known[0] in found]
    return len(lists) == 1 and all(hook in known for hook in lists[0])


def _widen_pools() -> None:
    """The libraries were loaded with one thread; a box with more processors gets as many as it has."""
    text = os.environ.get("OMP_NUM_THREADS", "1")
    if not text.isdigit() or int(text) <= 1:
        return
    for module, function in (("pyarrow", "set_cpu_count"), ("threadpoolctl", "threadpool_limits")):
        with contextlib.suppress(Exception):
            getattr(sys.modules[module], function)(int(text))
