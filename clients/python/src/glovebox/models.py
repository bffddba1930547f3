"""Plain data: results of runs, events of streams, descriptions of sandboxes and files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Union


class Record:
    """An object with named fields; prints them, and compares by them."""

    __slots__ = ()
    _shown: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        names: tuple[str, ...] = self._shown or self.__slots__
        fields = ", ".join(f"{name}={_short(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names: tuple[str, ...] = self.__slots__
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:150] + f"… ({len(text)} characters)"


# ---- what code shows ----

_NAMES = {
    "text": "text/plain",
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}


class Result(Record):
    """Something that the code displayed, or the value of its last expression.

    `data` maps MIME types to content; images are base64 text. The usual types have names: `text`, `html`, `markdown`,
    `svg`, `png`, `jpeg`, `pdf`, `latex`, `json`, `javascript`. Notebooks render it.
    """

    __slots__ = ("data", "is_main_result")

    def __init__(self, data: Mapping[str, Any], is_main_result: bool = False) -> None:
        self.data: dict[str, Any] = dict(data)
        self.is_main_result = is_main_result

    text: str | None = property(lambda self: self.data.get("text/plain"))  # type: ignore[assignment]
    html: str | None = property(lambda self: self.data.get("text/html"))  # type: ignore[assignment]
    markdown: str | None = property(lambda self: self.data.get("text/markdown"))  # type: ignore[assignment]
    svg: str | None = property(lambda self: self.data.get("image/svg+xml"))  # type: ignore[assignment]
    png: str | None = property(lambda self: self.data.get("image/png"))  # type: ignore[assignment]
    jpeg: str | None = property(lambda self: self.data.get("image/jpeg"))  # type: ignore[assignment]
    pdf: str | None = property(lambda self: self.data.get("application/pdf"))  # type: ignore[assignment]
    latex: str | None = property(lambda self: self.data.get("text/latex"))  # type: ignore[assignment]
    json: Any = property(lambda self: self.data.get("application/json"))
    javascript: str | None = property(lambda self: self.data.get("application/javascript"))  # type: ignore[assignment]

    def formats(self) -> list[str]:
        """The formats it has, by their short names: `["text", "html"]`."""
        names = {mime: name for name, mime in _NAMES.items()}
        return [names.get(mime, mime) for mime in self.data]

    def __getitem__(self, key: str) -> Any:
        return self.data[_NAMES.get(key, key)]

    def image(self) -> bytes | None:
        """The bytes of its PNG or JPEG image, or None."""
        import base64

        content = self.png or self.jpeg
        return base64.b64decode(content) if content else None

    def __str__(self) -> str:
        return self.text if self.text is not None else f"<{', '.join(self.data)}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return dict(self.data)


class Logs(Record):
    """The output of a run, in pieces as it arrived."""

    __slots__ = ("stderr", "stdout")

    def __init__(self, stdout: list[str] | None = None, stderr: list[str] | None = None) -> None:
        self.stdout: list[str] = stdout if stdout is not None else []
        self.stderr: list[str] = stderr if stderr is not None else []


class ExecutionError(Record):
    """How the code failed: the name of the exception, its text, and the traceback.

    If the run was ended from outside, `name` is `timeout`, `memory_limit`, `interrupted`, `kernel_died`, … and
    `value` says what to do.
    """

    __slots__ = ("name", "traceback", "value")
    _shown = ("name", "value")

    def __init__(self, name: str, value: str, traceback: str = "") -> None:
        self.name = name
        self.value = value
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" if self.value else self.name


class Usage(Record):
    """CPU time of a run in milliseconds, and the sandbox's peak memory in bytes."""

    __slots__ = ("cpu_ms", "memory_peak_bytes")

    def __init__(self, cpu_ms: float = 0, memory_peak_bytes: int = 0) -> None:
        self.cpu_ms = cpu_ms
        self.memory_peak_bytes = memory_peak_bytes


