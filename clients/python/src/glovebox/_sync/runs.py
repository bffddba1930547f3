# Generated from _aio/runs.py by tools/generate_sync.py: change that one.
"""One run, read to its end whatever becomes of the connection, and its events."""

from __future__ import annotations

import codecs
import time
from typing import TYPE_CHECKING, Any, Callable

from ..errors import BusyError, ConnectionLostError, DaemonUnavailableError, GloveboxError
from ..models import (
    EndEvent,
    ErrorEvent,
    Event,
    Logs,
    Result,
    ResultEvent,
    StartEvent,
    StderrEvent,
    StdoutEvent,
)
from . import io
from .transport import RETURN_S, Run, Transport

if TYPE_CHECKING:
    from .sandbox import Sandbox

STALLS_MAX = 10
Callback = Callable[[Any], Any]


class RunReader:
    """Messages of a run: output as text, displays, and at the end the result.

    If the connection breaks, or the daemon is restarted, it reads on from the last event: nothing is lost and
    nothing comes twice. Before the daemon has accepted the run that is impossible: it raises ConnectionLostError.
    """

    def __init__(self, transport: Transport, op: str, fields: dict[str, Any]) -> None:
        self._transport = transport
        self._op = op
        self._fields = fields
        self._run: Run | None = None
        self._number = 1  # of the event that comes next, or of which a part has come
        self._part = 0  # how much of it: bytes on a socket, characters over HTTP
        self._skip = 0  # how much of it comes again
        self._broke_at = (0, 0)  # where the connection broke last, and how often just there
        self._stalls = 0
        self._displays: list[Any] = []
        self._decoders: dict[str, Any] = {}
        self.run_id: str | None = None
        self.result: dict[str, Any] | None = None
        self.logs = Logs()

    def message(self) -> tuple[str, Any]:
        """("start", id), ("stdout", text), ("stderr", text), ("display", bundle) or ("result", result)."""
        while True:
            if self._run is None:
                self._run = self._transport.run(self._op, self._fields)
            try:
                kind, number, is_last, data = self._run.message()
            except ConnectionLostError as error:
                self._read_on(error)
                continue
            if kind in ("stdout", "stderr"):
                text = self._take(kind, number, is_last, data)
                if text:
                    (self.logs.stdout if kind == "stdout" else self.logs.stderr).append(text)
                    return kind, text
            elif kind == "start":
                if self.run_id is None:
                    self.run_id = data
                    return kind, data
            elif kind == "display":
                self._displays.append(data)
                return kind, data
            else:
                return self._finish(data)

    def _take(self, kind: str, number: int, is_last: bool, data: bytes | str) -> str:
        """The text of a piece, without what came before the connection broke."""
        if number != self._number:
            self._number, self._part, self._skip = number, 0, 0
        self._part += len(data)
        if self._skip:
            cut = min(self._skip, len(data))
            self._skip -= cut
            self._part -= cut
            data = data[cut:]
        if is_last:
            self._number, self._part = number + 1, 0
        if isinstance(data, str):
            return data
        decoder = self._decoders.get(kind)
        if decoder is None:
            if data.isascii():
                return data.decode()
            decoder = self._decoders[kind] = codecs.getincrementaldecoder("utf-8")("replace")
        return str(decoder.decode(data))

    def _finish(self, result: dict[str, Any]) -> tuple[str, Any]:
        for kind, decoder in self._decoders.items():
            rest = decoder.decode(b"", True)
            if rest:
                (self.logs.stdout if kind == "stdout" else self.logs.stderr).append(rest)
        self.result = result
        return "result", result

    def _read_on(self, error: ConnectionLostError) -> None:
        self.close()
        place = (self._number, self._part)
        self._stalls = self._stalls + 1 if place == self._broke_at else 0
        self._broke_at = place
        if self._stalls >= STALLS_MAX:
            raise ConnectionLostError(
                f"{error.message}; the connection broke {STALLS_MAX} times at the same place of the run's output; "
                "is there a proxy that cuts it? The run goes on"
            ) from error
        if self.run_id is None or "session" not in self._fields or self._op == "session.install":
            raise ConnectionLostError(
                f"{error.message}; whether the run began is not known: look at its effects before you run it again"
            ) from error
        self._op = "run.read"
        self._fields = {"session": self._fields["session"], "run": self.run_id, "from": self._number}
        self._skip = self._part
        deadline = time.monotonic() + RETURN_S
        while True:
            try:
                self._run = self._transport.run(self._op, self._fields)
                return
            except (ConnectionLostError, DaemonUnavailableError, BusyError):
                if time.monotonic() > deadline:
                    raise
                io.sleep(0.1)

    def cancel(self) -> None:
        """Interrupts the run, if it is on."""
        self.close()
        if self.run_id is None or self.result is not None or "session" not in self._fields:
            return
        try:
            self._transport.ask("run.cancel", {"session": self._fields["session"], "run": self.run_id})
        except GloveboxError:
            pass  # it is over, or the daemon is: there is nothing left to interrupt

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def displays_missed(self) -> list[dict[str, Any]]:
        """What was shown while the connection was broken: the result has it all."""
        seen = list(self._displays)
        missed = []
        for display in (self.result or {}).get("displays") or []:
            if display in seen:
                seen.remove(display)
            else:
                missed.append(display)
        return missed


