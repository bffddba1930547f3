"""Files of a sandbox."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any, Union, overload

from ..errors import FileMissingError, InvalidArgumentError, NotFoundError, RefusedError
from ..models import FileInfo
from . import io

if TYPE_CHECKING:
    from typing import Literal

    from .sandbox import AsyncSandbox

Data = Union[str, bytes, bytearray, memoryview, IO[bytes], IO[str], Iterable[bytes], AsyncIterable[bytes]]
PathLike = Union[str, "os.PathLike[str]"]
PIECE_BYTES = 256 << 10
WORKSPACE = "/workspace"


def absolute(path: PathLike) -> str:
    """As the code in the sandbox spells it: relative paths count from /workspace."""
    text = os.fspath(path)
    whole = os.path.normpath(text if text.startswith("/") else f"{WORKSPACE}/{text}")
    return whole


def is_outside(path: str) -> bool:
    """True if the daemon cannot reach the path: it reaches only the workspace, by its names in a box."""
    return path.startswith("/") and not (path + "/").startswith(("/workspace/", "/session/", "/sandbox/", "/work/"))


async def pieces_of(data: Data) -> AsyncIterator[bytes]:
    """What is to be written, piece by piece."""
    if isinstance(data, str):
        yield data.encode()
    elif isinstance(data, (bytes, bytearray, memoryview)):
        yield bytes(data)
    elif hasattr(data, "read"):
        while True:
            piece = data.read(PIECE_BYTES)
            if not piece:
                return
            yield piece.encode() if isinstance(piece, str) else piece
    else:
        async for piece in io.iterate(data):
            yield piece


class AsyncFiles:
    """Files of a sandbox: `sandbox.files`.

    Relative paths start at /workspace. A file appears whole or not at all, and missing directories are created.
    Files in the workspace are accessible at any time. For other paths, such as /tmp, the sandbox's Python does the
    work, after the current run, with the rights of the code in the sandbox.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def _ask(self, op: str, path: str, **more: Any) -> dict[str, Any]:
        if is_outside(path) or is_outside(str(more.get("to", path))):
            answer = await self._outside(op, path, str(more.get("to", "")))
            return {"entries": answer} if op == "file.list" else answer or {}
        try:
            return await self._sandbox._ask(op, path=path, **more)
        except NotFoundError as error:
            raise FileMissingError(f"{path}: {error.message}", error.code) from error

    async def _outside(self, op: str, path: str, other: str = "") -> Any:
        """What is not in the workspace: the code in the sandbox does it, with its own rights."""
        name, value = await self._sandbox._call_guest("outside", "file", op, path, other)
        if name is None:
            return value
        if name in ("FileNotFoundError", "NotADirectoryError"):
            raise FileMissingError(f"{path}: {value}", "not_found")
        if name == "PermissionError" or "Read-only" in str(value):
            raise RefusedError(f"{path}: the code in the sandbox has no right to it: {value}")
        raise InvalidArgumentError(f"{path}: {value}")

    @overload
    async def read(self, path: PathLike, format: Literal["text"] = "text", *, encoding: str = "utf-8") -> str: ...

    @overload
    async def read(self, path: PathLike, format: Literal["bytes"], *, encoding: str = "utf-8") -> bytes: ...

    @overload
    async def read(
        self, path: PathLike, format: Literal["stream"], *, encoding: str = "utf-8"
    ) -> AsyncIterator[bytes]: ...

    async def read(self, path: PathLike, format: str = "text", *, encoding: str = "utf-8") -> Any:
        """The content of a file: as text, as `"bytes"`, or as a `"stream"` of pieces that is never held whole."""
        if format not in ("text", "bytes", "stream"):
            raise InvalidArgumentError(f'format is "text", "bytes" or "stream", not {format!r}')
        stream = self.read_pieces(path)
        if format == "stream":
            return stream
        content = b"".join([piece async for piece in stream])
        return content if format == "bytes" else content.decode(encoding)

    async def read_pieces(self, path: PathLike, offset: int = 0, size: int | None = None) -> AsyncIterator[bytes]:
        """A part of a file, piece by piece."""
        where = absolute(path)
        self._sandbox._check_open()
        is_copy = is_outside(where)
        if is_copy:
            where = str(await self._outside("file.read", where))
        try:
            async for piece in self._sandbox._transport.read_file(self._sandbox.id, where, offset, size):
                yield piece
        except NotFoundError as error:
            raise self._sandbox._missing(error, where) from error
        finally:
            if is_copy:
                await self.remove(where)

    async def write(self, path: PathLike, data: Data, *, sync: bool = False) -> FileInfo:
        """Writes text, bytes, an open file, or an iterable of bytes. With `sync=True` it is on the disk on return."""
        where = absolute(path)
        self._sandbox._check_open()
        first = f"{WORKSPACE}/.glovebox/write-{os.urandom(8).hex()}" if is_outside(where) else where
        try:
            size = await self._sandbox._transport.write_file(self._sandbox.id, first, pieces_of(data), sync)
        except NotFoundError as error:
            raise self._sandbox._missing(error, where) from error
        if first != where:
            await self._outside("file.write", where, first)
        import time

        return FileInfo(where, "file", size, time.time())

    async def write_files(self, files: Mapping[str, Data] | Iterable[Any]) -> builtins.list[FileInfo]:
        """Writes several: `{"a.txt": "…"}`, `[("a.txt", "…")]` or, as in E2B, `[{"path": "a.txt", "data": "…"}]`."""
        pairs: Iterable[Any] = files.items() if isinstance(files, Mapping) else files
        written = []
        for pair in pairs:
            path, data = (pair["path"], pair["data"]) if isinstance(pair, Mapping) else pair
            written.append(await self.write(path, data))
        return written

    async def list(self, path: PathLike = WORKSPACE, depth: int = 1) -> builtins.list[FileInfo]:
        """The entries of a directory, by name; with a larger `depth` also those of its directories."""
        where = absolute(path)
        answer = await self._ask("file.list", where)
        found: list[FileInfo] = []
        for entry in answer.get("entries") or []:
            info = _info_of(f"{where.rstrip('/')}/{entry['path']}", entry)
            if info.path == WORKSPACE + "/.glovebox":
                continue  # values and background commands under way
            found.append(info)
            if info.is_dir and depth > 1:
                found += await self.list(info.path, depth - 1)
        return found

    async def get_info(self, path: PathLike) -> FileInfo:
        """Type, size and modification time of a path. Raises FileMissingError if it does not exist."""
        where = absolute(path)
        return _info_of(where, await self._ask("file.stat", where))

    async def exists(self, path: PathLike) -> bool:
        """Whether the file or directory exists."""
        try:
            await self.get_info(path)
        except FileMissingError:
            return False
        return True

    async def make_dir(self, path: PathLike) -> bool:
        """Creates a directory and its parents. Returns False if it existed."""
        where = absolute(path)
        if await self.exists(where):
            info = await self.get_info(where)
            if info.is_dir:
                return False
        await self._ask("file.mkdir", where)
        return True

    async def rename(self, old_path: PathLike, new_path: PathLike) -> FileInfo:
        """Moves a file or directory. Replaces an existing file."""
        await self._ask("file.move", absolute(old_path), to=absolute(new_path))
        return await self.get_info(new_path)

    async def remove(self, path: PathLike) -> None:
        """Removes a file, or a directory with its contents."""
        await self._ask("file.remove", absolute(path), recursive=True)

    async def download(self, path: PathLike, local: PathLike) -> str:
        """Copies a file or a folder to this machine and returns its path. Links are neither followed nor copied.

        `local` is the new file or folder. If it is an existing directory, or ends with a slash, the file is put into
        it.
        """
        where, target = absolute(path), os.fspath(local)
        info = await self.get_info(where)
        if info.is_dir:
            await self._download_folder(where, target)
            return target
        if os.path.isdir(target) or target.endswith(os.sep):
            target = os.path.join(target, info.name)
        await self._download_file(where, target)
        return target

    async def _download_folder(self, where: str, target: str) -> None:
        os.makedirs(target, exist_ok=True)
        for entry in await self.list(where):
            if entry.name in ("", ".", ".."):
                continue
            beside = os.path.join(target, entry.name)
            if os.path.islink(beside):
                raise InvalidArgumentError(f"{beside} is a link; remove it first, or choose another folder")
            if entry.is_dir:
                await self._download_folder(entry.path, beside)
            elif entry.is_file:
                await self._download_file(entry.path, beside)

    async def _download_file(self, where: str, target: str) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        partial = f"{target}.part-{os.getpid()}"
        try:
            with open(partial, "wb") as file:
                async for piece in self.read_pieces(where):
                    file.write(piece)
            os.replace(partial, target)
        except BaseException:
            if os.path.exists(partial):
                os.unlink(partial)
            raise

    async def upload(self, local: PathLike, path: PathLike | None = None) -> builtins.list[FileInfo]:
        """Copies a file or a folder into the sandbox and returns what was written. Links are followed.

        Without `path` it keeps its name. A path that ends with a slash is a directory to put it in.
        """
        source = os.fspath(local)
        name = os.path.basename(os.path.abspath(source))
        if path is None:
            where = absolute(name)
        elif os.fspath(path).endswith("/"):
            where = absolute(os.fspath(path) + name)
        else:
            where = absolute(path)
        if not os.path.isdir(source):
            with open(source, "rb") as file:
                return [await self.write(where, file)]
        await self.make_dir(where)
        written = []
        for directory, folders, names in os.walk(source):
            inside = os.path.normpath(os.path.join(where, os.path.relpath(directory, source)))
            for folder in folders:
                await self.make_dir(f"{inside}/{folder}")
            for each in sorted(names):
                with open(os.path.join(directory, each), "rb") as file:
                    written.append(await self.write(f"{inside}/{each}", file))
        return written


def _info_of(path: str, entry: Mapping[str, Any]) -> FileInfo:
    return FileInfo(path, entry.get("type") or "other", entry.get("size") or 0, (entry.get("modified") or 0) / 1000)