class Artifact(Record):
    """A file below /workspace/artifacts that a run created or changed. `host_path` is its path on this host.

    `host_path` is None if the daemon is on another host: `sandbox.files.read(artifact.path, format="bytes")`
    works in any case.
    """

    __slots__ = ("host_path", "mime", "path", "size")

    def __init__(self, path: str, size: int = 0, mime: str = "", host_path: str | None = None) -> None:
        self.path = path
        self.size = size
        self.mime = mime
        self.host_path = host_path

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Execution(Record):
    """How a run of code ended.

    As in E2B: `text` (of the last expression), `results`, `logs`, `error`, `execution_count`. Besides: `stdout` and
    `stderr` in one piece, `status` (`ok`, `error`, `timeout`, `oom`, `killed`, `interrupted`), `exit_code`,
    `duration_ms`, `usage`, `artifacts`, `isolation`, `run_id`, `variables_lost`. It is true when the status is `ok`.
    """

    __slots__ = (
        "artifacts", "duration_ms", "error", "execution_count", "exit_code", "isolation", "logs", "raw", "results",
        "run_id", "status", "stderr_cut_bytes", "stdout_cut_bytes", "usage", "variables_lost",
    )  # fmt: skip
    _shown = ("status", "text", "stdout", "stderr", "error", "results", "artifacts", "duration_ms")

    def __init__(self, raw: Mapping[str, Any], logs: Logs) -> None:
        self.raw: dict[str, Any] = dict(raw)
        self.logs = logs
        self.run_id: str = raw.get("run_id") or ""
        self.status: str = raw.get("status") or "error"
        self.exit_code: int = raw.get("exit_code") or 0
        self.duration_ms: float = raw.get("duration_ms") or 0
        self.execution_count: int | None = raw.get("execution_count")
        self.variables_lost: bool = bool(raw.get("variables_lost"))
        self.stdout_cut_bytes: int = raw.get("stdout_cut_bytes") or 0
        self.stderr_cut_bytes: int = raw.get("stderr_cut_bytes") or 0
        usage = raw.get("usage") or {}
        self.usage = Usage(usage.get("cpu_ms") or 0, usage.get("memory_peak_bytes") or 0)
        self.isolation: dict[str, Any] = {}
        self.error: ExecutionError | None = _error_of(raw.get("error"), self.status)
        self.artifacts: list[Artifact] = [artifact_of(item) for item in raw.get("artifacts") or []]
        self.results: list[Result] = [Result(data) for data in raw.get("displays") or []]
        if raw.get("result"):
            self.results.append(Result(raw["result"], True))

    @property
    def text(self) -> str | None:
        """The value of the last expression, as text; None where there is none."""
        for result in self.results:
            if result.is_main_result:
                return result.text
        return None

    @property
    def stdout(self) -> str:
        return "".join(self.logs.stdout)

    @property
    def stderr(self) -> str:
        return "".join(self.logs.stderr)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def __bool__(self) -> bool:
        return self.ok

    def raise_for_error(self) -> Execution:
        """Raises CodeError unless the status is `ok`; returns itself, to be used in a chain."""
        if self.ok:
            return self
        from .errors import CodeError

        why = str(self.error) if self.error else f"it ended with status {self.exit_code}"
        trace = self.error.traceback if self.error else ""
        raise CodeError(f"the code failed: {why}" + (f"\n{trace.rstrip()}" if trace else ""), self)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON types."""
        return {
            **self.raw,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "text": self.text,
            "isolation": self.isolation,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    def __str__(self) -> str:
        """What a terminal would show: the output, then the value or the traceback."""
        parts = [self.stdout, self.stderr]
        if self.error:
            parts.append(self.error.traceback or str(self.error))
        elif self.text is not None:
            parts.append(self.text)
        return "\n".join(part.rstrip("\n") for part in parts if part)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """In a notebook: a table as a table, a figure as an image."""
        bundle: dict[str, Any] = {"text/plain": str(self)}
        shown = [result for result in self.results if len(result.data) > 1]
        if len(self.results) == 1 and shown and not (self.stdout or self.stderr or self.error):
            return {**bundle, **{mime: value for mime, value in shown[0].data.items() if mime != "text/plain"}}
        if shown or self.error:
            bundle["text/html"] = _html_of(self)
        return bundle


def _error_of(raw: Any, status: str) -> ExecutionError | None:
    if not raw:
        return None
    if isinstance(raw, str):
        return ExecutionError(status, raw)
    return ExecutionError(str(raw.get("name", status)), str(raw.get("value", "")), str(raw.get("traceback") or ""))


def artifact_of(raw: Mapping[str, Any]) -> Artifact:
    return Artifact(str(raw.get("path", "")), raw.get("size") or 0, raw.get("mime") or "", raw.get("host_path"))


def _html_of(execution: Execution) -> str:
    from html import escape

    parts = [f"<pre>{escape(text)}</pre>" for text in (execution.stdout, execution.stderr) if text]
    if execution.error:
        parts.append(f"<pre>{escape(execution.error.traceback or str(execution.error))}</pre>")
    for result in execution.results:
        if result.html:
            parts.append(result.html)
        elif result.png or result.jpeg:
            kind = "png" if result.png else "jpeg"
            parts.append(f'<img src="data:image/{kind};base64,{escape(result.png or result.jpeg or "")}">')
        elif result.svg:
            parts.append(result.svg)
        elif result.text:
            parts.append(f"<pre>{escape(result.text)}</pre>")
    return "\n".join(parts)


# ---- events ----


class StartEvent(Record):
    """The run was accepted; `run_id` names it."""

    __slots__ = ("run_id",)
    type: ClassVar[str] = "start"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id


class StdoutEvent(Record):
    """Standard output, as it was written."""

    __slots__ = ("text",)
    type: ClassVar[str] = "stdout"

    def __init__(self, text: str) -> None:
        self.text = text


class StderrEvent(Record):
    """Standard error, as it was written."""

    __slots__ = ("text",)
    type: ClassVar[str] = "stderr"

    def __init__(self, text: str) -> None:
        self.text = text


class ResultEvent(Record):
    """Something was shown: a figure, a table, or at the end the value of the last expression."""

    __slots__ = ("result",)
    type: ClassVar[str] = "result"

    def __init__(self, result: Result) -> None:
        self.result = result


class ErrorEvent(Record):
    """The code failed. An EndEvent follows."""

    __slots__ = ("error",)
    type: ClassVar[str] = "error"

    def __init__(self, error: ExecutionError) -> None:
        self.error = error


class EndEvent(Record):
    """The last event of every stream: the whole Execution."""

    __slots__ = ("execution",)
    type: ClassVar[str] = "end"

    def __init__(self, execution: Execution) -> None:
        self.execution = execution


Event = Union[StartEvent, StdoutEvent, StderrEvent, ResultEvent, ErrorEvent, EndEvent]


# ---- commands ----


class CommandResult(Record):
    """How a command ended."""

    __slots__ = ("artifacts", "duration_ms", "error", "exit_code", "status", "stderr", "stdout")

    def __init__(
        self, exit_code: int, stdout: str, stderr: str, status: str = "", error: str | None = None,
        duration_ms: float = 0, artifacts: Sequence[Artifact] = (),
    ) -> None:  # fmt: skip
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr
        self.status = status or ("ok" if exit_code == 0 else "error")
        self.error = error
        self.duration_ms = duration_ms
        self.artifacts: list[Artifact] = list(artifacts)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return "\n".join(part.rstrip("\n") for part in (self.stdout, self.stderr) if part)


# ---- sandboxes and files ----


class Limits(Record):
    """The limits of a sandbox. `timeout` is the time of one run, in seconds."""

    __slots__ = ("cpus", "disk_bytes", "memory_bytes", "pids", "timeout", "tmp_bytes")

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.memory_bytes: int = raw.get("memory_bytes") or 0
        self.cpus: float = raw.get("cpus") or 0
        self.pids: int = raw.get("pids") or 0
        self.timeout: float = (raw.get("timeout_ms") or 0) / 1000
        self.tmp_bytes: int = raw.get("tmp_bytes") or 0
        self.disk_bytes: int = raw.get("disk_bytes") or 0


class SandboxInfo(Record):
    """A sandbox as the daemon describes it.

    `state` is `new`, `idle`, `running`, `trimmed`, `asleep` or `lost`. `workspace` is the path of its files on the host
    and `pid` its first process there; a remote service reports neither.
    """

    __slots__ = (
        "created", "id", "image", "limits", "memory_bytes", "mode", "name", "pid", "raw", "state", "used", "workspace",
    )  # fmt: skip
    _shown = ("name", "id", "state", "image", "memory_bytes", "limits")

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw: dict[str, Any] = dict(raw)
        self.id: str = raw.get("id") or ""
        self.name: str = raw.get("name") or raw.get("user_id") or ""
        self.state: str = raw.get("state") or ""
        self.image: str = raw.get("image") or ""
        self.mode: str = raw.get("mode") or ""
        self.limits = Limits(raw.get("limits") or {})
        self.memory_bytes: int = raw.get("memory_bytes") or 0
        self.workspace: str | None = raw.get("workspace") or None
        self.pid: int | None = raw.get("pid") or None
        created, used = raw.get("created"), raw.get("used")
        self.created: float = 0 if isinstance(created, bool) else (created or 0) / 1000
        self.used: float = (used or 0) / 1000

    @property
    def sandbox_id(self) -> str:
        return self.id


class Metrics(Record):
    """Current use of a sandbox and its limits. `cpu_ms` is the CPU time since its Python started."""

    __slots__ = ("cpu_ms", "cpus", "memory_bytes", "memory_limit_bytes", "runs", "state")

    def __init__(self, info: SandboxInfo, runs: int) -> None:
        self.state = info.state
        self.memory_bytes = info.memory_bytes
        self.memory_limit_bytes = info.limits.memory_bytes
        self.cpu_ms: int = info.raw.get("cpu_ms") or 0
        self.cpus = info.limits.cpus
        self.runs = runs


class FileInfo(Record):
    """A file, directory or link in a sandbox. `modified` is in seconds since 1970."""

    __slots__ = ("modified", "name", "path", "size", "type")

    def __init__(self, path: str, type: str, size: int, modified: float) -> None:
        self.path = path
        self.name = path.rpartition("/")[2]
        self.type = type
        self.size = size
        self.modified = modified

    @property
    def is_dir(self) -> bool:
        return self.type == "directory"

    @property
    def is_file(self) -> bool:
        return self.type == "file"


class InstalledPackage(Record):
    """An installed package."""

    __slots__ = ("name", "version")

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version


class InstallResult(Record):
    """The result of an install. `restart_needed` names packages of which another version is already imported."""

    __slots__ = ("duration_ms", "installed", "restart_needed", "stderr", "stdout")
    _shown = ("installed", "restart_needed")

    def __init__(self, raw: Mapping[str, Any], stdout: str, stderr: str) -> None:
        self.installed = [InstalledPackage(item["name"], item["version"]) for item in raw.get("installed") or []]
        self.restart_needed: list[str] = list(raw.get("restart_needed") or [])
        self.stdout = stdout
        self.stderr = stderr
        self.duration_ms: float = raw.get("duration_ms") or 0

    def __iter__(self) -> Iterator[InstalledPackage]:
        return iter(self.installed)
