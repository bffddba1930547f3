"""The sandbox: code whose variables stay, commands, files."""

from __future__ import annotations

import builtins
import os
import warnings
import weakref
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Callable, NoReturn, TypeVar

from .. import _values
from .._cleanup import remove_quietly
from .._options import Mounts, Network, Size, as_owner, create_fields, env_of, timeout_ms
from .._place import find_target
from ..errors import (
    FileMissingError,
    GloveboxError,
    InstallError,
    InvalidArgumentError,
    NotFoundError,
    SandboxClosedError,
    SandboxExistsError,
    SandboxNotFoundError,
    TransferError,
    closed_error,
)
from ..models import Execution, ExecutionError, InstallResult, Metrics, Result, SandboxInfo
from . import io
from .artifacts import AsyncArtifacts
from .client import AnyTransport, transport_for
from .commands import AsyncCommands
from .files import AsyncFiles
from .runs import AsyncEventStream, AsyncRunReader, run_to_end

T = TypeVar("T")
_INSTALL_HINT = "sandbox.install() with"  # before the name of a package, in a traceback


class AsyncSandbox:
    """A sealed box with a Python whose variables stay, a shell and files.

        async with await AsyncSandbox.create() as sandbox:
            await sandbox.run_code("x = 41")
            print((await sandbox.run_code("x + 1")).text)

    `files`, `commands` and `artifacts` are its parts. Many tasks and threads may use it at a time: the daemon
    executes the runs in order. If no daemon is running, one is started.

    A sandbox without a name is removed with its object: at the end of the `with` block, by `kill()`, by garbage
    collection, or when the program ends. One with a name stays, hibernated when idle, until
    it is killed.
    """

    def __init__(
        self, transport: AnyTransport | None = None, info: SandboxInfo | None = None, is_owner: bool = False,
        is_nameless: bool = False, **unknown: NoReturn,
    ) -> None:  # fmt: skip
        """Not to be called: use `create` or `connect`."""
        if transport is None or info is None or unknown:
            raise TypeError(
                f"{type(self).__name__}(…) makes no sandbox: {type(self).__name__}.create(…) makes one, "
                f"{type(self).__name__}.connect(name) finds one that exists"
            )
        self._transport = transport
        self._name = info.name
        self._id = info.id
        self._is_owner = is_owner
        self._is_closed = False
        self._isolation: dict[str, Any] | None = None
        self._finalizer = (
            weakref.finalize(self, remove_quietly, transport.target, info.name, os.getpid()) if is_nameless else None
        )

    # ---- making and finding ----

    @classmethod
    async def create(
        cls, name: str | None = None, *,
        memory: Size | None = None, cpus: float | None = None, timeout: float | None = None,
        network: Network | None = None, mounts: Mounts | None = None, packages: Sequence[str] = (),
        preload: Sequence[str] = (), env: Mapping[str, str] | None = None, engine: str | None = None,
        image: str | None = None, mode: str | None = None, pids: int | None = None, disk: Size | None = None,
        tmp: Size | None = None, workspace: str | os.PathLike[str] | None = None,
        data: str | os.PathLike[str] | None = None, users: bool | None = None, allow_weaker: bool | None = None,
        exist_ok: bool = False,
        socket: str | os.PathLike[str] | None = None, url: str | None = None, api_key: str | None = None,
        start: bool | None = None,
    ) -> AsyncSandbox:  # fmt: skip
        """Creates a sandbox. The daemon chooses defaults; `info().limits` shows them.

        - `name`: letters, digits, `.`, `_`, `-`. A sandbox with a name survives this program. If one of this name
          exists, SandboxExistsError is raised; with `exist_ok=True` it is returned unchanged.
        - `memory`, `disk`, `tmp`: bytes, or text such as `"1g"`; `cpus`: processors; `pids`: processes;
          `timeout`: seconds that one run may take.
        - `network`: hosts that it may reach, such as `["api.example.org:443", ".example.net"]`; True for every public
          host, if the daemon allows that. By default there is no network.
        - `mounts`: `{"/srv/data": "/data"}`, or `["/srv/data:/data:rw"]`; `data`: a directory shown read-only as
          /data; `workspace`: a directory shown as /workspace, read and written. The daemon's policy applies to all.
        - `packages`: installed before this returns, as by `install()`; `preload`: modules imported before it returns.
        - `env`: environment variables; `image`: an imported image; `engine`: `"native"`, `"docker"`,
          `"podman"` or `"remote"`, as the daemon has them.
        - `users`: True gives it root and other users, as which `commands.run(…, user="root")` runs commands. Code still
          runs as the sandbox's own user. Needs a daemon that runs as root, and the engine `"native"`. Users, and files
          outside of /workspace, last until the sandbox restarts.
        - `allow_weaker`: run even if this host cannot enforce everything.
        - `socket`, or `url` and `api_key`: which daemon. By default the running one, or one that is started
          (`start=False` forbids that).
        """
        fields = create_fields(
            memory, cpus, timeout, network, mounts, env, engine, image, mode, pids, disk, tmp, workspace, data,
            allow_weaker, users,
        )  # fmt: skip
        transport = transport_for(find_target(socket, url, api_key, start))
        chosen = f"sandbox-{os.urandom(6).hex()}" if name is None else name
        answer = await transport.ask("session.create", {"session": chosen, **as_owner(fields, transport.target)})
        is_new = answer.get("created") is True
        if not is_new and not exist_ok:
            raise SandboxExistsError(
                f"there is a sandbox {chosen!r} already; use it with Sandbox.connect({chosen!r}), or say exist_ok=True"
            )
        if answer.get("unchanged"):
            names = ", ".join(answer["unchanged"])
            warnings.warn(f"sandbox {chosen!r} was there already and keeps its own {names}", stacklevel=2)
        sandbox = cls(transport, SandboxInfo(answer), is_new, is_new and name is None)
        try:
            if packages:
                await sandbox.install(*packages)
            for module in preload:
                await sandbox._evaluate(f"__import__('importlib').import_module({module!r}) and None")
        except BaseException:
            if is_new:
                await io.shield(sandbox.kill)
            raise
        return sandbox

    @classmethod
    async def connect(
        cls, name_or_id: str, *, socket: str | os.PathLike[str] | None = None, url: str | None = None,
        api_key: str | None = None, start: bool | None = None,
    ) -> AsyncSandbox:  # fmt: skip
        """Finds an existing sandbox by its name or id. A `with` block does not remove it."""
        transport = transport_for(find_target(socket, url, api_key, start))
        try:
            answer = await transport.ask("session.show", {"session": name_or_id})
        except NotFoundError as error:
            raise SandboxNotFoundError(
                f"there is no sandbox {name_or_id!r}; Sandbox.list() shows those there are, "
                f"Sandbox.create({name_or_id!r}) makes it"
            ) from error
        return cls(transport, SandboxInfo(answer), False, False)

    @classmethod
    async def list(
        cls, *, socket: str | os.PathLike[str] | None = None, url: str | None = None, api_key: str | None = None,
        start: bool | None = None,
    ) -> builtins.list[SandboxInfo]:  # fmt: skip
        """All sandboxes of this user (or this key)."""
        transport = transport_for(find_target(socket, url, api_key, start))
        answer = await transport.ask("session.list", {})
        return [SandboxInfo(one) for one in answer.get("sessions") or []]

    # ---- what it is ----

    @property
    def name(self) -> str:
        """Its name. Other programs can connect to it by this name."""
        return self._name

    @property
    def id(self) -> str:
        """Its unique id."""
        return self._id

    @property
    def sandbox_id(self) -> str:
        """The same as `id`, as E2B calls it."""
        return self._id

    # Created each time: a stored part would refer back to the sandbox, which could then never be collected.

    @property
    def files(self) -> AsyncFiles:
        """Its files."""
        return AsyncFiles(self)

    @property
    def commands(self) -> AsyncCommands:
        """Its commands."""
        return AsyncCommands(self)

    @property
    def artifacts(self) -> AsyncArtifacts:
        """Files that runs left below artifacts/."""
        return AsyncArtifacts(self)

    async def info(self) -> SandboxInfo:
        """State, limits, memory, the path of its files."""
        return SandboxInfo(await self._ask("session.show"))

    async def is_running(self) -> bool:
        """Whether it exists. `info().state` says whether code runs in it."""
        try:
            await self.info()
        except (SandboxClosedError, NotFoundError):
            return False
        return True

    async def isolation(self) -> dict[str, Any]:
        """The isolation report; `weaker` names what this host could not enforce."""
        answer = await self._ask("session.show")
        self._isolation = answer.get("isolation") or {}
        return self._isolation

    async def metrics(self) -> Metrics:
        """Its current memory and CPU time, and the number of recorded runs."""
        answer = await self._ask("session.show")
        return Metrics(SandboxInfo(answer), len(answer.get("runs") or []))

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<{type(self).__name__} {self._name!r} at {self._transport.target.name}{state}>"

    # ---- code ----

    async def run_code(
        self, code: str, *, on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None, on_result: Callable[[Result], Any] | None = None,
        on_error: Callable[[ExecutionError], Any] | None = None, env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Execution:  # fmt: skip
        """Runs Python. Variables, imports and files stay for the next call; top-level `await` works.

        Code that fails raises nothing here: check `error` or `status`, or call `raise_for_error()`. `timeout` is in
        seconds: then the code is interrupted and variables stay. `env` holds for this run only. Callbacks get output
        as text, results as Result and the error as ExecutionError, as they come. Interrupting or cancelling the call
        interrupts the code.
        """
        reader = self._reader(code, env, timeout)
        on_display = None
        if on_result is not None:
            tell = on_result

            async def on_display(data: dict[str, Any]) -> None:
                await io.call(tell, Result(data))

        await self._guard(run_to_end, reader, on_stdout, on_stderr, on_display)
        execution = await self._finish(reader)
        if on_result is not None and execution.results and execution.results[-1].is_main_result:
            await io.call(on_result, execution.results[-1])
        if on_error is not None and execution.error is not None:
            await io.call(on_error, execution.error)
        return execution

    def stream(
        self, code: str, *, env: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> AsyncEventStream:
        """Runs Python and yields events as they occur: StartEvent, StdoutEvent, StderrEvent, ResultEvent,
        ErrorEvent, and last an EndEvent with the Execution. Use it in a `with` block, or read it to its end.
        """
        return AsyncEventStream(self, self._reader(code, env, timeout))

    async def get(self, name: str) -> Any:
        """The value of a variable, or of any expression.

        Numbers, strings, lists, dictionaries, dates and the like are copied; DataFrames and Series use Arrow (if
        pyarrow is installed here and in the sandbox), arrays NPY. Other objects are refused: data from a
        sandbox is never unpickled.
        """
        data = await self._evaluate_bundle(_values.code_to_give(name))
        description = _values.description_of(data)
        path = description.get("path")
        content = None
        if path is not None:
            content = await self.files.read(path, "bytes")
            await self.files.remove(path)
        return _values.unpack(description, content)

    async def set(self, name: str, value: Any) -> None:
        """Sets a variable: tables are sent as Arrow, arrays as NPY, everything else as a pickle."""
        _values.check_name(name)
        kind, content = _values.pack(value)
        path = f"{_values.HIDDEN_DIRECTORY}/set-{os.urandom(8).hex()}"
        await self.files.write(path, content)
        await self._evaluate(_values.code_to_take(name, kind, path))

    async def install(
        self, *packages: str, timeout: float | None = None, on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
    ) -> InstallResult:  # fmt: skip
        """Installs packages into this sandbox: `install("humanize", "attrs>=23")`. A running Python sees them at once.

        InstallError has pip's output; the packages are then unchanged. The code gets no network.
        """
        if not packages:
            raise InvalidArgumentError('name at least one package: install("humanize")')
        fields = {"session": self._id, "packages": list(packages), **timeout_ms(timeout)}
        reader = AsyncRunReader(self._transport, "session.install", fields)
        raw = await self._guard(run_to_end, reader, on_stdout, on_stderr)
        if raw.get("status") != "ok":
            error = raw.get("error") or {}
            words = "".join(reader.logs.stderr).strip() or "".join(reader.logs.stdout).strip()
            why = str(error.get("value", "")) if isinstance(error, dict) else str(error)
            said = [text for text in (why, words[-2000:]) if text] or [str(raw.get("status"))]
            raise InstallError(f"{' '.join(packages)} could not be installed: " + "\n".join(said))
        return InstallResult(raw, "".join(reader.logs.stdout), "".join(reader.logs.stderr))

    async def interrupt(self) -> bool:
        """Interrupts the current run. Variables stay. Returns False if nothing ran."""
        return bool((await self._ask("session.interrupt")).get("interrupted"))

    # ---- life ----

    async def hibernate(self, depth: str = "sleep") -> str:
        """Writes all variables to disk and ends the process; the next call restores them. Returns the new state.

        `depth="trim"` only writes large tables and arrays to disk. BusyError names what cannot be saved.
        """
        self._isolation = None
        return str((await self._ask("session.hibernate", depth=depth)).get("state", ""))

    async def restart(self) -> None:
        """Starts a new Python: variables are lost, files stay."""
        self._isolation = None
        await self._ask("session.restart")

    async def kill(self, *, keep_files: bool = False) -> bool:
        """Ends its processes and removes it, with its files unless `keep_files`. Returns False if it did not exist."""
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._is_closed:
            return False
        self._is_closed = True
        try:
            await self._transport.ask("session.remove", {"session": self._id, "keep_files": keep_files})
        except NotFoundError:
            return False
        return True

    async def close(self) -> None:
        """Ends the `with` block: kills a sandbox that `create` made, not one that `connect` found."""
        if self._is_owner:
            await self.kill()
        self._is_closed = True

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await io.shield(self.close)

    # ---- for the parts of it ----

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed_error(self._name)

    def _fields(self, **fields: Any) -> dict[str, Any]:
        self._check_open()
        return {"session": self._id, "create": False, **fields}

    def _reader(self, code: str, env: Mapping[str, str] | None, timeout: float | None) -> AsyncRunReader:
        if not isinstance(code, str):
            raise InvalidArgumentError(f"code is text, not {type(code).__name__}")
        self._check_open()
        fields: dict[str, Any] = {"session": self._id, "create": False, "code": code, "install_hint": _INSTALL_HINT}
        if timeout is not None:
            fields.update(timeout_ms(timeout))
        if env is not None:
            fields["env"] = env_of(env)
        return AsyncRunReader(self._transport, "execute", fields)

    async def _finish(self, reader: AsyncRunReader) -> Execution:
        execution = Execution(reader.result or {}, reader.logs)
        if execution.variables_lost:
            self._isolation = None
        if self._isolation is None:
            await self.isolation()
        execution.isolation = self._isolation or {}
        return execution

    async def _ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self._check_open()
        return await self._guard(self._transport.ask, op, {"session": self._id, **fields})

    async def _guard(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Calls it; raises SandboxClosedError if the sandbox does not exist any more."""
        try:
            return await work(*arguments)
        except NotFoundError as error:
            if self._is_gone(error):
                raise closed_error(self._name) from error
            raise

    def _is_gone(self, error: NotFoundError) -> bool:
        return error.message.startswith(("there is no session", "there is no sandbox"))

    def _missing(self, error: NotFoundError, path: str) -> GloveboxError:
        """A file that is not there, or a sandbox that is not there any more."""
        if self._is_gone(error):
            return closed_error(self._name)
        return FileMissingError(f"{path}: {error.message}", error.code)

    async def _evaluate_bundle(self, code: str) -> dict[str, Any]:
        """The MIME bundle of an expression of the package's own, which is not counted as a run of the user's."""
        reader = AsyncRunReader(self._transport, "execute", self._fields(code=code, store_history=False))
        raw = await self._guard(run_to_end, reader)
        if raw.get("status") != "ok":
            error = raw.get("error") or {}
            value = error.get("value") if isinstance(error, dict) else error
            name = error.get("name") if isinstance(error, dict) else None
            raise TransferError(f"{name}: {value}" if name not in (None, "TypeError") else str(value))
        return raw.get("result") or {}

    async def _call_guest(self, module: str, function: str, *arguments: str) -> tuple[str | None, Any]:
        """Calls a function of the kernel's own package: (None, what it gave), or the name and text of its error."""
        words = ", ".join(repr(argument) for argument in arguments)
        code = f"__import__('glovebox_kernel.{module}', fromlist=['{function}']).{function}({words})"
        reader = AsyncRunReader(self._transport, "execute", self._fields(code=code, store_history=False))
        raw = await self._guard(run_to_end, reader)
        error = raw.get("error")
        if raw.get("status") != "ok":
            known = error if isinstance(error, dict) else {"name": raw.get("status"), "value": error}
            return str(known.get("name")), str(known.get("value"))
        return None, _values.unpack(_values.description_of(raw.get("result") or {}), None)

    async def _evaluate(self, code: str) -> str | None:
        return (await self._evaluate_bundle(code)).get("text/plain")


async def arun(
    code: str, *, timeout: float | None = None, on_stdout: Callable[[str], Any] | None = None,
    on_stderr: Callable[[str], Any] | None = None, socket: str | os.PathLike[str] | None = None,
    url: str | None = None, api_key: str | None = None, start: bool | None = None,
    memory: Size | None = None, cpus: float | None = None, network: Network | None = None,
    mounts: Mounts | None = None, env: Mapping[str, str] | None = None, image: str | None = None,
    mode: str | None = None, allow_weaker: bool | None = None, data: str | os.PathLike[str] | None = None,
    engine: str | None = None,
) -> Execution:  # fmt: skip
    """Runs Python in a fresh box, which is removed afterwards. `artifacts` lists the files it left in artifacts/.

    Over HTTP, `raw["artifacts"]` of the result has their contents, in base64, up to 4 MiB together.
    Threads of the code are joined and its exit handlers are called, as at the end of a program.
    """
    fields = create_fields(
        memory, cpus, None, network, mounts, env, engine, image, mode, None, None, None, None, data, allow_weaker
    )
    transport = transport_for(find_target(socket, url, api_key, start))
    fields = {
        "ephemeral": True, "one_shot": True, "code": code, **as_owner(fields, transport.target), **timeout_ms(timeout)
    }  # fmt: skip
    reader = AsyncRunReader(transport, "execute", fields)
    raw = await run_to_end(reader, on_stdout, on_stderr)
    return Execution(raw, reader.logs)
