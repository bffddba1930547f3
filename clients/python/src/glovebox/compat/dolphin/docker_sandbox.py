"""A sandbox whose files lie in a directory of the host: /sandbox inside, `<sandbox_base_dir>/<session_id>` outside."""

from __future__ import annotations

import os
import uuid

from ..._sync.sandbox import Sandbox
from ...errors import DaemonUnavailableError, NotFoundError
from .._common import engine_of, output_of

DEFAULT_IMAGE = "dolphin-python-sandbox"


class DockerSandboxExecutor:
    """Runs Python with the arguments of the original. Variables stay from one `execute_code` to the next.

    It is made at the first use and ended by `close()` or at the end of a `with` block; the files stay on the host.
    Native boxes serve, where the default `image_name` stands for Glovebox's own image `host`. With `engine="docker"`,
    or SANDBOX_MODE=docker in the environment, it is a container of `image_name`.
    """

    def __init__(
        self, session_id: str | None = None, sandbox_base_dir: str = "/tmp/sandboxes",
        image_name: str = DEFAULT_IMAGE, memory_limit: str = "512m", cpu_quota: int = 100000,
        enable_network: bool = False, timeout: float = 30, engine: str | None = None,
    ) -> None:  # fmt: skip
        self.session_id = session_id or uuid.uuid4().hex
        if not self.session_id.strip(".") or "/" in self.session_id or "\0" in self.session_id:
            raise ValueError(f"session_id {self.session_id!r} is to name a directory: no slash, not only dots")
        self.sandbox_base_dir = os.path.abspath(sandbox_base_dir)
        self.sandbox_dir = os.path.join(self.sandbox_base_dir, self.session_id)
        self.image_name = image_name
        self.memory_limit = memory_limit
        self.cpu_quota = cpu_quota
        self.enable_network = enable_network
        self.timeout = timeout
        self.engine = engine
        self._sandbox: Sandbox | None = None
        os.makedirs(self.sandbox_dir, exist_ok=True)

    def execute_code(self, code: str) -> str:
        """What the code printed, then its errors. Code that fails does not raise: its traceback is in the text."""
        try:
            return output_of(self._open().run_code(code, timeout=self.timeout))
        except DaemonUnavailableError as error:
            raise RuntimeError(f"the sandbox is not available: {error}") from error
        except NotFoundError as error:
            raise RuntimeError(f"image {self.image_name!r} not found: {error}") from error

    def _open(self) -> Sandbox:
        if self._sandbox is not None:
            return self._sandbox
        self._sandbox = Sandbox.create(
            memory=self.memory_limit, cpus=self.cpu_quota / 100000, network=self.enable_network or None,
            workspace=self.sandbox_dir, **engine_of(self.engine, self.image_name, DEFAULT_IMAGE),
        )  # fmt: skip
        return self._sandbox

    def close(self) -> None:
        """Ends the sandbox. Its files stay in `sandbox_dir`."""
        if self._sandbox is not None:
            self._sandbox.kill(keep_files=True)
        self._sandbox = None

    cleanup = close

    def __enter__(self) -> DockerSandboxExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
