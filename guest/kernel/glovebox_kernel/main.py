"""The kernel process: set-up and the loop.

Started in one of two ways:
- `main()`, with `--requests 3 --replies 4` as arguments: by exec, cold;
- `serve(kernel)` in a process forked from a nursery that called `preload([...])` and `make(fd)` before: then
  `after_fork()` first.
The loop starts no thread and holds no descriptor besides the channel and copies of 1 and 2.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Callable, NoReturn

from glovebox_kernel import channel as wire
from glovebox_kernel import figures, stdio, store
from glovebox_kernel.ambient import ambient_mark_start
from glovebox_kernel.channel import Channel, ChannelError, json_pack, json_unpack
from glovebox_kernel.command import CommandError, command_check, environment_check, environment_lent
from glovebox_kernel.context import DEFAULT, ContextError, ContextTable
from glovebox_kernel.failure import failure_take_install_hint
from glovebox_kernel.gate import Gate
from glovebox_kernel.one_shot import files_place, input_lent
from glovebox_kernel.packages import PackagesHook, packages_mark_start, packages_stale
from glovebox_kernel.program import program_become, program_is_command, program_prepare
from glovebox_kernel.refusal import HeldBack, RequestError
from glovebox_kernel.reseed import reseed
from glovebox_kernel.runner import Runner, last_forget
from glovebox_kernel.snapshots import snapshots_save
from glovebox_kernel.trim import TrimError, Trimmer, memory_release

EXIT_CHANNEL = 76  # EX_PROTOCOL
EXIT_DATA_LOST = 74  # EX_IOERR
EXIT_UNSEALED = 125

Answer = dict


def preload(names: Iterable[str]) -> dict[str, str]:
    """Import what every kernel will want, in the nursery; what could not be imported, and why."""
    failed = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


def after_fork() -> None:
    """First thing in a process forked from a nursery."""
    reseed()


class Kernel:
    """Owns the channel and all state of the kernel. One per process."""

    def __init__(self, fds: tuple[int, int]) -> None:
        self._channel = Channel(*fds)
        self._gate = Gate()
        self._stdio = stdio.Stdio()
        self._table = ContextTable()
        self._trimmer = Trimmer()
        self._runner = Runner(self._channel, self._gate, self._stdio)
        self._is_ending = False
        self.has_begun = False
        self._has_environment = self._is_hooked = False
        self._settle: Callable[[], int] | None = None
        self._execute_program: Callable[[bytes, int], object] | None = None
        self._plain_input = builtins.input
        version = sys.version.split(maxsplit=1)[0]
        self._ready = b'{"protocol":%d,"pid":%%d,"python":"%s"}' % (wire.PROTOCOL, version.encode())
        self._requests: dict[int, Callable[[dict[str, Any]], Answer]] = {
            wire.TRIM: self._trim,
            wire.SLEEP: self._sleep,
            wire.WAKE: self._wake,
            wire.CONTEXT: self._context,
            wire.PACKAGES: self._packages,
        }

    def prepare(self) -> None:
        """The part of becoming a kernel that can be done before a fork: streams, signals, builtins.

        In a nursery 1 and 2 must be of the kind that they will be, and the channel is not there yet."""
        self._gate.install()
        self._stdio.install()
        if builtins.input is not stdio.input_refuse:
            self._plain_input = builtins.input
        builtins.input = stdio.input_refuse  # type: ignore[assignment]
        builtins.display = self._runner.display  # type: ignore[attr-defined]
        builtins.load = store.load  # type: ignore[attr-defined]
        builtins.save = store.save  # type: ignore[attr-defined]
        figures.PyplotHook(self._runner.show_figures).install()
        PackagesHook.install()
        self._install_exit()
        program_prepare()
        sys.argv = [""]

    def settle_later(self, settle: Callable[[], int]) -> None:
        """The box may be shown a workspace until the first request: then this is called, or nothing is answered."""
        self._settle = settle

    def execute_by(self, execute: Callable[[bytes, int], object]) -> None:
        """What executes commands, in place of Python: it does the same, and is faster in a fork."""
        self._execute_program = execute

    def expect_descriptors(self) -> None:
        self._stdio.expect_descriptors()

    def set_on_idle(self, on_idle: Callable[[], None]) -> None:
        """What to do in each pause between two requests that lasts for channel.IDLE_AFTER_MS."""
        self._channel.on_idle = on_idle

    def enter_environment(self) -> None:
        """What depends on nothing but the environment; again, whenever another takes its place."""
        if os.environ.get("MPLBACKEND") != "Agg":
            os.environ["MPLBACKEND"] = "Agg"
        if "" not in sys.path:
            sys.path.insert(0, "")  # as in an interactive Python: the current directory, wherever that will be
        self._table.get(DEFAULT).enter()
        ambient_mark_start()
        self._has_environment = True

    def hook_forks(self) -> None:
        """A child must not print a second time what its parent had not flushed, nor send frames to the host. In a
        nursery only if Python's own hooks are not called in its kernels."""
        if not self._is_hooked:
            os.register_at_fork(before=self._stdio.flush_before_fork, after_in_child=self._channel.close)
            self._is_hooked = True

    def begin(self, has_packages: bool = True) -> None:
        """The rest, in the process that is to be the kernel."""
        if not self._has_environment:
            self.enter_environment()
        self.hook_forks()
        self._gate.pid = os.getpid()
        last_forget()
        self._stdio.begin()
        if has_packages:
            packages_mark_start()
        self.has_begun = True

    def begin_rehearsal(self) -> None:
        """In a nursery, for a kernel that only rehearses: as if prepare() had run, without its lasting effects."""
        self._stdio.install()
        self.expect_descriptors()
        self._has_environment = self._is_hooked = True

    def close(self) -> None:
        """A kernel that only rehearsed."""
        self._channel.close()

    def rehearse_cells(self, sources: Iterable[str]) -> None:
        """In a nursery: runs these as if a host had requested them, without lasting effects."""
        before = sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__
        main_module = sys.modules["__main__"]
        self._stdio.install()
        for source in sources:
            self._channel.poll()
            self.answer(wire.EXECUTE, json_pack({"id": "", "code": source}))
            self._table.drop(DEFAULT)
        self._stdio.close()
        last_forget()
        sys.modules["__main__"] = main_module
        sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__ = before  # type: ignore[misc]

    def _install_exit(self) -> None:
        """os._exit skips Python's buffers; what a run printed before it is not lost."""
        plain_exit = os._exit

        def exit_flushed(status: int) -> NoReturn:
            if os.getpid() == self._gate.pid:
                self._stdio.flush()
            plain_exit(status)

        os._exit = exit_flushed

    def serve(self) -> int:
        """Answer requests until the host closes the channel; the exit code."""
        try:
            self._channel.send(wire.READY, self._ready % self._gate.pid)
            while not self._is_ending:
                frame = self._channel.receive()
                if frame is None:
                    return 0
                self.answer(*frame)
            return 0
        except (ChannelError, BrokenPipeError, ConnectionResetError) as error:
            with contextlib.suppress(OSError):
                os.write(2, f"glovebox kernel: {error}: it ends\n".encode())
            return EXIT_CHANNEL

    def answer(self, kind: int, payload: bytes) -> None:
        """One request, to its end."""
        if self._settle is not None and kind != wire.PING:
            self._settle_now(self._settle)
        if kind == wire.EXECUTE:
            self._execute(payload)
        elif kind == wire.PING:
            self._channel.send(wire.PONG, payload)
        elif kind == wire.PROGRAM:
            self._become_program(payload)
        else:
            reply = self._handle(kind, payload)
            if reply is not None:
                self._channel.send(wire.ANSWER, json_pack(reply))

    def _settle_now(self, settle: Callable[[], int]) -> None:
        self._settle = None
        if (code := settle()) < 0:
            os.write(2, f"glovebox kernel: sealing the box: {os.strerror(-code)}: it ends\n".encode())
            os._exit(EXIT_UNSEALED)
        sys.path_importer_cache.pop(os.getcwd(), None)  # what was there before something was mounted on it

    def _become_program(self, payload: bytes) -> NoReturn:
        """Replaces this kernel. Children of the program must not send frames to the host."""
        self._gate.hold()
        if self._execute_program is not None and program_is_command(payload):
            self._channel.expect_nothing()
            self._execute_program(payload, len(payload))
        self._channel.become_input()
        self._stdio.leave()
        program_become(payload, self._channel.tell_end)

    def _execute(self, payload: bytes) -> None:
        try:
            request = json_unpack(payload)
            run_id, code = request["id"], request.get("code")
            if self._is_repeated(run_id):
                return
            context = self._table.get(request.get("context", DEFAULT))
            if "argv" in request:
                command_check(request)
            elif not isinstance(code, str):
                raise RequestError("code must be given, as text")
            elif "env" in request:
                environment_check(request)
            if "files" in request:
                files_place(request["files"], os.environ.get("WORKSPACE_DIR") or "/workspace")
        except (ValueError, KeyError, RequestError, ContextError, CommandError) as error:
            self._channel.send(wire.ANSWER, json_pack(_refusal(_id_of(payload), error)))
            return
        if "argv" in request:
            result = self._runner.run_command(run_id, request)
        else:
            if self._trimmer.is_trimmed:
                self._restore_or_die()
            is_counted = bool(request.get("store_history", True))
            failure_take_install_hint(request.get("install_hint"))
            if "env" in request or "input" in request or "stdin_text" in request or "one_shot" in request:
                ends = bool(request.get("one_shot"))
                with environment_lent(request.get("env")), self._input_lent(request):
                    result = self._runner.run(run_id, code, context, is_counted, _script(request), ends)
            else:  # most runs: two context managers would take longer than a short run
                result = self._runner.run(run_id, code, context, is_counted, _script(request))
        self._channel.send(wire.RESULT, result)

    @contextlib.contextmanager
    def _input_lent(self, request: dict[str, Any]) -> Iterator[None]:
        """Standard input for one run of code, where the host offers one."""
        token, text = request.get("input"), request.get("stdin_text")
        if isinstance(text, str):
            with input_lent(text, self._plain_input):
                yield
            return
        if token is None:
            yield
            return
        import io

        from glovebox_kernel import host_input

        token = host_input.token_check(token)
        raw = host_input.HostInput(token or "00000000", self._runner.show_quietly)
        before = sys.stdin, builtins.input
        sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", "surrogateescape")
        builtins.input = self._plain_input
        try:
            yield
        finally:
            sys.stdin, builtins.input = before
            raw.finish()

    def _restore_or_die(self) -> None:
        try:
            self._trimmer.restore()
        except OSError as error:
            os.write(2, f"glovebox kernel: trimmed data cannot be read back: {error}: variables are lost\n".encode())
            os._exit(EXIT_DATA_LOST)

    def _is_repeated(self, request_id: Any) -> bool:
        """A host that took over from another sends the request that it finds without an answer again: done once, it is
        not done twice. The answer is on its way already."""
        if not request_id or not isinstance(request_id, str):
            return False
        if request_id == self._runner.last_id:
            self._channel.send(wire.REPEATED, request_id.encode("utf-8", "replace"))
            return True
        self._runner.last_id = request_id
        return False

    def _handle(self, kind: int, payload: bytes) -> Answer | None:
        """TRIM, SLEEP, WAKE, CONTEXT, PACKAGES: an answer, unless it was answered before."""
        request_id = None
        try:
            request = json_unpack(payload)
            request_id = request.get("id")
            if self._is_repeated(request_id):
                return None
            handler = self._requests.get(kind)
            if handler is None:
                raise RequestError(f"there is no frame of type {kind}")
            return {"id": request_id, "ok": True, **handler(request)}
        except HeldBack as error:
            return {**_refusal(request_id, error), "held": error.held}
        except OSError as error:
            return {**_refusal(request_id, error), "errno": errno.errorcode.get(error.errno or 0, "")}
        except Exception as error:
            return _refusal(request_id, error)

    def _trim(self, request: dict[str, Any]) -> Answer:
        self._restore_or_die()
        snapshots_save(self._table.contexts.values())
        return self._trimmer.trim(self._table.contexts.values(), _text(request, "directory"))

    def _sleep(self, request: dict[str, Any]) -> Answer:
        self._restore_or_die()
        path = _text(request, "path")
        from glovebox_kernel import sleep  # it imports much, and most kernels never sleep

        snapshots_save(self._table.contexts.values())
        trees = [tree for tree in request.get("files", []) if isinstance(tree, str)]
        answer = sleep.kernel_sleep(self._table, self._runner.cells, path, self._pending_tasks(), trees)
        self._is_ending = bool(request.get("exit", False))
        return answer

    def _wake(self, request: dict[str, Any]) -> Answer:
        if any(context.user_items() for context in self._table.contexts.values()):
            raise RequestError("this kernel has variables: only a fresh one can be woken into")
        from glovebox_kernel import sleep

        try:
            return sleep.kernel_wake(self._table, self._runner.cells, _text(request, "path"))
        except sleep.WakeError as error:
            return {"ok": False, "error": str(error), "damaged": error.names}

    def _context(self, request: dict[str, Any]) -> Answer:
        operation = request.get("op")
        if operation == "new":
            self._table.new(_text(request, "name"))
        elif operation == "drop":
            self._restore_or_die()
            self._table.drop(_text(request, "name"))
            memory_release()
        elif operation != "list":
            raise RequestError(f"op is {operation!r}; it can be new, drop or list")
        return {"contexts": list(self._table.contexts)}

    def _packages(self, request: dict[str, Any]) -> Answer:
        names, replaced = request.get("names"), request.get("replaced", [])
        if not isinstance(names, list) or not isinstance(replaced, list):
            raise RequestError("names must be given, as a list")
        return {"stale": packages_stale(names, replaced)}

    def _pending_tasks(self) -> list[str]:
        loop = self._runner.loop
        if loop is None or loop.is_closed():
            return []
        asyncio: Any = sys.modules["asyncio"]
        return [task.get_name() for task in asyncio.all_tasks(loop)]


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value or "\0" in value:
        raise RequestError(f"{name} must be given, as text")
    return value


