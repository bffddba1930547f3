"""The manager: which sandboxes are used, and what the users of a chat do with theirs.

| variable | meaning |
|---|---|
| `SANDBOX_MODE` | `auto` (a remote service where one is configured, else this machine), `native`, `docker`, `remote` |
| `SANDBOX_API_URL`, `SANDBOX_API_KEY` | the remote service |
| `SANDBOX_TIMEOUT` | seconds that one call may take |
| `DOCKER_SANDBOX_MEMORY`, `DOCKER_SANDBOX_CPU`, `DOCKER_SANDBOX_IMAGE` | limits and image of new sandboxes |

On `docker`, `DOCKER_SANDBOX_IMAGE` is an image of dockerd's (without it `python:3.12-slim`); elsewhere one of ours.
`incus` and `incus-vm` name engines that this version does not have; asking for one is an error at once.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from ..._sync.sandbox import Sandbox
from ...errors import InvalidArgumentError, UnsupportedError
from ...models import CommandResult, Execution, FileInfo, InstallResult
from .._common import name_for

MODES = ("auto", "native", "docker", "incus", "incus-vm", "remote")
DEFAULT_IMAGE = "python:3.12-slim"  # the original's; stands for Glovebox's own image `host`


class SandboxManager:
    """Every method takes the user first. A user's sandbox is made at the first call, and stays until `destroy`."""

    def __init__(self, mode: str | None = None) -> None:
        wanted = mode or os.environ.get("SANDBOX_MODE") or "auto"
        if wanted not in MODES:
            raise InvalidArgumentError(f"SANDBOX_MODE is one of {', '.join(MODES)}, not {wanted!r}")
        url = os.environ.get("SANDBOX_API_URL")
        if wanted == "remote" and not url:
            raise InvalidArgumentError("SANDBOX_MODE is remote: set SANDBOX_API_URL and SANDBOX_API_KEY")
        if wanted in ("incus", "incus-vm"):
            raise UnsupportedError(f"SANDBOX_MODE is {wanted}, an engine that this version lacks; say native or auto")
        self.mode = "remote" if url and wanted in ("auto", "remote") else "docker" if wanted == "docker" else "native"
        self._where: dict[str, Any] = {}
        if self.mode == "remote":
            self._where = {"url": url, "api_key": os.environ.get("SANDBOX_API_KEY")}
        self._timeout = float(os.environ["SANDBOX_TIMEOUT"]) if os.environ.get("SANDBOX_TIMEOUT") else None
        self._sandboxes: dict[str, Sandbox] = {}
        self._lock = threading.Lock()

    # ---- what users do ----

    def execute(self, user_id: str, code: str, timeout: float | None = None) -> Execution:
        """Runs Python. Variables stay for the user's next call."""
        return self._of(user_id).run_code(code, timeout=timeout or self._timeout)

    def shell(self, user_id: str, command: str, timeout: float | None = None) -> CommandResult:
        """Runs a shell command; one that fails does not raise."""
        return self._of(user_id).commands.run(command, check=False, timeout=timeout or self._timeout)

    def install(self, user_id: str, *packages: str) -> InstallResult:
        """Installs packages for this user alone."""
        return self._of(user_id).install(*packages)

    def save_file(self, user_id: str, path: str, content: str | bytes) -> FileInfo:
        """Writes a file below the user's workspace."""
        return self._of(user_id).files.write(path, content)

    def read_file(self, user_id: str, path: str) -> str:
        return self._of(user_id).files.read(path)

    def list_files(self, user_id: str, path: str = ".") -> list[FileInfo]:
        return self._of(user_id).files.list(path)

    def delete_file(self, user_id: str, path: str) -> None:
        self._of(user_id).files.remove(path)

    # ---- their sandboxes ----

    def create(self, user_id: str) -> Sandbox:
        """The user's sandbox, made now where there is none."""
        return self._of(user_id)

    def destroy(self, user_id: str) -> bool:
        """Ends the user's sandbox and removes its files. False where there was none."""
        with self._lock:
            sandbox = self._sandboxes.pop(user_id, None)
        if sandbox is not None:
            return sandbox.kill()
        names = {info.name for info in Sandbox.list(**self._where)}
        name = name_for(user_id, "user-")
        return name in names and Sandbox.connect(name, **self._where).kill()

    def status(self) -> dict[str, Any]:
        """Which backend is used and why, and whose sandboxes there are."""
        reasons = {"remote": "SANDBOX_API_URL names a service", "docker": "SANDBOX_MODE is docker"}
        why = reasons.get(self.mode, "no service is configured")
        sandboxes = {info.name: info.state for info in Sandbox.list(**self._where) if info.name.startswith("user-")}
        return {"mode": self.mode, "why": why, "sandboxes": sandboxes}

    def _of(self, user_id: str) -> Sandbox:
        with self._lock:
            sandbox = self._sandboxes.get(user_id)
        if sandbox is not None and sandbox.is_running():
            return sandbox
        made = Sandbox.create(name_for(user_id, "user-"), exist_ok=True, **self._limits(), **self._where)
        with self._lock:
            self._sandboxes[user_id] = made
        return made

    def _limits(self) -> dict[str, Any]:
        memory, cpus = os.environ.get("DOCKER_SANDBOX_MEMORY"), os.environ.get("DOCKER_SANDBOX_CPU")
        image = os.environ.get("DOCKER_SANDBOX_IMAGE")
        limits: dict[str, Any] = {"memory": memory or None, "cpus": float(cpus) if cpus else None}
        if self.mode == "docker":
            limits |= {"engine": "docker", "image": image or DEFAULT_IMAGE}
        elif image and image != DEFAULT_IMAGE:
            limits["image"] = image
        return {name: value for name, value in limits.items() if value is not None}


_manager: SandboxManager | None = None


def get_sandbox_manager() -> SandboxManager:
    """The manager of this process, by the environment variables."""
    global _manager
    _manager = _manager or SandboxManager()
    return _manager
