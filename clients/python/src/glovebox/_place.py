"""Where the daemon is: the same places in which the command line looks, in the same order.

1. `socket=` or `url=` of the caller; 2. GLOVEBOX_URL or GLOVEBOX_SOCKET; 3. the socket of a project in the current
directory or one above it; 4. the user's own. A daemon that does not run yet is started in 2 (socket) to 4.
"""

from __future__ import annotations

import os
import stat

from .errors import InvalidArgumentError

SOCKET_PATH_MAX = 107


class Target:
    """One daemon: a UNIX socket, or the URL of a service with a key. Hashable; connections are kept by target."""

    __slots__ = ("api_key", "may_start", "project", "socket", "url")

    def __init__(
        self, socket: str | None, url: str | None, api_key: str | None, may_start: bool, project: str | None = None
    ) -> None:
        self.socket = socket
        self.url = url
        self.api_key = api_key
        self.may_start = may_start
        self.project = project

    def _key(self) -> tuple[str | None, ...]:
        return (self.socket, self.url, self.api_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def name(self) -> str:
        return self.url or self.socket or ""


def find_target(
    socket: str | os.PathLike[str] | None = None,
    url: str | None = None,
    api_key: str | None = None,
    start: bool | None = None,
) -> Target:
    """The daemon that is meant. Nothing is connected or started yet."""
    if socket is not None and url is not None:
        raise InvalidArgumentError("socket= and url= both say where the daemon is; give one of them")
    may_start = os.environ.get("GLOVEBOX_START", "1") not in ("0", "no", "false") if start is None else start
    if socket is not None:
        return Target(_absolute(os.fspath(socket)), None, None, bool(start))
    if url is None and os.environ.get("GLOVEBOX_URL"):
        url = os.environ["GLOVEBOX_URL"]
    if url is not None:
        return Target(None, _checked_url(url), api_key or os.environ.get("GLOVEBOX_API_KEY") or None, False)
    named = os.environ.get("GLOVEBOX_SOCKET")
    if named:
        return Target(_absolute(named), None, None, may_start)
    project = _find_project()
    if project is not None:
        return Target(os.path.join(project, ".sandbox/kernel.sock"), None, None, may_start, project)
    return Target(_checked_path(_own_socket()), None, None, may_start)


def _own_socket() -> str:
    data = os.environ.get("GLOVEBOX_DATA_DIR") or os.environ.get("SANDBOX_DATA_DIR")
    if data and data.startswith("/"):
        return f"{data}/glovebox.sock"
    if os.geteuid() == 0:
        return "/run/glovebox/glovebox.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and runtime.startswith("/"):
        return f"{runtime}/glovebox/glovebox.sock"
    return f"/tmp/glovebox-{os.geteuid()}/glovebox.sock"


def _find_project() -> str | None:
    """Another user's socket in a parent directory must not receive what is meant for this user's daemon."""
    try:
        at = os.getcwd()
    except OSError:
        return None
    while True:
        path = os.path.join(at, ".sandbox/kernel.sock")
        try:
            status = os.lstat(path)
            if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid() and len(path) <= SOCKET_PATH_MAX:
                return at
        except OSError:
            pass
        above = os.path.dirname(at)
        if above == at:
            return None
        at = above


def _absolute(path: str) -> str:
    return _checked_path(os.path.abspath(path))


def _checked_path(path: str) -> str:
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise InvalidArgumentError(
            f"the socket's path {path} has more than the {SOCKET_PATH_MAX} bytes that a UNIX socket may have; "
            "choose a shorter one with socket= or GLOVEBOX_SOCKET"
        )
    return path


def _checked_url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentError(f"{url!r} is not a URL of a service; it starts with http:// or https://")
    return url.rstrip("/")