def _script(request: dict[str, Any]) -> tuple[str, list[str]] | None:
    """The name of the file that the code is from, and its argument vector."""
    name, arguments = request.get("file", ""), request.get("args", [])
    if not name and not arguments and "one_shot" not in request:
        return None
    if not isinstance(name, str) or not isinstance(arguments, list):
        return None
    name = name.replace("\0", "")
    return name, [name or ("-c" if "one_shot" in request else ""), *(str(argument) for argument in arguments)]


def _refusal(request_id: Any, error: BaseException) -> Answer:
    if isinstance(error, (TrimError, HeldBack, RequestError, ContextError, CommandError, OSError)):
        text = str(error)
    elif isinstance(error, KeyError):
        text = f"the request lacks {error}"
    else:
        text = f"{type(error).__name__}: {error}"
    return {"id": request_id, "ok": False, "error": text[:4000].replace("\0", "\ufffd")}


def _id_of(payload: bytes) -> Any:
    try:
        return json_unpack(payload).get("id")
    except ValueError:
        return None


def make(fds: tuple[int, int]) -> Kernel:
    """A kernel that can begin, here or in a process forked from here."""
    kernel = Kernel(fds)
    kernel.prepare()
    return kernel


def serve(kernel: Kernel) -> NoReturn:
    """Be a kernel from here on; never returns."""
    if not kernel.has_begun:
        kernel.begin()
    exit_code = kernel.serve()
    os._exit(exit_code)


def _arguments(words: list[str]) -> tuple[int, int, str]:
    if (
        len(words) == 6
        and words[::2] == ["--requests", "--replies", "--preload"]
        and words[1].isdigit()
        and words[3].isdigit()
    ):
        return int(words[1]), int(words[3]), words[5]  # as the host starts it: argparse would take 2 ms
    import argparse

    parser = argparse.ArgumentParser(prog="glovebox_kernel", description="The Python kernel of a Glovebox box.")
    parser.add_argument("--requests", type=int, default=3, help="the inherited pipe of requests (default: 3)")
    parser.add_argument("--replies", type=int, default=4, help="the inherited pipe of replies (default: 4)")
    parser.add_argument("--preload", default="", help="modules to import first, separated by commas")
    given = parser.parse_args(words)
    return given.requests, given.replies, given.preload


def main() -> None:
    from glovebox_kernel.user_process import channel_take

    channel_take()
    requests, replies, preloaded = _arguments(sys.argv[1:])
    preload(name for name in preloaded.split(",") if name)
    if sys.path and sys.path[0] == os.getcwd():
        del sys.path[0]
    serve(make((requests, replies)))
