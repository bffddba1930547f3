"""A forked kernel becomes a program: what `python3 script.py` would be in this box, or any other command.

The caller of `glovebox run` sends PROGRAM; its streams are the pipes that the kernel has. Python code runs here, in the
interpreter that was forked: `-c CODE`, `-m MODULE`, a file, or the text on standard input (`-`). Its argument vector,
streams, `__main__`, exit status and last output are those of a fresh interpreter. Where a fork cannot be the same as a fresh interpreter (a file beside
the script has the name of a module that is imported already; a variable that the interpreter reads at its start), a
fresh one is executed in this process instead. Commands are executed, too.

How it ended is reported twice: by ENDED, which comes first, and by the wait status of the process.
"""

from __future__ import annotations

import _frozen_importlib
import _frozen_importlib_external
import _signal
import atexit
import builtins
import contextlib
import gc
import io
import os
import signal
import sys
import weakref
from types import ModuleType, TracebackType
from typing import Any, Callable, NoReturn

from glovebox_kernel import extras

KERNEL_PATH = "/opt/glovebox/kernel"
WORKSPACE = "/workspace"
EXIT_FLUSH = 120  # what Python says when its last output could not be written
# Read by the interpreter or by preloaded libraries when they start: with one of them given, a fork would not know it.
_START_PREFIXES = (
    "PYTHON", "LD_", "GLIBC_", "MALLOC_", "LC_", "LANG", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "BLIS_", "MKL_", "NUMEXPR_",
    "VECLIB_", "ARROW_", "LOKY_", "JOBLIB_", "POLARS_", "RAYON_", "MPL", "MATPLOTLIB", "XDG_", "NPY_", "NUMPY_", "PANDAS_",
    "SKLEARN_", "SCIPY_", "RDBASE", "HOME", "TZ",
)  # fmt: skip
_OWN_VARIABLES = ("DF_BYTES", "NP_BYTES")  # a kernel's, not a program's

# `signal` makes members of an enumeration of all numbers, which takes longer than the call (as in gate.py).
_SIGINT, _SIG_FLUSH, _SIG_DFL, _SIG_UNBLOCK = map(
    int, (signal.SIGINT, signal.SIGRTMAX - 3, signal.SIG_DFL, signal.SIG_UNBLOCK)
)
_ENDING = int(signal.SIGPIPE), int(signal.SIGXFSZ), _SIGINT  # Python ignores or handles them, other programs do not

_plain_input, _plain_exit = builtins.input, os._exit
_encoding, _errors = sys.stdout.encoding, sys.stdout.errors


_our_modules: list[str] = []
_hidden_modules: list[ModuleType | None] = []  # kept: to free them would write to 60 pages that are shared
_leave = os._exit
_exec: Callable[[str, list[str], Any], object] = os.execvpe


def program_prepare() -> None:
    """In the process that kernels are forked from, when all is imported: to look through all modules would write to
    their names, and so to much memory that is shared until then."""
    _our_modules[:] = [name for name in sys.modules if name.partition(".")[0] == "glovebox_kernel"]


def program_rehearse() -> None:
    """In a nursery: do what nearly every program does, without becoming one, so that the interpreter's caches have it."""
    for number in range(3):
        stream_open(number, "<practice>").detach()
    space: dict[str, Any] = ModuleType("__main__").__dict__
    exec(compile("print(end='')\nx = 1", "<string>", "exec", dont_inherit=True), space)
    Request(b"python\0\x002\0-c\0pass\0").needs_fresh()
    _is_shadowed(["", "-c"])
    if "PYTHONPATH" in os.environ:
        os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"]
    with contextlib.suppress(OSError):
        os.execve("/", ["/"], os.environ)  # a directory: refused when all that an execution needs was made
    _ = [sys.modules.get(name) for name in _our_modules], [finder for finder in sys.meta_path if not _is_ours(finder)]
    space_clear(space)
    gc.collect()


def program_set_end(end: Callable[[], object]) -> None:
    """In a process that only tries what a kernel does: called in place of its end."""
    global _leave, _exec
    _leave = lambda _status: end()  # type: ignore[assignment]
    _exec = lambda _path, _argv, _environment: end()


