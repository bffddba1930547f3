"""A run that brings all it needs and has its box for itself: standard input and files come with the request, and it
ends as a program ends."""

from __future__ import annotations

import _frozen_importlib
import atexit
import binascii
import builtins
import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any, Callable

from glovebox_kernel.program import space_clear, stream_open
from glovebox_kernel.refusal import RequestError


def text_open(text: str) -> int:
    """A descriptor of an anonymous file with this text, at its beginning."""
    fd = os.memfd_create("stdin")
    with open(fd, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@contextlib.contextmanager
def input_lent(text: str, plain_input: Callable[..., Any]) -> Iterator[None]:
    """The text is the standard input of one run of code, and of the processes that it starts."""
    before, kept = (sys.stdin, sys.__stdin__, builtins.input), os.dup(0)
    fd = text_open(text)
    os.dup2(fd, 0)
    os.close(fd)
    sys.stdin = sys.__stdin__ = stream_open(0, "<stdin>")  # type: ignore[misc]
    builtins.input = plain_input
    try:
        yield
    finally:
        sys.stdin, sys.__stdin__, builtins.input = before  # type: ignore[misc]
        os.dup2(kept, 0)
        os.close(kept)


def files_place(files: Any, workspace: str) -> None:
    """Writes the files that came with a request. The daemon has checked their names and their base64."""
    if not isinstance(files, dict):
        raise RequestError("files must be an object")
    for name, content in files.items():
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else _decode(content)
        path = os.path.join(workspace, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise RequestError(f"the file {name} cannot be written: {error.strerror or error}") from error


def _decode(content: Any) -> bytes:
    try:
        return binascii.a2b_base64(content["base64"])
    except (TypeError, KeyError, ValueError) as error:
        raise RequestError("a file is a text, or an object with base64") from error


def space_begin(space: dict[str, Any]) -> None:
    """What `__main__` of a program has besides."""
    space.setdefault("__annotations__", {})
    space["__loader__"] = _frozen_importlib.BuiltinImporter


def space_end(space: dict[str, Any]) -> None:
    """Objects of the program end before it does: their `__del__` is called."""
    gc.collect()  # what may still need the names of the space
    space_clear(space)
    gc.collect()


def threads_join() -> None:
    """As the interpreter does when its main thread has ended."""
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()


def exit_handlers_call() -> None:
    atexit._run_exitfuncs()


def exit_code_clip(code: Any) -> Any:
    """The part of it that the parent of a process sees."""
    if not isinstance(code, int):
        return code
    return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
