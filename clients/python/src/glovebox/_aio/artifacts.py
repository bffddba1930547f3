"""Files that runs left below artifacts/."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ..models import Artifact, artifact_of

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

DIRECTORY = "/workspace/artifacts"


class AsyncArtifacts:
    """What runs have left below /workspace/artifacts, figures included: `sandbox.artifacts`. Iterable."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def list(self) -> builtins.list[Artifact]:
        """All of them."""
        answer = await self._sandbox._ask("artifact.list")
        return [artifact_of(item) for item in answer.get("artifacts") or []]

    async def __call__(self) -> builtins.list[Artifact]:
        return await self.list()

    async def __aiter__(self) -> AsyncIterator[Artifact]:
        for artifact in await self.list():
            yield artifact

    async def read(self, artifact: Artifact | str) -> bytes:
        """The content of one."""
        path = artifact.path if isinstance(artifact, Artifact) else artifact
        return await self._sandbox.files.read(_below(path), "bytes")

    async def download(
        self, local: str | os.PathLike[str], artifact: Artifact | str | None = None
    ) -> builtins.list[str]:
        """Copies one of them, or all, into a local directory; where they lie now."""
        chosen = await self.list() if artifact is None else [artifact]
        copied = []
        for one in chosen:
            path = _below(one.path if isinstance(one, Artifact) else one)
            inside = os.path.relpath(path, DIRECTORY)
            if inside.startswith(".."):
                inside = os.path.basename(path)
            copied.append(await self._sandbox.files.download(path, os.path.join(os.fspath(local), inside)))
        return copied


def _below(path: str) -> str:
    """As the code wrote it, or only its name."""
    return path if path.startswith("/") or path.startswith("artifacts/") else f"{DIRECTORY}/{path}"