class Request:
    """PROGRAM: texts, each ended by NUL: "python" or "exec", where it starts ("": the workspace), the number of
    arguments, these, and variables."""

    def __init__(self, payload: bytes) -> None:
        texts = payload.split(b"\0")
        self.is_python = texts[0] == b"python"
        self.directory = texts[1]
        n_arguments = int(texts[2])
        self.argv = [os.fsdecode(text) for text in texts[3 : 3 + n_arguments]]
        self.variables = dict(text.split(b"=", 1) for text in texts[3 + n_arguments : -1])
        if self.is_python:
            self.argv.insert(0, sys.executable)
        elif not self.argv[0]:
            self.argv[0] = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"

    def needs_fresh(self) -> bool:
        """True if a variable is given that the interpreter reads at its start."""
        return any(name.decode("ascii", "replace").startswith(_START_PREFIXES) for name in self.variables)


def program_become(payload: bytes, tell_end: Callable[[bytes], None]) -> NoReturn:
    """In a kernel that never ran anything: be this program, to its end."""
    request = Request(payload)
    _enter_environment(request)
    if request.directory:
        with contextlib.suppress(OSError):  # an image that names a directory which it does not have
            os.chdir(request.directory)

    def start_fresh() -> NoReturn:
        _execute(request.argv, tell_end)

    if not request.is_python or request.needs_fresh() or _is_shadowed(request.argv):
        start_fresh()
    _be_plain()
    _end(_Program(request.argv, start_fresh).run(), tell_end)


def _enter_environment(request: Request) -> None:
    """The environment of a box without a kernel."""
    parts = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != KERNEL_PATH]
    for name in _OWN_VARIABLES:
        os.environ.pop(name, None)
    os.environ["PYTHONPATH"] = os.pathsep.join([WORKSPACE, *parts])
    for name, value in request.variables.items():
        os.environb[name] = value
    sys.path[:] = [
        WORKSPACE, *parts, *(part for part in sys.path if part not in (*parts, "", KERNEL_PATH, WORKSPACE))
    ]  # fmt: skip


def _is_shadowed(argv: list[str]) -> bool:
    """True if an import would find a file before a module that is already imported."""
    directories = {WORKSPACE}
    if len(argv) > 1 and not argv[1].startswith("-"):
        directories.add(os.path.dirname(os.path.realpath(argv[1])))
    for directory in directories:
        with contextlib.suppress(OSError):
            for name in os.listdir(directory):
                stem = name.partition(".")[0]
                if stem in sys.modules and stem not in sys.builtin_module_names:
                    return True
    return False


def _execute(argv: list[str], tell_end: Callable[[bytes], None]) -> NoReturn:
    if argv[0] == sys.executable:
        os.environ["PYTHONPATH"] = os.pathsep.join((extras.START_PATH, os.environ["PYTHONPATH"]))
    for number in _ENDING:
        _signal.signal(number, _SIG_DFL)
    _let_interrupts_through()
    try:
        _exec(argv[0], argv, os.environ)
    except OSError as error:
        tell_end(b"failed %d" % (error.errno or 0))
        _plain_exit(127)


def _let_interrupts_through() -> None:
    """The kernel held them back (Gate.hold): one that has arrived is handled now."""
    _signal.pthread_sigmask(_SIG_UNBLOCK, (_SIGINT,))


def _be_plain() -> None:
    """Undo the changes that make an interpreter a kernel."""
    _signal.signal(_SIGINT, _signal.default_int_handler)
    _signal.signal(_SIG_FLUSH, _SIG_DFL)
    builtins.input, os._exit = _plain_input, _plain_exit
    with contextlib.suppress(AttributeError):
        del builtins.display  # type: ignore[attr-defined]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not _is_ours(finder)]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = stream_open(number, f"<{name}>")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    extras.extras_install()
    _hidden_modules[:] = [sys.modules.pop(name, None) for name in _our_modules]


def _is_ours(finder: Any) -> bool:
    kind = finder if isinstance(finder, type) else type(finder)
    return kind.__module__.partition(".")[0] == "glovebox_kernel"


def stream_open(fd: int, name: str) -> io.TextIOWrapper:
    """As the interpreter makes them at its start, in a box: PYTHONUNBUFFERED is set."""
    errors = "backslashreplace" if fd == 2 else _errors
    if fd == 0:
        buffer: Any = open(fd, "rb", closefd=False)  # noqa: SIM115
        buffer.raw.name = name
    else:
        buffer = open(fd, "wb", 0, closefd=False)  # noqa: SIM115
        buffer.name = name
    stream = io.TextIOWrapper(buffer, _encoding, errors, newline="\n", write_through=True)
    stream.mode = "r" if fd == 0 else "w"  # type: ignore[misc]
    return stream


