"""Requests of the usual kind, answered by the nursery's library: guest/nursery/turn.c tells what it does.

Only a kernel that was forked has that library; any other answers all requests in `main.Kernel`.
"""

from __future__ import annotations

import _signal
import builtins
import ctypes
import sys
from typing import TYPE_CHECKING, Protocol

from glovebox_kernel import figures

if TYPE_CHECKING:
    from glovebox_kernel.context import ContextTable
    from glovebox_kernel.gate import Gate
    from glovebox_kernel.runner import Runner
    from glovebox_kernel.stdio import Stdio
    from glovebox_kernel.trim import Trimmer


REST_AFTER_MS = 1000


class Rest(Protocol):
    """What to do with a while in which nobody asks for anything."""

    def begin(self) -> None: ...


class Turns:
    def __init__(
        self, library: ctypes.PyDLL, rest: Rest, runner: Runner, gate: Gate, table: ContextTable, trimmer: Trimmer,
        stdio: Stdio,
    ) -> None:  # fmt: skip
        cells = runner.cells
        library.turn_open.argtypes = [ctypes.py_object]
        library.turn_open(
            (
                cells, cells.cache, runner, gate, table.contexts, trimmer, stdio, stdio.streams, sys.__dict__,
                stdio.flooded, figures, gate.handler, _signal.getsignal, builtins.__dict__,
            )
        )  # fmt: skip
        library.turn_serve.restype = ctypes.py_object
        self._serve = library.turn_serve
        self._rest = rest
        self._is_used = False

    def serve(self, requests_fd: int, replies_fd: int) -> bytes:
        """What came and must be answered elsewhere; b"" when the host is gone."""
        # One that never ran anything has its pages for the first run, and does not rest.
        first_ms = REST_AFTER_MS if self._is_used else -1
        self._is_used = True
        frame: bytes | None
        while (frame := self._serve(requests_fd, replies_fd, first_ms, REST_AFTER_MS)) is None:
            self._rest.begin()
            first_ms = -1
        return frame
