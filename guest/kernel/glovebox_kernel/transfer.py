"""Values between the host and this box, for clients: `Sandbox.get` and `Sandbox.set` of the Python package.

Out of the box goes only what a reader can take without running anything: JSON text (with marks for what JSON lacks),
tables as Arrow, arrays as NPY. Into the box, which runs arbitrary code anyway, pickles are accepted as well.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import sys
from typing import Any, Callable

MIME = "application/vnd.glovebox.value+json"
INLINE_MAX_CHARS = 256 << 10
DEPTH_MAX = 100
HIDDEN_DIRECTORY = ".glovebox"
_WAY_OUT = "get a part of it or another form of it: an expression will do, such as get('str(x)') or get('x.to_dict()')"


class Given:
    """What `give` returns: the description of a value, as the result of a run."""

    def __init__(self, description: dict[str, Any]) -> None:
        self._description = description

    def __repr__(self) -> str:
        return f"<{self._description['kind']} on its way out>"

    def _repr_mimebundle_(self) -> dict[str, Any]:
        return {MIME: self._description}


def give(expression: str, namespace: dict[str, Any], formats: list[str]) -> Given:
    """The value of an expression, described; what is large is a file below /workspace/.glovebox, to be removed."""
    value = eval(compile(expression, "<get>", "eval"), namespace)
    described = _give_table(value, formats) or _give_array(value, formats)
    if described is None:
        text = json.dumps(_mark(value, DEPTH_MAX), allow_nan=False)
        if len(text) <= INLINE_MAX_CHARS and "\\u0000" not in text:
            described = {"kind": "json", "text": text}
        else:
            path = _new_path("json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            described = {"kind": "json", "path": path}
    return Given(described)


def take(name: str, kind: str, path: str, namespace: dict[str, Any]) -> None:
    """Binds a name to what the host wrote into a file, and removes that."""
    try:
        namespace[name] = _read(kind, path)
    finally:
        os.unlink(path)


def _read(kind: str, path: str) -> Any:
    if kind == "pickle":
        import pickle

        with open(path, "rb") as file:
            return pickle.load(file)
    if kind == "npy":
        import numpy

        return numpy.load(path, allow_pickle=False)
    import pyarrow

    with open(path, "rb") as file:
        table = pyarrow.ipc.open_file(file.read()).read_all()
    if kind == "arrow":
        return table
    frame = table.to_pandas()
    return frame[frame.columns[0]] if kind == "series" else frame


def _new_path(suffix: str) -> str:
    directory = os.path.join(os.environ.get("WORKSPACE_DIR", "/workspace"), HIDDEN_DIRECTORY)
    os.makedirs(directory, exist_ok=True)
    return os.path.join(directory, f"get-{secrets.token_hex(8)}.{suffix}")


def _refuse(value: Any, why: str) -> TypeError:
    return TypeError(f"a {type(value).__module__}.{type(value).__qualname__} {why}; {_WAY_OUT}")


def _give_table(value: Any, formats: list[str]) -> dict[str, Any] | None:
    pandas, pyarrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    kind = None
    if pandas is not None and isinstance(value, pandas.DataFrame):
        kind = "frame"
    elif pandas is not None and isinstance(value, pandas.Series):
        kind = "series"
    elif pyarrow is not None and isinstance(value, pyarrow.Table):
        kind = "arrow"
    if kind is None:
        return None
    if "arrow" not in formats:
        raise _refuse(value, "leaves the sandbox as Arrow, and the program outside has no pyarrow (install it there)")
    try:
        import pyarrow
    except ImportError:
        raise _refuse(value, "leaves the sandbox as Arrow, and this sandbox has no pyarrow (install it)") from None
    table = value
    if kind == "series":
        table = value.to_frame("value") if value.name is None else value.to_frame()
    if kind != "arrow":
        table = pyarrow.Table.from_pandas(table)
    path = _new_path("arrow")
    with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return {"kind": kind, "path": path, "unnamed": kind == "series" and value.name is None}


def _give_array(value: Any, formats: list[str]) -> dict[str, Any] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.generic) and not value.dtype.hasobject and value.ndim == 0:
        plain = value.item()
        return {"kind": "json", "text": json.dumps(_mark(plain, DEPTH_MAX))} if type(plain) in _PLAIN else None
    if not isinstance(value, numpy.ndarray):
        return None
    if value.dtype.hasobject:
        raise _refuse(value, "of Python objects cannot leave the sandbox as an array")
    if "npy" not in formats:
        raise _refuse(value, "leaves the sandbox as NPY, and the program outside has no numpy (install it there)")
    path = _new_path("npy")
    with open(path, "wb") as file:
        numpy.save(file, value, allow_pickle=False)
    return {"kind": "npy", "path": path}


_PLAIN = (bool, int, float, str, type(None))


def _mark(value: Any, depth: int) -> Any:
    """As JSON. A type that JSON lacks is an object with the one member `$`: the type, and its contents."""
    kind = type(value)
    if depth == 0:
        raise _refuse(value, f"is nested more than {DEPTH_MAX} deep")
    if kind in (bool, str, type(None)):
        return value
    if kind is int:
        return value if -(2**53) <= value <= 2**53 else {"$": ["int", hex(value)]}
    if kind is float:
        return value if math.isfinite(value) else {"$": ["float", repr(value)]}
    if kind is list:
        return [_mark(item, depth - 1) for item in value]
    if kind in (tuple, set, frozenset):
        return {"$": [kind.__name__, [_mark(item, depth - 1) for item in value]]}
    if kind is dict:
        if all(type(key) is str for key in value) and "$" not in value:
            return {key: _mark(item, depth - 1) for key, item in value.items()}
        return {"$": ["dict", [[_mark(key, depth - 1), _mark(item, depth - 1)] for key, item in value.items()]]}
    return _mark_other(value, kind)


# Module and name of a type, and what stands for a value of it.
_OTHER_MARKS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("datetime", "datetime"): lambda value: value.isoformat(),
    ("datetime", "date"): lambda value: value.isoformat(),
    ("datetime", "time"): lambda value: value.isoformat(),
    ("datetime", "timedelta"): lambda value: [value.days, value.seconds, value.microseconds],
    ("decimal", "Decimal"): str,
    ("uuid", "UUID"): str,
}


def _mark_other(value: Any, kind: type) -> Any:
    module, name = kind.__module__, kind.__qualname__
    if kind in (bytes, bytearray):
        import base64

        return {"$": [name, base64.b64encode(value).decode()]}
    if kind is complex:
        return {"$": ["complex", repr(value)]}
    mark = _OTHER_MARKS.get((module, name))
    if mark:
        return {"$": [name, mark(value)]}
    if module.startswith("pathlib") and name.endswith("Path"):
        return {"$": ["Path", str(value)]}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and type(value.item()) in _PLAIN:
        return _mark(value.item(), 1)
    raise _refuse(value, "cannot leave the sandbox: objects would have to be unpickled outside, which runs their code")