class _Program:
    """One of the ways in which an interpreter finds its program."""

    def __init__(self, argv: list[str], start_fresh: Callable[[], NoReturn]) -> None:
        self._argv = argv
        self._start_fresh = start_fresh
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = argv
        self._main = ModuleType("__main__")
        sys.modules.pop("__main__", None)  # the last from now on: what comes after it is the program's
        sys.modules["__main__"] = self._main
        space = self._main.__dict__
        space["__annotations__"] = {}
        space["__builtins__"] = builtins

    def run(self) -> int:
        """To its end, and what an interpreter does at its end; the exit status."""
        how = self._argv[1]
        error: BaseException | None = None
        try:
            _let_interrupts_through()
            if how == "-c":
                self._run_text(self._argv[2], "<string>", ["-c", *self._argv[3:]])
            elif how == "-":
                self._main.__dict__.update(__file__="<stdin>", __cached__=None)
                self._run_text(_read_all(0), "<stdin>", self._argv[1:])
            elif how == "-m":
                self._run_module(self._argv[2], self._argv[3:])
            else:
                self._run_file(how, self._argv[1:])
        except BaseException as caught:
            error = caught
        status = _report(error) if error is not None else 0  # out of the handler: what fails now has no context
        del error
        if how not in ("-c", "-m"):  # as the interpreter does when it has run a file
            for name in ("__file__", "__cached__"):
                self._main.__dict__.pop(name, None)
        return self._finish(status)

    def _run_text(self, text: str | bytes, name: str, argv: list[str]) -> None:
        sys.argv = argv
        sys.path.insert(0, "")
        self._main.__loader__ = _frozen_importlib.BuiltinImporter
        code = compile(text, name, "exec", dont_inherit=True)
        exec(code, self._main.__dict__)

    def _run_file(self, path: str, argv: list[str]) -> None:
        sys.argv = argv
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
        space = self._main.__dict__
        space["__loader__"] = _frozen_importlib_external.SourceFileLoader("__main__", path)
        space["__file__"] = path
        space["__cached__"] = None
        try:
            with open(path, "rb") as file:
                text = file.read()
            code = compile(text, path, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            self._start_fresh()  # which reads files in another way, and has other words for what is wrong
        exec(code, space)

    def _run_module(self, name: str, arguments: list[str]) -> None:
        import runpy

        sys.argv = ["-m", *arguments]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]

    def _finish(self, status: int) -> int:
        threading: Any = sys.modules.get("threading")
        try:
            if threading is not None:
                threading._shutdown()
        except BaseException as error:
            _report(error)
        with contextlib.suppress(BaseException):  # the exception was reported
            atexit._run_exitfuncs()
        _flush()
        self._forget_modules()
        return status if _flush() else EXIT_FLUSH

    def _forget_modules(self) -> None:
        """Objects of the program end before it does: their `__del__` is called, as at the end of an interpreter."""
        names = []
        for name in reversed(sys.modules):
            names.append(name)
            if name == "__main__":
                break
        modules = [
            weakref.ref(sys.modules.pop(name)) for name in reversed(names) if isinstance(sys.modules[name], ModuleType)
        ]
        del self._main
        gc.collect()
        for reference in reversed(modules):
            module = reference()
            if module is not None:
                space_clear(module.__dict__)


def space_clear(space: dict[str, Any]) -> None:
    """As Python clears a module: private names first."""
    for is_private in (True, False):
        for name in list(space):
            is_first = isinstance(name, str) and name[:1] == "_" and name[1:2] != "_"
            if space[name] is not None and name != "__builtins__" and (is_first or not is_private):
                space[name] = None


def _read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _own_trace(error: BaseException) -> TracebackType | None:
    """The traceback without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    return trace


def _call_hook(error: BaseException, trace: TracebackType | None) -> BaseException | None:
    """Calls sys.excepthook; returns the exception that it raised, if any."""
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException as other:
        return other
    return None


def _report(error: BaseException) -> int:
    """As an interpreter does with an uncaught exception; the exit status, less than 0 for a signal."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            print(code, file=sys.stderr)
        return 1
    trace = _own_trace(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    other = _call_hook(error, trace)
    if isinstance(other, SystemExit):
        return _report(other)
    if other is not None:
        with contextlib.suppress(Exception):
            print("Error in sys.excepthook:", file=sys.stderr)
            sys.__excepthook__(type(other), other, _own_trace(other))
            print("\nOriginal exception was:", file=sys.stderr)
            sys.__excepthook__(type(error), error, trace)
    return -int(signal.SIGINT) if isinstance(error, KeyboardInterrupt) else 1


def _flush() -> bool:
    is_good = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            is_good = is_good and stream is not sys.stdout
    return is_good


def _end(status: int, tell_end: Callable[[bytes], None]) -> NoReturn:
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    tell_end(b"exit %d" % status)
    _leave(status)
