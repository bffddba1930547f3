"""Sleep: all variables of all contexts go to one file, so that the kernel process may end; wake: they come back.

All names are saved by one pickler, so identity between names, shared memory and cycles survive. What cannot be saved
(an open file, a generator, a thread) holds the kernel back: it is named, with the reason, and nothing has changed.
Before a file counts, a forked child tries to load it: a file that cannot be loaded must be found while the variables
are still in memory. Files in memory (/tmp, the home directory) are saved beside the variables.

A file that was damaged on the disk is noticed by its checksums (sleep_file.py). Variables whose memory is damaged are left
out and named; the others come back.
"""

from __future__ import annotations

import fcntl
import gc
import io
import os
import pickle
import signal
import stat
import sys
from typing import Any, Callable

from glovebox_kernel import sleep_file
from glovebox_kernel.ambient import ambient_not_carried, ambient_restore, ambient_save
from glovebox_kernel.arrays import ArrayReducers, SpoiltError
from glovebox_kernel.byvalue import reducer_find
from glovebox_kernel.cell import CellCompiler
from glovebox_kernel.context import DEFAULT, Context, ContextTable
from glovebox_kernel.molecules import molecules_whole
from glovebox_kernel.refusal import HeldBack
from glovebox_kernel.sleep_file import SleepFileError, SleepFileReader, SleepFileWriter
from glovebox_kernel.tmpfiles import TreeSaver, tree_restore
from glovebox_kernel.trim import memory_watcher

_TRIAL_SECONDS = 120
_HELD_MAX = 100
_REASON_MAX_CHARS = 300


class SleepPickler(pickle.Pickler):
    """pickle, with our own ways for data and for what cells define (see arrays.py and byvalue.py)."""

    def __init__(self, stream: Any, arrays: ArrayReducers) -> None:
        super().__init__(stream, protocol=5)
        self._arrays = arrays
        self._reducers: dict[type, Callable[[Any], Any] | None] = {}

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        try:
            reduce = self._reducers[kind]
        except KeyError:
            reduce = self._reducers[kind] = self._arrays.find(kind) or reducer_find(kind)
        return NotImplemented if reduce is None else reduce(value)

    def dump_places(self, contexts: list[Context]) -> None:
        """Make namespaces and modules known by reference, before anything that refers to them.

        A first pickle holds a stand-in for each; in the memo the stand-in is then replaced by the real one. (dict
        offers no hook to pickle, and the memo of an Unpickler cannot be set.)
        """
        stand_ins = []
        for context in contexts:
            stand_ins += [_StandIn(context.name, False), _StandIn(context.name, True)]
        self.dump([context.name for context in contexts])
        self.dump(stand_ins)
        memo = self.memo.copy()
        for number, context in enumerate(contexts):
            for stand_in, real in zip(stand_ins[2 * number :], (context.namespace, context.module)):
                place, _ = memo.pop(id(stand_in))
                memo[id(real)] = (place, real)
        self.memo = memo


class _StandIn:
    def __init__(self, context: str, is_module: bool) -> None:
        self._arguments = (context, is_module)

    def __reduce__(self) -> Any:
        return place_restore, self._arguments


_waking: ContextTable | None = None


def place_restore(name: str, is_module: bool) -> Any:
    """Called from a sleep file: the module, or the namespace, of a context that is being filled."""
    assert _waking is not None
    context = _waking.get(name)
    return context.module if is_module else context.namespace


def kernel_sleep(
    table: ContextTable, cells: CellCompiler, path: str, tasks: list[str], trees: list[str]
) -> dict[str, Any]:
    """Write the file; returns fields of ANSWER. Raises HeldBack or OSError with nothing changed and no file left.

    `trees`: directories in memory whose files are saved too."""
    held = _obstacles(tasks)
    if held:
        raise HeldBack(held)
    gc.collect()
    contexts = list(table.contexts.values())
    writer = SleepFileWriter(path)
    saver = TreeSaver(writer)
    try:
        entries = saver.save(trees)
        size = _write(writer, contexts, cells, entries)
        trouble = _try_load(writer.fd)
        if trouble is not None:
            culprits = _find_culprits(contexts, lambda *one: _try_load_one(path, cells, *one))
            raise HeldBack(culprits or [_held("", "*", "", trouble)])
        writer.publish()
    except BaseException:
        writer.discard()
        raise
    finally:
        saver.close()
    return {
        "bytes": size,
        "names": sum(len(context.user_items()) for context in contexts),
        "files": len(entries),
        "not_carried": ambient_not_carried(),
    }


