"""When SIGINT may interrupt user code, and how nothing else in the kernel is interrupted by it.

The handler runs between any two bytecodes of the main thread, so "is a run on?" has no safe answer but one that it
reads itself: `armed`. Three places would still be interrupted:
- a frame half sent to the host: `shield` postpones the signal to the end of the frame;
- the instructions of `run_guarded` around the run: the first signal there is caught by its outer `except`, and
  `struck` makes the handler ignore all later ones in that very function, so a storm cannot get past the second net;
- a forked child of a cell, which must see the usual KeyboardInterrupt: the handler compares process ids.

A host cannot know whether a run has begun when it interrupts it, so it repeats the signal until the run ends. One that
comes less than REPEAT_S after the one that interrupted the run is such a repetition: it does not interrupt clean-up
code.
"""

from __future__ import annotations

import _signal
import os
import signal
from time import monotonic
from types import CodeType, FrameType, TracebackType
from typing import Any, Callable

# The plain functions and numbers: `signal` wraps them in enumerations, which takes longer than the calls.
_SIGINT = int(signal.SIGINT)
_SIG_BLOCK, _SIG_UNBLOCK = int(signal.SIG_BLOCK), int(signal.SIG_UNBLOCK)
_SIGINT_ONLY = (_SIGINT,)
REPEAT_S = 1.0


class Gate:
    """One per kernel. Also the context manager that postpones a signal (`with gate:`)."""

    __slots__ = ("_boundary", "armed", "handler", "pending", "pid", "shielded", "struck", "struck_at", "unheard")

    def __init__(self) -> None:
        self.armed = False
        self.struck = False
        self.struck_at = 0.0
        self.pending = False
        self.unheard = False  # one came while no run was on
        self.shielded = 0
        self.pid = os.getpid()
        self._boundary: CodeType = Gate.run_guarded.__code__
        self.handler = self.handle  # the same object each time: repair() compares by identity

    def install(self) -> None:
        self.pid = os.getpid()
        signal.signal(signal.SIGINT, self.handler)

    def repair(self) -> None:
        """Undo what a run did to SIGINT: a kernel that ignores it could only be killed."""
        if _signal.getsignal(_SIGINT) is not self.handler:
            signal.signal(signal.SIGINT, self.handler)
        _signal.pthread_sigmask(_SIG_UNBLOCK, _SIGINT_ONLY)

    def hold(self) -> None:
        """For a program that this process is about to become: from here on SIGINT waits until it is let through, and so
        does one that arrived after the host had requested the program and before this process had read it."""
        _signal.pthread_sigmask(_SIG_BLOCK, _SIGINT_ONLY)
        if self.unheard:
            os.kill(os.getpid(), _SIGINT)

    def handle(self, _signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self.pid:
            raise KeyboardInterrupt
        if not self.armed:
            self.unheard = True
            return
        if self.shielded:
            self.pending = True
            return
        if self.struck and (monotonic() - self.struck_at < REPEAT_S or (frame and frame.f_code is self._boundary)):
            return
        self.struck = True
        self.struck_at = monotonic()
        raise KeyboardInterrupt

    def __enter__(self) -> None:
        self.shielded += 1

    def __exit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.shielded -= 1
        if self.pending and self.armed and not self.shielded:
            self.pending = False
            self.struck = True
            self.struck_at = monotonic()
            raise KeyboardInterrupt

    def run_guarded(self, call: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
        """call(*args) with SIGINT let through; its value, or what it raised. Never raises."""
        value: Any = None
        failure: BaseException | None = None
        try:
            try:
                self.struck = self.pending = False
                self.shielded = 0
                self.armed = True
                value = call(*args)
                self.armed = False
            except BaseException as error:
                self.armed = False
                failure = error
        except KeyboardInterrupt as error:
            self.armed = False
            failure = error
        return value, failure
