"""Files of the box that are not in its workspace, for clients: `sandbox.files` of the Python package.

The daemon reaches the workspace and nothing else. For /tmp or the home directory the code in the box does the work,
with its own rights; content goes through files below /workspace/.glovebox.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import Any

from glovebox_kernel.transfer import Given, _mark, _new_path


def file(op: str, path: str, other: str = "") -> Given:
    """One of the operations below; what it answers is JSON."""
    import json

    return Given({"kind": "json", "text": json.dumps(_mark(_OPERATIONS[op](path, other), 10))})


def _describe(path: str, status: os.stat_result) -> dict[str, Any]:
    mode = status.st_mode
    kind = "directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"
    kind = "file" if stat.S_ISREG(mode) else kind
    return {"path": path, "type": kind, "size": status.st_size, "modified": status.st_mtime_ns // 1_000_000}


def _stat(path: str, _: str) -> Any:
    return _describe(path, os.lstat(path))


def _list(path: str, _: str) -> Any:
    with os.scandir(path) as entries:
        found = [_describe(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    return sorted(found, key=lambda entry: entry["path"])


def _read(path: str, _: str) -> Any:
    """A copy that can be reached from outside, to be removed by the caller."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise IsADirectoryError(21, "it is not a regular file", path)
    copy = _new_path("copy")
    shutil.copyfile(path, copy)
    return copy


def _write(path: str, source: str) -> Any:
    """Moves what was written into the workspace to its place: there whole, or not at all."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{os.path.basename(source)}"
        shutil.copyfile(source, partial)
        os.replace(partial, path)
    finally:
        os.unlink(source)


def _mkdir(path: str, _: str) -> Any:
    os.makedirs(path, exist_ok=True)


def _move(path: str, target: str) -> Any:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.move(path, target)


def _remove(path: str, _: str) -> Any:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


_OPERATIONS = {
    "file.stat": _stat,
    "file.list": _list,
    "file.read": _read,
    "file.write": _write,
    "file.mkdir": _mkdir,
    "file.move": _move,
    "file.remove": _remove,
}
