"""Shared by adapters: a sandbox created on first use, blocking and asyncio, and a run as text for a model."""

from __future__ import annotations

import threading
from typing import Any

from .. import AsyncSandbox, Sandbox
from .._aio.client import transport_for
from ..models import Execution, SandboxInfo

OUTPUT_MAX = 20000  # characters of each stream that a model sees


class Boxes:
    """One sandbox for each key, made on first use with these options; or the one given, for every key."""

    def __init__(self, sandbox: Sandbox | None = None, options: dict[str, Any] | None = None) -> None:
        self._given = sandbox
        self._options = dict(options or {})
        self._made: dict[str, Sandbox] = {}
        self._lock = threading.Lock()

    def get(self, key: str = "") -> Sandbox:
        if self._given is not None:
            return self._given
        with self._lock:
            if key not in self._made:
                self._made[key] = Sandbox.create(**self._options)
            return self._made[key]

    def close(self) -> None:
        """Ends every sandbox that was made here. The next use makes new ones."""
        with self._lock:
            made, self._made = self._made, {}
        for sandbox in made.values():
            sandbox.kill()

    def __deepcopy__(self, memo: dict[int, Any]) -> Boxes:
        """Frameworks copy their tools; the copies share the sandboxes."""
        return self


def as_async(sandbox: Sandbox) -> AsyncSandbox:
    """The same sandbox for `await`. Cancelling a call interrupts the code, which a thread could not do."""
    info = SandboxInfo({"id": sandbox.id, "name": sandbox.name})
    return AsyncSandbox(transport_for(sandbox._transport.target), info, False, False)


def describe(execution: Execution) -> str:
    """A run as text for a model: output, value, error, files and images."""
    parts = [cut(execution.stdout), cut(execution.stderr)]
    if execution.text is not None:
        parts.append(cut(execution.text))
    if execution.error is not None:
        parts.append(cut(execution.error.traceback or str(execution.error)))
    if execution.variables_lost:
        parts.append("[Python was started again: variables are lost, files are there]")
    images = [kind for result in execution.results for kind in result.data if kind.startswith("image/")]
    if images:
        parts.append(f"[shown: {', '.join(images)}]")
    if execution.artifacts:
        parts.append(f"[files: {', '.join(artifact.path for artifact in execution.artifacts)}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return text or f"[no output; status: {execution.status}]"


def cut(text: str) -> str:
    """The text, or its beginning and its end where it is longer than a model should see."""
    if len(text) <= OUTPUT_MAX:
        return text
    half = OUTPUT_MAX // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
