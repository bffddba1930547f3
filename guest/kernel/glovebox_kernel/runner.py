"""One run: compile a cell, execute it in its context, and report how it ended.

The outcome of a run is data (the payload of RESULT), whatever the code did: an exception, `sys.exit(3)`, an interrupt.
The end of the process itself (os._exit, a signal, a crash) is not reported from here: the host sees it.
"""

from __future__ import annotations

import builtins
import os
import sys
from typing import TYPE_CHECKING, Any, Optional

from glovebox_kernel import figures, mime
from glovebox_kernel.cell import CO_COROUTINE, Cell, CellCompiler
from glovebox_kernel.channel import DISPLAY, REPLY_MAX_BYTES, Channel, json_pack
from glovebox_kernel.command import command_run
from glovebox_kernel.context import Context
from glovebox_kernel.failure import failure_describe, failure_name_only
from glovebox_kernel.gate import Gate
from glovebox_kernel.one_shot import exit_code_clip, exit_handlers_call, space_begin, space_end, threads_join
from glovebox_kernel.outcome import Outcome, outcome_pack
from glovebox_kernel.stdio import Stdio

if TYPE_CHECKING:
    import asyncio

EXIT_INTERRUPTED = 130

_modules = sys.modules
_builtins = builtins.__dict__
LAST = "__glovebox_last__"  # beside `_`: what we have put there
Script = Optional[tuple[str, list[str]]]


def last_forget() -> None:
    """After a rehearsal: clears `_`."""
    if _builtins.get("_") is _builtins.pop(LAST, None):
        _builtins.pop("_", None)


