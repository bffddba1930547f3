"""sys.stdin, sys.stdout and sys.stderr of a kernel.

Output is line-buffered, so that every line is on its way before the next statement. A line costs a system call and
wakes the reader, which is too slow for code that prints thousands of lines in a row. So after FLOOD_LINES lines
within FLOOD_SECONDS the stream becomes block-buffered, and a timer signal TICK_SECONDS later flushes it and makes it
line-buffered again; no thread is needed. What a flood printed in its last tick is lost if the process is killed right
then; what ordinary code printed never is. Where timers cannot be had, every line is flushed as before.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import sys
from time import monotonic
from typing import Any, Callable

FLOOD_LINES = 64
FLOOD_SECONDS = 0.004
TICK_SECONDS = 0.01
FORKED_FDS = (5, 6)  # copies of 1 and 2 in a kernel that was forked
_BUFFER_BYTES = 64 << 10
_SIGNAL = signal.SIGRTMAX - 3

_libc = ctypes.CDLL(None, use_errno=True)
_fflush = _libc.fflush
_fflush.argtypes = [ctypes.c_void_p]


class InputError(EOFError):
    """Raised by a read of standard input: there is none."""

    def __init__(self) -> None:
        super().__init__(
            "input() and sys.stdin do not work here: no one is there to answer. "
            "Put the value into a variable, or read it from a file"
        )


def input_refuse(_prompt: object = "", /) -> str:
    """Replaces the builtin `input`."""
    raise InputError


class NoInput(io.TextIOBase):
    """sys.stdin: every read fails at once, with the reason. Closing it (as `exit()` does) changes nothing."""

    name = "<stdin>"
    mode = "r"
    encoding = "utf-8"
    errors = "strict"

    def readable(self) -> bool:
        return True

    def read(self, _size: int | None = -1, /) -> str:
        raise InputError

    def readline(self, _size: int = -1, /) -> str:  # type: ignore[override]
        raise InputError

    def __next__(self) -> str:
        raise InputError

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        pass


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2)]


class _Sigevent(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("pad", ctypes.c_char * 48),
    ]


class Ticker:
    """A POSIX timer of the process's own: `signal.setitimer` and `signal.alarm` stay the user's."""

    def __init__(self, on_tick: Callable[[], None]) -> None:
        self._timer = ctypes.c_void_p()
        self._pid = 0  # of the process that has it: it is not inherited by a fork
        with contextlib.suppress(OSError, ValueError):
            signal.signal(_SIGNAL, lambda _signum, _frame: on_tick())
            signal.siginterrupt(_SIGNAL, False)

    def works(self) -> bool:
        if self._pid != os.getpid():
            event = _Sigevent(signo=_SIGNAL, notify=0)
            with contextlib.suppress(AttributeError):
                if _libc.timer_create(1, ctypes.byref(event), ctypes.byref(self._timer)) == 0:
                    self._pid = os.getpid()
        return self._pid == os.getpid()

    def start(self) -> None:
        if self.works():
            self._set(TICK_SECONDS)

    def stop(self) -> None:
        self._set(0.0)

    def _set(self, seconds: float) -> None:
        spec = _Itimerspec((0, 0), (0, int(seconds * 1e9)))
        _libc.timer_settime(self._timer, 0, ctypes.byref(spec), None)


_write_buffer = io.BufferedWriter.write


class FloodBuffer(io.BufferedWriter):
    """Counts writes, which for a line-buffered text layer are lines, and reports a flood.

    Not every flush: each run ends with one, mostly of nothing.
    """

    def __init__(self, raw: io.RawIOBase, on_flood: Callable[[], None]) -> None:
        super().__init__(raw, _BUFFER_BYTES)
        self._on_flood = on_flood
        self._lines = 0
        self._since = 0.0

    def write(self, data: Any, /) -> int:
        size = _write_buffer(self, data)
        self._lines += 1
        if self._lines >= FLOOD_LINES:
            now = monotonic()
            is_flood = now - self._since < FLOOD_SECONDS
            self._lines = 0
            self._since = now
            if is_flood:
                self._on_flood()
        return size


class Stdio:
    def __init__(self) -> None:
        self._saved_fds: tuple[int, ...] = ()
        self.flooded: list[io.TextIOWrapper] = []
        self._ticker: Ticker | None = None
        self._is_left = False
        self.streams: list[io.TextIOWrapper] = []

    def install(self) -> None:
        sys.stdin = sys.__stdin__ = NoInput()  # type: ignore[assignment, misc]
        self._ticker = Ticker(self._on_tick)
        self.streams[:] = [self._open(1), self._open(2)]
        sys.stdout = sys.__stdout__ = self.streams[0]  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self.streams[1]  # type: ignore[misc]

    def expect_descriptors(self) -> None:
        """In a nursery: guest/nursery/spawn.c puts them in place after the fork."""
        self._saved_fds = FORKED_FDS

    def begin(self) -> None:
        """In the process whose streams these are: what a fork does not pass on."""
        if self._saved_fds:
            return
        null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null_fd, 0)
        os.close(null_fd)
        self._saved_fds = (os.dup(1), os.dup(2))

    def leave(self) -> None:
        """The process is a program from here on, with streams of its own."""
        self.flush()
        self._is_left = True
        self.close()

    def flush_before_fork(self) -> None:
        if not self._is_left:
            self.flush()

    def close(self) -> None:
        """Its descriptors; sys.stdout and its like are the caller's to put back."""
        for fd in self._saved_fds:
            with contextlib.suppress(OSError):  # they do not exist in the child of a page warm-up
                os.close(fd)

    def _open(self, fd: int) -> io.TextIOWrapper:
        raw = io.FileIO(fd, "w", closefd=False)
        raw.name = "<stdout>" if fd == 1 else "<stderr>"  # type: ignore[misc]
        stream: io.TextIOWrapper

        def on_flood() -> None:
            self._begin_flood(stream)

        buffer = FloodBuffer(raw, on_flood)  # type: ignore[arg-type]
        stream = io.TextIOWrapper(buffer, "utf-8", "backslashreplace", line_buffering=True)
        stream.mode = "w"  # type: ignore[misc]
        return stream

    def _begin_flood(self, stream: io.TextIOWrapper) -> None:
        ticker = self._ticker
        if ticker is None or not ticker.works() or stream in self.flooded or stream.closed:
            return
        self.flooded.append(stream)
        stream.reconfigure(line_buffering=False)
        ticker.start()

    def _on_tick(self) -> None:
        """In a signal handler: the stream may be in the middle of a write (RuntimeError); then try again later."""
        try:
            self._end_flood()
        except RuntimeError:
            if self._ticker is not None:
                self._ticker.start()

    def _end_flood(self) -> None:
        while self.flooded:
            stream = self.flooded[-1]
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(line_buffering=True)  # flushes, too
            self.flooded.pop()

    def flush(self) -> None:
        """All that Python and C stdio hold goes to the pipes: a RESULT sent after this comes after all output."""
        out, err = self.streams
        if sys.stdout is not out:
            _flush_any(sys.stdout)
        if sys.stderr is not err:
            _flush_any(sys.stderr)
        try:
            out.flush()
            err.flush()
        except ValueError:
            self._reopen()
        except OSError:
            pass
        if self.flooded:
            with contextlib.suppress(RuntimeError):
                self._end_flood()
            if self._ticker is not None:
                self._ticker.stop()
        _fflush(None)

    def _reopen(self) -> None:
        """The run closed sys.stdout or sys.stderr: the next run gets new ones, on the same pipes."""
        self.flooded.clear()
        for index, saved_fd in enumerate(self._saved_fds):
            os.dup2(saved_fd, index + 1)
            if self.streams[index].closed:
                self.streams[index] = self._open(index + 1)
        sys.stdout = sys.__stdout__ = self.streams[0]  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self.streams[1]  # type: ignore[misc]


def _flush_any(stream: Any) -> None:
    """A stream of the user's own may fail; that does not fail the run."""
    with contextlib.suppress(Exception):
        stream.flush()
