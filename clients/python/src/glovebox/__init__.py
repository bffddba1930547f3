"""Glovebox runs untrusted code in a sealed box on this machine.

    from glovebox import Sandbox

    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 41")
        print(sandbox.run_code("x + 1").text)

`Sandbox` blocks, `AsyncSandbox` has the same methods as coroutines, and `run(code)` runs one piece of code in a fresh
box. `python -m glovebox` shows whether everything is ready.
"""

from __future__ import annotations

from ._sync.artifacts import Artifacts
from ._sync.background import CommandHandle
from ._sync.commands import Commands
from ._sync.files import Files
from ._sync.runs import EventStream
from ._sync.sandbox import Sandbox, run
from ._version import VERSION as __version__
from .errors import (
    AuthenticationError,
    BusyError,
    CodeError,
    CommandExitError,
    ConnectionLostError,
    DaemonUnavailableError,
    ExistsError,
    FileMissingError,
    GloveboxError,
    InstallError,
    InvalidArgumentError,
    LimitError,
    NoSpaceError,
    NotFoundError,
    ProtocolError,
    RefusedError,
    SandboxClosedError,
    SandboxExistsError,
    SandboxNotFoundError,
    TransferError,
    UnsupportedError,
    VersionMismatchError,
)
from .models import (
    Artifact,
    CommandResult,
    EndEvent,
    ErrorEvent,
    Event,
    Execution,
    ExecutionError,
    FileInfo,
    InstalledPackage,
    InstallResult,
    Limits,
    Logs,
    Metrics,
    Result,
    ResultEvent,
    SandboxInfo,
    StartEvent,
    StderrEvent,
    StdoutEvent,
    Usage,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._aio.artifacts import AsyncArtifacts as AsyncArtifacts
    from ._aio.background import AsyncCommandHandle as AsyncCommandHandle
    from ._aio.commands import AsyncCommands as AsyncCommands
    from ._aio.files import AsyncFiles as AsyncFiles
    from ._aio.runs import AsyncEventStream as AsyncEventStream
    from ._aio.sandbox import AsyncSandbox as AsyncSandbox
    from ._aio.sandbox import arun as arun

# asyncio takes longer to import than everything else together: only those who use it pay for it.
_LAZY = {
    "AsyncArtifacts": "artifacts",
    "AsyncCommandHandle": "background",
    "AsyncCommands": "commands",
    "AsyncEventStream": "runs",
    "AsyncFiles": "files",
    "AsyncSandbox": "sandbox",
    "arun": "sandbox",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"._aio.{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


__all__ = [
    "Artifact",
    "Artifacts",
    "AsyncArtifacts",
    "AsyncCommandHandle",
    "AsyncCommands",
    "AsyncEventStream",
    "AsyncFiles",
    "AsyncSandbox",
    "AuthenticationError",
    "BusyError",
    "CodeError",
    "CommandExitError",
    "CommandHandle",
    "CommandResult",
    "Commands",
    "ConnectionLostError",
    "DaemonUnavailableError",
    "EndEvent",
    "ErrorEvent",
    "Event",
    "EventStream",
    "Execution",
    "ExecutionError",
    "ExistsError",
    "FileInfo",
    "FileMissingError",
    "Files",
    "GloveboxError",
    "InstallError",
    "InstallResult",
    "InstalledPackage",
    "InvalidArgumentError",
    "LimitError",
    "Limits",
    "Logs",
    "Metrics",
    "NoSpaceError",
    "NotFoundError",
    "ProtocolError",
    "RefusedError",
    "Result",
    "ResultEvent",
    "Sandbox",
    "SandboxClosedError",
    "SandboxExistsError",
    "SandboxInfo",
    "SandboxNotFoundError",
    "StartEvent",
    "StderrEvent",
    "StdoutEvent",
    "TransferError",
    "UnsupportedError",
    "Usage",
    "VersionMismatchError",
    "__version__",
    "arun",
    "run",
]


def __dir__() -> list[str]:
    return __all__
