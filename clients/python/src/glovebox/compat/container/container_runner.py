"""One box for each run. The code is the file /workspace/code in it, read-only."""

from __future__ import annotations

import logging
import os
import tempfile
from typing import Any

from ..._aio.client import transport_for
from ..._aio.runs import AsyncRunReader, run_to_end
from ..._options import as_owner, create_fields, timeout_ms
from ..._place import find_target
from ...errors import InvalidArgumentError
from .._common import engine_of
from .config import SandboxConfig
from .mount_security import MountPolicy, validate_mount

logger = logging.getLogger(__name__)

INTERPRETERS = {"python": ("python3", ".py"), "bash": ("bash", ".sh")}
CODE_PATH = "/workspace/code"


class SandboxResult:
    """How a run ended. As text: its output, or what went wrong and the output."""

    def __init__(self, stdout: str, stderr: str, exit_code: int, timed_out: bool = False) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = exit_code
        self.timed_out = timed_out
        self.success = exit_code == 0 and not timed_out

    def __str__(self) -> str:
        if self.success:
            return self.stdout
        what = "Execution timed out." if self.timed_out else f"Exit code {self.exit_code}."
        return f"{what}\nStdout: {self.stdout}\nStderr: {self.stderr}"

    def __repr__(self) -> str:
        return f"SandboxResult(exit_code={self.exit_code}, timed_out={self.timed_out}, stdout={self.stdout[:80]!r})"


class SandboxRunner:
    """Runs code and commands, each in a fresh box. It may be used by many tasks at once."""

    def __init__(self, config: SandboxConfig | None = None) -> None:
        self.config = config or SandboxConfig()
        self.mount_policy = MountPolicy(
            allowed_read_paths=self.config.allowed_read_paths, allowed_write_paths=self.config.allowed_write_paths
        )

    async def run_code(
        self, code: str, language: str = "python", extra_mounts: list[dict[str, Any]] | None = None
    ) -> SandboxResult:
        """Runs code in `python` or `bash`.

        `extra_mounts` are `{"host_path", "container_path", "readonly"}`, read-only unless they say otherwise. One that
        the policy does not allow is left out, with a warning in the log.
        """
        if language not in INTERPRETERS:
            raise InvalidArgumentError(f"language is {' or '.join(map(repr, INTERPRETERS))}, not {language!r}")
        program, suffix = INTERPRETERS[language]
        descriptor, path = tempfile.mkstemp(suffix=suffix, prefix="glovebox-code-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(code)
            return await self._run([program, CODE_PATH], [f"{path}:{CODE_PATH}:ro", *self._mounts(extra_mounts or [])])
        finally:
            os.unlink(path)

    async def run_command(self, command: str) -> SandboxResult:
        """Runs a shell command."""
        return await self.run_code(command, language="bash")

    def _mounts(self, wanted: list[dict[str, Any]]) -> list[str]:
        allowed = []
        for mount in wanted:
            writable = not mount.get("readonly", True)
            if validate_mount(mount["host_path"], self.mount_policy, writable):
                allowed.append(f"{mount['host_path']}:{mount['container_path']}:{'rw' if writable else 'ro'}")
            else:
                logger.warning("the mount policy does not allow %s", mount["host_path"])
        return allowed

    async def _run(self, argv: list[str], mounts: list[str]) -> SandboxResult:
        config = self.config
        made_by = engine_of(config.engine, config.image_name, SandboxConfig.image_name)
        options = create_fields(
            memory=config.memory_limit, cpus=config.cpu_limit, timeout=None, network=config.network_enabled or None,
            mounts=mounts, env=None, mode=None, pids=config.pids_limit, disk=None, tmp="100m", workspace=None,
            data=None, allow_weaker=None, **made_by,
        )  # fmt: skip
        transport = transport_for(find_target())
        fields = {"ephemeral": True, "argv": argv, **as_owner(options, transport.target)}
        reader = AsyncRunReader(transport, "command", {**fields, **timeout_ms(config.timeout_seconds)})
        raw = await run_to_end(reader)
        stdout, stderr = "".join(reader.logs.stdout), "".join(reader.logs.stderr)
        if raw.get("timed_out"):
            return SandboxResult(stdout, stderr or "Execution timed out", -1, timed_out=True)
        if raw.get("oom_killed"):
            stderr += f"the memory limit of {config.memory_limit} was reached: the run was stopped"
        return SandboxResult(stdout, stderr, raw.get("exit_code") or 0)
