"""Running something beside a test in a process of its own. Not a thread: starting programs as another user runs Python
between fork and exec, which is only safe while there is one thread."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator


def fork(work: Callable[[], None]) -> int:
    """Starts the work and returns its process id; the exit status is 0 when it ended without an exception."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


@contextlib.contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Does the work again and again while the block runs."""

    def forever() -> None:
        while True:
            work()

    pid = fork(forever)
    try:
        yield
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "what should have gone on beside the test has failed"
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def together(*works: Callable[[], None]) -> None:
    """Does all of them at the same time and waits for the last; fails when one of them has."""
    pids = [fork(work) for work in works]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert statuses == [0] * len(pids), "one of them failed; its own words are above"
