"""Deep Agents: a sandbox backend.

    from deepagents import create_deep_agent
    from glovebox.integrations.deepagents import GloveboxBackend

    with GloveboxBackend() as backend:
        agent = create_deep_agent(model=model, backend=backend)

Needs `deepagents` (`pip install "glovebox-sandbox[deepagents]"`).
"""

from __future__ import annotations

from typing import Any

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from .. import Sandbox
from ..errors import FileMissingError, GloveboxError, RefusedError

TIMEOUT_STATUS = 124  # as timeout(1) has it


class GloveboxBackend(BaseSandbox):  # type: ignore[misc,unused-ignore]
    """Commands and files of an agent in a sandbox: the one given, or one of its own, made with these options."""

    def __init__(self, sandbox: Sandbox | None = None, **options: Any) -> None:
        self._is_owner = sandbox is None
        self.sandbox = sandbox if sandbox is not None else Sandbox.create(**options)

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. Status 124: its time was up."""
        done = self.sandbox.commands.run(command, check=False, timeout=timeout or None)
        output = "\n".join(part.rstrip("\n") for part in (done.stdout, done.stderr) if part)
        if done.status == "timeout":
            return ExecuteResponse(f"{output}\n{done.error or 'the time limit was reached'}".lstrip(), TIMEOUT_STATUS)
        if done.status not in ("ok", "error"):
            output = f"{output}\n{done.error or done.status}".lstrip()
        return ExecuteResponse(output, done.exit_code)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def close(self) -> None:
        """Ends the sandbox, unless it was given."""
        if self._is_owner:
            self.sandbox.kill()

    def __enter__(self) -> GloveboxBackend:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self.sandbox.files.write(path, content)
        except GloveboxError as error:
            return _word_for(error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self.sandbox.files.read(path, "bytes"))
        except GloveboxError as error:
            return FileDownloadResponse(path=path, error=_word_for(error))


def _word_for(error: GloveboxError) -> str:
    text = str(error).lower()
    if isinstance(error, FileMissingError):
        return "file_not_found"
    if "is a directory" in text or "not a regular file" in text:
        return "is_directory"
    if isinstance(error, RefusedError) or "permission" in text:
        return "permission_denied"
    return str(error)