def _write(writer: SleepFileWriter, contexts: list[Context], cells: CellCompiler, entries: list[Any]) -> int:
    """The whole file; its size."""
    items = _all_items(contexts)
    try:
        _dump_all(writer, contexts, cells, entries, items)
    except Exception as error:
        culprits = _find_culprits(contexts, _try_dump_one)
        if not culprits and isinstance(error, OSError):
            raise  # the disk is to blame, not a variable
        raise HeldBack(culprits or [_held("", "*", "", error)]) from None
    held = _open_files(writer.fd)
    if held:
        raise HeldBack(held)
    return writer.finish([[context, name] for context, name, _ in items])


Items = list  # of (context's name, variable's name, value)


def _all_items(contexts: list[Context]) -> Items:
    return [(context.name, name, value) for context in contexts for name, value in context.user_items()]


def _dump_all(
    writer: SleepFileWriter, contexts: list[Context], cells: CellCompiler, entries: list[Any], items: Items
) -> None:
    pickler = SleepPickler(writer.stream, ArrayReducers(writer))
    pickler.dump({"files": entries, "not_carried": ambient_not_carried()})
    pickler.dump(ambient_save())
    pickler.dump_places(contexts)
    pickler.dump({"sources": cells.sources, "count": cells.count})
    pickler.dump([(context, name) for context, name, _ in items])
    with molecules_whole():
        for _, _, value in items:
            pickler.dump(value)