def run_to_end(
    reader: RunReader,
    on_stdout: Callback | None = None,
    on_stderr: Callback | None = None,
    on_display: Callback | None = None,
) -> dict[str, Any]:
    """The result. An interrupt or cancellation of this call interrupts the run as well."""
    try:
        while True:
            kind, data = reader.message()
            if kind == "stdout":
                if on_stdout is not None:
                    io.call(on_stdout, data)
            elif kind == "stderr":
                if on_stderr is not None:
                    io.call(on_stderr, data)
            elif kind == "display":
                if on_display is not None:
                    io.call(on_display, data)
            elif kind == "result":
                if on_display is not None:
                    for missed in reader.displays_missed():
                        io.call(on_display, missed)
                return data  # type: ignore[no-any-return]
    except GloveboxError:
        reader.close()
        raise
    except BaseException:
        io.shield(reader.cancel)
        raise


class EventStream:
    """The events of one run, to be iterated over: what `stream()` returns.

    The last one is an EndEvent with the whole Execution. Closing it before that (or leaving its `with` block)
    interrupts the run. Its connection may break and the daemon may be restarted meanwhile: the events go on.
    """

    def __init__(self, sandbox: Sandbox, reader: RunReader) -> None:
        self._sandbox = sandbox
        self._reader = reader
        self._ready: list[Event] = []
        self._is_over = False

    @property
    def run_id(self) -> str | None:
        """The run's id, once it was accepted."""
        return self._reader.run_id

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> Event:
        if self._ready:
            return self._ready.pop(0)
        if self._is_over:
            raise StopIteration
        try:
            kind, data = self._sandbox._guard(self._reader.message)
        except GloveboxError:
            self._is_over = True
            self._reader.close()
            raise
        except BaseException:
            io.shield(self.close)
            raise
        if kind == "stdout":
            return StdoutEvent(data)
        if kind == "stderr":
            return StderrEvent(data)
        if kind == "start":
            return StartEvent(data)
        if kind == "display":
            return ResultEvent(Result(data))
        self._end()
        return self._ready.pop(0)

    def _end(self) -> None:
        self._is_over = True
        execution = self._sandbox._finish(self._reader)
        self._ready = [ResultEvent(Result(missed)) for missed in self._reader.displays_missed()]
        self._ready += [ResultEvent(result) for result in execution.results if result.is_main_result]
        if execution.error:
            self._ready.append(ErrorEvent(execution.error))
        self._ready.append(EndEvent(execution))

    def close(self) -> None:
        """Interrupts the run unless it is over, and gives the connection back."""
        if not self._is_over:
            self._is_over = True
            self._reader.cancel()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