class Runner:
    def __init__(self, channel: Channel, gate: Gate, stdio: Stdio) -> None:
        self.cells = CellCompiler()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._channel = channel
        self._gate = gate
        self._stdio = stdio
        self.run_id: Any = None
        self.last_id = ""  # of the last request of any kind: main.Kernel
        self.count = 0
        self.displays = 0
        self._figures: list[str] = []
        self._shown: Any = None

    def run(
        self, run_id: Any, source: str, context: Context, is_counted: bool = True, script: Script = None,
        ends: bool = False,
    ) -> bytes:  # fmt: skip
        """Execute; everything printed has left the process when this returns. `script` is a file's name and its
        argument vector. With `ends`, it is the last run of this interpreter."""
        self.run_id = run_id
        self.displays = 0
        self.count += is_counted
        _modules["__main__"] = context.module
        if ends:
            space_begin(context.namespace)
        if script is None:
            bundle, failure = self._gate.run_guarded(self._execute, source, context.namespace)
        else:
            bundle, failure = self._gate.run_guarded(self._execute_script, source, context.namespace, script)
        if os.getpid() != self._gate.pid:
            self._end_child(failure)
        if figures.registry:
            failure = self._finish_figures(failure)
        if ends:
            failure = self._finish_program(failure, context.namespace)
        payload = outcome_pack(self._outcome(bundle, failure))
        if failure is not None:
            # The traceback holds frames, and they hold the user's data: release it before the host gets the result.
            failure.__traceback__ = None
            failure = None
        self._shown = None
        if self._figures:
            self._figures = []
        self._stdio.flush()
        self._gate.repair()
        return payload

    def run_command(self, run_id: Any, request: dict[str, Any]) -> bytes:
        """Run a command to its end; its exit status is the run's."""
        self.run_id = run_id
        self.displays = 0
        self._figures = []
        self._stdio.flush()
        code, failure = self._gate.run_guarded(command_run, request, self.show_quietly)
        outcome = self._outcome(None, failure)
        if isinstance(failure, KeyboardInterrupt):  # as in a shell; the traceback would be of this kernel's own code
            outcome = outcome._replace(error=None)
        if failure is None and code != 0:
            outcome = outcome._replace(status="error", exit_code=code)
        self._gate.repair()
        return outcome_pack(outcome)

    def _execute_script(self, source: str, namespace: dict[str, Any], script: Script) -> mime.Bundle | None:
        """As a program would see it: its name in tracebacks, `__file__`, and its arguments; all three for this run."""
        name, argv = script or ("", [""])
        cell = self.cells.compile(source, name or None)
        before = sys.argv, namespace.get("__file__")
        sys.argv = argv
        if name:
            namespace["__file__"] = os.path.join(os.environ.get("WORKSPACE_DIR") or "/workspace", name)
        try:
            return self._evaluate(cell, namespace)
        finally:
            sys.argv = before[0]
            if before[1] is not None:
                namespace["__file__"] = before[1]
            else:
                namespace.pop("__file__", None)

    def _execute(self, source: str, namespace: dict[str, Any]) -> mime.Bundle | None:
        return self._evaluate(self.cells.cache.get(source) or self.cells.compile(source), namespace)

    def _evaluate(self, cell: Cell, namespace: dict[str, Any]) -> mime.Bundle | None:
        if cell.is_async:
            value = self._await(_evaluate_async(cell, namespace))
        else:
            if cell.body is not None:
                eval(cell.body, namespace)
            value = eval(cell.last, namespace) if cell.last is not None else None
        return self._show(value)

    def _show(self, value: Any) -> mime.Bundle | None:
        if value is None:
            return None
        if _builtins.get("_") is _builtins.get(LAST):  # else it is another's, gettext's for instance
            _builtins[LAST] = _builtins["_"] = value
        bundle = mime.bundle_make(value)
        if "image/png" in bundle and figures.is_figure(value):
            self._shown = value
        return bundle

    def _await(self, coroutine: Any) -> Any:
        """Top-level await: one event loop for the kernel's life, so that tasks started in a cell go on in the next."""
        import asyncio  # imported at first use

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            if not task.done():
                task.cancel()
                self.loop.run_until_complete(asyncio.wait([task]))
            raise

    def _outcome(self, bundle: mime.Bundle | None, failure: BaseException | None) -> Outcome:
        status, exit_code, error = "ok", 0, None
        if failure is not None:
            bundle = None
            status, exit_code = _classify(failure)
            if status == "exit":
                self._tell_exit_message(failure)
            else:
                error, second = self._gate.run_guarded(failure_describe, failure)
                if second is not None:
                    error = failure_name_only(failure)
        return Outcome(self.run_id, status, exit_code, self.count, bundle, self.displays, error, self._figures)

    def _tell_exit_message(self, failure: BaseException) -> None:
        code = getattr(failure, "code", None)
        if code is not None and not isinstance(code, int):
            self._gate.run_guarded(lambda: print(code, file=sys.stderr))

    def _end_child(self, failure: BaseException | None) -> None:
        """A cell called os.fork() and its child came back here: it must not answer in the kernel's place."""
        exit_code = 0
        if failure is not None:
            status, exit_code = _classify(failure)
            if status == "error":
                self._gate.run_guarded(lambda: sys.stderr.write(failure_describe(failure)["traceback"]))
        self._stdio.flush()
        os._exit(exit_code & 0xFF)

    # Displays.

    def display(self, *values: Any, raw: bool = False, **_options: Any) -> None:
        """Show values now, as MIME bundles."""
        for value in values:
            self._send_display(mime.bundle_of_raw(value) if raw else mime.bundle_make(value))

    def show_figures(self, *_args: Any, **_options: Any) -> None:
        """`plt.show()`: every open figure is shown and closed."""
        try:
            for figure in figures.figures_open()[: figures.FIGURES_MAX]:
                png = figures.figure_png(figure)
                path = figures.figure_save(png)
                if path is not None:
                    self._figures.append(path)
                if figure is not self._shown:
                    self._send_display(mime.bundle_of_png(png, repr(figure)))
        finally:
            figures.figures_close()

    def show_quietly(self, bundle: mime.Bundle) -> None:
        """A message for the client program: it does not count as a display of the run."""
        if self._channel.fd >= 0:
            frame = json_pack({"id": self.run_id, "data": bundle})
            self._stdio.flush()
            with self._gate:
                self._channel.send(DISPLAY, frame)

    def _send_display(self, bundle: mime.Bundle) -> None:
        if self._channel.fd < 0:
            # A forked child of a cell: there is no host to show it to.
            print(bundle.get("text/plain", ""))
            return
        frame = json_pack({"id": self.run_id, "data": bundle})
        if len(frame) > REPLY_MAX_BYTES:
            frame = json_pack({"id": self.run_id, "data": mime.bundle_shrink(bundle)})
        self._stdio.flush()
        with self._gate:
            self._channel.send(DISPLAY, frame)
        self.displays += 1

    def _finish_figures(self, failure: BaseException | None) -> BaseException | None:
        """The end of a cell shows what is still open, also after an error; an interrupted run shows nothing more."""
        if isinstance(failure, (KeyboardInterrupt, SystemExit)):
            self._gate.run_guarded(figures.figures_close)
            return failure
        _, second = self._gate.run_guarded(self.show_figures)
        return failure or second

    def _finish_program(self, failure: BaseException | None, space: dict[str, Any]) -> BaseException | None:
        """What an interpreter does at its end. Only an interrupt changes how the run ended."""
        _, second = self._gate.run_guarded(threads_join)
        _, third = self._gate.run_guarded(exit_handlers_call)
        _, fourth = self._gate.run_guarded(space_end, space)
        for late in (second, third, fourth):
            if isinstance(late, KeyboardInterrupt):
                failure = late
        if isinstance(failure, SystemExit):
            failure.code = exit_code_clip(failure.code)
        return failure


async def _evaluate_async(cell: Cell, namespace: dict[str, Any]) -> Any:
    """A cell that awaits anywhere runs inside the event loop from its first line on."""
    value: Any = None
    for code in (cell.body, cell.last):
        if code is not None:
            value = eval(code, namespace)
            if code.co_flags & CO_COROUTINE:
                value = await value
    return value if cell.last is not None else None


def _classify(failure: BaseException) -> tuple[str, int]:
    if isinstance(failure, SystemExit):
        code = failure.code
        if code is None:
            return "exit", 0
        return "exit", code if isinstance(code, int) and -(2**31) <= code < 2**31 else 1
    if isinstance(failure, KeyboardInterrupt):
        return "interrupted", EXIT_INTERRUPTED
    return "error", 1
