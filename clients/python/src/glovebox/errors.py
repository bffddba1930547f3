"""The exceptions. Every message says what happened, why, and what to do next.

All exceptions of the package are `GloveboxError`s. Code that fails in a sandbox raises nothing here: its exception is
`Execution.error`. A command that exits with a status other than 0 raises `CommandExitError` unless `check=False`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .models import CommandResult, Execution


class GloveboxError(Exception):
    """The base class. `code` is the daemon's error code."""

    code = "error"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class DaemonUnavailableError(GloveboxError, ConnectionError):
    """No daemon answers, and none could be started."""

    code = "unavailable"


class ConnectionLostError(GloveboxError, ConnectionError):
    """The daemon died during a request and did not restart in time."""

    code = "connection_lost"


class VersionMismatchError(GloveboxError):
    """The daemon is of another version than this package."""

    code = "version"


class AuthenticationError(GloveboxError):
    """The service needs a key, or does not know the one that was sent."""

    code = "unauthorized"


class InvalidArgumentError(GloveboxError, ValueError):
    """An argument is invalid."""

    code = "usage"


class NotFoundError(GloveboxError):
    """It does not exist."""

    code = "not_found"


class SandboxNotFoundError(NotFoundError):
    """There is no such sandbox."""


class FileMissingError(NotFoundError, FileNotFoundError):
    """There is no such file or directory in the sandbox. It is a FileNotFoundError, too."""

    def __str__(self) -> str:
        return self.message


class SandboxClosedError(GloveboxError):
    """The sandbox was killed, by this program or by another one."""

    code = "closed"


class ExistsError(GloveboxError):
    """It already exists."""

    code = "exists"


class SandboxExistsError(ExistsError):
    """A sandbox of this name already exists."""


class RefusedError(GloveboxError, PermissionError):
    """A policy or the operating system does not allow it."""

    code = "refused"

    def __str__(self) -> str:
        return self.message


class UnsupportedError(GloveboxError):
    """This host, or this kind of connection, does not support it."""

    code = "unsupported"


class LimitError(GloveboxError):
    """A limit or a quota is reached."""

    code = "limit"


class BusyError(GloveboxError):
    """Another operation is in progress in the sandbox."""

    code = "busy"


class NoSpaceError(GloveboxError):
    """The disk is full."""

    code = "no_space"


class ProtocolError(GloveboxError):
    """The peer is not a Glovebox daemon, or its data is damaged."""

    code = "protocol"


class TransferError(GloveboxError, TypeError):
    """A value cannot be moved into the sandbox or out of it."""

    code = "transfer"


class CodeError(GloveboxError):
    """Raised by `Execution.raise_for_error()`: the code failed. `execution` has everything that is known."""

    code = "code"

    def __init__(self, message: str, execution: Execution) -> None:
        super().__init__(message)
        self.execution = execution


class CommandExitError(GloveboxError):
    """A command exited with a status other than 0. `result` has its output; `check=False` returns that instead."""

    code = "exit"

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result

    @property
    def exit_code(self) -> int:
        return self.result.exit_code

    @property
    def stdout(self) -> str:
        return self.result.stdout

    @property
    def stderr(self) -> str:
        return self.result.stderr


class InstallError(GloveboxError):
    """Packages could not be installed; the sandbox is unchanged. The message ends with pip's output."""

    code = "install"


_BY_CODE: dict[str, type[GloveboxError]] = {
    "usage": InvalidArgumentError,
    "not_found": NotFoundError,
    "exists": ExistsError,
    "refused": RefusedError,
    "permission": RefusedError,
    "foreign_origin": RefusedError,
    "foreign_host": RefusedError,
    "unsupported": UnsupportedError,
    "limit": LimitError,
    "rate_limit": LimitError,
    "too_large": LimitError,
    "result_too_large": LimitError,
    "busy": BusyError,
    "no_space": NoSpaceError,
    "protocol": ProtocolError,
    "unauthorized": AuthenticationError,
}


def error_of(code: str, message: str) -> GloveboxError:
    """The exception for what the daemon answered."""
    if code == "unauthorized":
        message += "; give the key as api_key= or in GLOVEBOX_API_KEY (`glovebox serve --new-key NAME` makes one)"
    if code == "too_large":
        message += "; code or data that is longer: put it into a file of the sandbox by files.write()"
    message = message.replace("--allow-weaker", "allow_weaker=True")
    return _BY_CODE.get(code, GloveboxError)(message, code)


def closed_error(name: str) -> SandboxClosedError:
    return SandboxClosedError(f"sandbox {name!r} was killed; make another one with Sandbox.create()")