def kernel_wake(table: ContextTable, cells: CellCompiler, path: str) -> dict[str, Any]:
    """Fill the table from a file; returns fields of ANSWER. On any exception the table is as it was."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        reader = SleepFileReader(fd)
        loaded = _load_all(reader, is_trial=False)
    except SleepFileError as error:
        raise WakeError(str(error), error.names) from None
    finally:
        os.close(fd)
    if reader.spoilt:
        _drop_spoilt(loaded, reader.spoilt)
    table.contexts.clear()
    table.contexts.update(loaded.table.contexts)
    for name, source in loaded.history["sources"].items():
        cells.remember(name, source)
    cells.count = max(cells.count, loaded.history["count"])
    return {
        "names": sum(len(context.user_items()) for context in table.contexts.values()),
        "lost": loaded.lost,
        "damaged": [name if context == DEFAULT else f"{context}: {name}" for context, name in loaded.damaged],
        "files_lost": loaded.files_lost + reader.notes,
        "not_carried": loaded.not_carried,
    }


class WakeError(Exception):
    """The file cannot be used. `names` are the variables that are lost with it, as far as they are known."""

    def __init__(self, message: str, names: list[list[str]]) -> None:
        super().__init__(message)
        self.names = [name if context == DEFAULT else f"{context}: {name}" for context, name in names]


class Loaded:
    """The contents of a file: new contexts, the history of cells, and the names of lost variables."""

    def __init__(self) -> None:
        self.table = ContextTable()
        self.history: dict[str, Any] = {}
        self.lost: list[str] = []  # surroundings
        self.files_lost: list[str] = []
        self.damaged: list[tuple[str, str]] = []  # context and name of variables
        self.not_carried: list[str] = []


def _load_all(reader: SleepFileReader, is_trial: bool) -> Loaded:
    """In a trial the surroundings and the files of this process are not changed."""
    global _waking
    loaded = Loaded()
    main_before = sys.modules.get("__main__")
    unpickler = pickle.Unpickler(reader.stream)
    _waking, sleep_file.current = loaded.table, reader
    try:
        if reader.version > 1:
            beside = unpickler.load()
            loaded.not_carried = beside["not_carried"]
            if not is_trial:
                loaded.files_lost = tree_restore(beside["files"], reader)
        surroundings = unpickler.load()
        if not is_trial:
            loaded.lost = ambient_restore(surroundings)
        for name in unpickler.load():
            if name not in loaded.table.contexts:
                loaded.table.new(name)
        loaded.table.get(DEFAULT).enter()
        unpickler.load()  # the places: now namespaces and modules are known by reference
        loaded.history = unpickler.load()
        if reader.version > 1:
            _load_items(unpickler, reader, loaded)
        else:
            for name, items in unpickler.load():
                loaded.table.get(name).namespace.update(items)
    except BaseException:
        if main_before is not None:
            sys.modules["__main__"] = main_before
        raise
    finally:
        _waking = sleep_file.current = None
    return loaded


def _load_items(unpickler: pickle.Unpickler, reader: SleepFileReader, loaded: Loaded) -> None:
    names = unpickler.load()
    for number, (context, name) in enumerate(names):
        n_spoilt = reader.n_spoilt
        try:
            value = unpickler.load()
        except Exception:
            if not reader.n_spoilt:
                raise
            # Zeros in place of its data were too much for it. Later pickles refer to parts of this one by number.
            loaded.damaged += names[number:]
            return
        if reader.n_spoilt > n_spoilt:
            loaded.damaged.append((context, name))
        else:
            loaded.table.get(context).namespace[name] = value


def _drop_spoilt(loaded: Loaded, spoilt: list[Any]) -> None:
    """Takes out every variable that reaches damaged memory, also if another one was the first to bring it."""
    contexts = list(loaded.table.contexts.values())
    for context in contexts:
        for name, value in context.user_items():
            nowhere: Any = _Nowhere()
            pickler = SleepPickler(nowhere, ArrayReducers(nowhere, spoilt))
            try:
                pickler.dump_places(contexts)
                pickler.dump(value)
            except SpoiltError:
                del context.namespace[name]
                loaded.damaged.append((context.name, name))


def _open_files(own_fd: int) -> list[dict[str, str]]:
    """Files open for writing and internet connections that no variable holds: a variable would have been named."""
    held = []
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        try:
            status = os.fstat(fd)
            is_written = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # that of the listing itself
        if fd <= 2 or fd == own_fd or target.startswith("/memfd:"):
            continue
        if stat.S_ISREG(status.st_mode) and is_written:
            held.append(_held("", "*", "file", f"{target} is open for writing (descriptor {fd})"))
        elif stat.S_ISSOCK(status.st_mode) and _is_internet(fd):
            held.append(_held("", "*", "socket", f"a network connection is open (descriptor {fd})"))
    return held[:_HELD_MAX]


def _is_internet(fd: int) -> bool:
    import socket

    with socket.socket(fileno=os.dup(fd)) as copy:
        return copy.family in (socket.AF_INET, socket.AF_INET6)


def _obstacles(tasks: list[str]) -> list[dict[str, str]]:
    """State outside of variables that would be lost with the process."""
    held = []
    watcher = memory_watcher()
    if watcher is not None:
        held.append(_held("", "*", "", watcher))
    if any(signal.getitimer(which)[0] for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)):
        held.append(_held("", "*", "timer", "a timer is running (signal.setitimer or signal.alarm)"))
    if tasks:
        held.append(_held("", "*", "asyncio.Task", f"tasks are pending: {', '.join(tasks[:10])}"))
    background = sys.modules.get("glovebox_kernel.background")
    if background is not None and background.is_any_running():
        held.append(_held("", "*", "process", "a command in the background is running"))
    try:
        # None: there are children, and none has ended. ChildProcessError: there are none.
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            held.append(_held("", "*", "process", "a child process is running"))
    except ChildProcessError:
        pass
    return held


def _held(context: str, name: str, kind: str, why: object) -> dict[str, str]:
    text = str(why) or type(why).__name__
    return {"context": context, "name": name, "type": kind, "why": text[:_REASON_MAX_CHARS].replace("\0", "?")}


class _Nowhere(io.RawIOBase):
    """Counts as a writer; keeps nothing."""

    def write(self, data: Any, /) -> int:
        return len(data)

    def reserve(self, _view: memoryview) -> int:
        return 0


def _find_culprits(
    contexts: list[Context], check: Callable[[list[Context], str, str, Any], str | None]
) -> list[dict[str, str]]:
    """Look at each name alone: those that fail the check hold the kernel back."""
    held = []
    for context in contexts:
        for name, value in context.user_items():
            trouble = check(contexts, context.name, name, value)
            if trouble is not None:
                kind = type(value)
                held.append(_held(context.name, name, f"{kind.__module__}.{kind.__qualname__}", trouble))
                if len(held) >= _HELD_MAX:
                    return held
    return held


def _try_dump_one(contexts: list[Context], _context: str, _name: str, value: Any) -> str | None:
    nowhere: Any = _Nowhere()
    try:
        pickler = SleepPickler(nowhere, ArrayReducers(nowhere))
        pickler.dump_places(contexts)
        pickler.dump(value)
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def _try_load_one(
    path: str, cells: CellCompiler, contexts: list[Context], context: str, name: str, value: Any
) -> str | None:
    writer = SleepFileWriter(path)
    try:
        _dump_all(writer, contexts, cells, [], [(context, name, value)])
        writer.finish([[context, name]])
        return _try_load(writer.fd)
    finally:
        writer.discard()


def _try_load(fd: int) -> str | None:
    """Load the file in a forked child, buffers mapped; why it failed, or None."""
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_fd)
        _try_load_in_child(fd, write_fd)
    os.close(write_fd)
    with open(read_fd, "rb") as answer:
        message = answer.read(4096).decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    if status == 0:
        return None
    return "a trial of loading it failed: " + (message or f"its process ended with status {status}")


def _try_load_in_child(fd: int, write_fd: int) -> None:
    exit_code = 1
    try:
        null_fd = os.open(os.devnull, os.O_RDWR)
        os.dup2(null_fd, 1)
        os.dup2(null_fd, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_TRIAL_SECONDS)
        reader = SleepFileReader(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY), is_trial=True)
        _load_all(reader, is_trial=True)
        exit_code = 0
    except BaseException as error:
        os.write(write_fd, f"{type(error).__name__}: {error}"[:1000].encode("utf-8", "replace"))
    finally:
        os._exit(exit_code)
