"""Values on their way to a sandbox and back. What comes from a sandbox is never unpickled: it may be hostile.

The other half is guest/kernel/glovebox_kernel/transfer.py.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Callable

from .errors import InvalidArgumentError, ProtocolError, TransferError

MIME = "application/vnd.glovebox.value+json"
HIDDEN_DIRECTORY = "/workspace/.glovebox"
_MODULE = "__import__('glovebox_kernel.transfer', fromlist=['give'])"


def _has(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return module in sys.modules or find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def code_to_give(expression: str) -> str:
    if not isinstance(expression, str) or not expression.strip():
        raise InvalidArgumentError("get takes the name of a variable, or an expression, as text")
    formats = [name for name, module in (("arrow", "pyarrow"), ("npy", "numpy")) if _has(module)]
    return f"{_MODULE}.give({expression.strip()!r}, globals(), {formats!r})"


def code_to_take(name: str, kind: str, path: str) -> str:
    return f"{_MODULE}.take({name!r}, {kind!r}, {path!r}, globals())"


def check_name(name: str) -> None:
    import keyword

    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidArgumentError(f"{name!r} is not a name for a variable")


def pack(value: Any) -> tuple[str, bytes]:
    """How a value travels into a sandbox: its kind, and its bytes."""
    module = type(value).__module__.partition(".")[0]
    if module in ("pandas", "pyarrow") and _has("pyarrow"):
        packed = _pack_table(value)
        if packed is not None:
            return packed
    if module == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject:
        import io

        import numpy

        if type(value) is numpy.ndarray:
            buffer = io.BytesIO()
            numpy.save(buffer, value, allow_pickle=False)
            return "npy", buffer.getvalue()
    import pickle

    try:
        return "pickle", pickle.dumps(value, 5)
    except Exception as error:
        raise TransferError(
            f"a {type(value).__qualname__} cannot be pickled ({error}); send what it is made of, or a file of it"
        ) from error


def _pack_table(value: Any) -> tuple[str, bytes] | None:
    import pyarrow

    pandas = sys.modules.get("pandas")
    try:
        if isinstance(value, pyarrow.Table):
            return "arrow", _table_bytes(value)
        if pandas is not None and type(value) is pandas.DataFrame:
            return "frame", _table_bytes(pyarrow.Table.from_pandas(value))
        if pandas is not None and type(value) is pandas.Series and value.name is not None:
            return "series", _table_bytes(pyarrow.Table.from_pandas(value.to_frame()))
    except pyarrow.ArrowException:
        pass  # a column of objects that Arrow does not know: a pickle takes it
    return None


def _table_bytes(table: Any) -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def description_of(data: dict[str, Any]) -> dict[str, Any]:
    """The description in the result of a run that gave something."""
    description = data.get(MIME)
    if not isinstance(description, dict) or not isinstance(description.get("kind"), str):
        raise ProtocolError("the sandbox did not describe the value; is its daemon of another version?")
    path = description.get("path")
    if path is not None and not (isinstance(path, str) and path.startswith(HIDDEN_DIRECTORY + "/")):
        raise ProtocolError("the sandbox named a file that is none of a value's")
    return description


def unpack(description: dict[str, Any], content: bytes | None) -> Any:
    """The value. Nothing in here runs what the sandbox sent."""
    kind = description["kind"]
    try:
        if kind == "json":
            return _unmark(json.loads(description["text"] if content is None else content))
        if kind == "npy":
            import io

            import numpy

            return numpy.load(io.BytesIO(content or b""), allow_pickle=False)
        if kind in ("frame", "series", "arrow"):
            return _unpack_table(kind, content or b"", bool(description.get("unnamed")))
    except TransferError:
        raise
    except Exception as error:  # numpy and pyarrow have their own kinds for what is damaged
        raise TransferError(f"what the sandbox sent is no value of kind {kind}: {error}") from error
    raise TransferError(f"the sandbox sent a value of kind {kind!r}, which this version does not know")


def _unpack_table(kind: str, content: bytes, is_unnamed: bool) -> Any:
    import pyarrow

    if tuple(int(part) for part in pyarrow.__version__.split(".")[:2]) < (14, 0):
        raise TransferError("pyarrow before 14.0.1 runs code that a table names; install a newer one")
    table = pyarrow.ipc.open_file(pyarrow.BufferReader(content)).read_all()
    table.validate(full=True)
    if kind == "arrow" or not _has("pandas"):
        return table
    frame = table.to_pandas()
    if kind == "frame":
        return frame
    series = frame[frame.columns[0]]
    return series.rename(None) if is_unnamed else series


def _time(name: str) -> Callable[[Any], Any]:
    def make(text: Any) -> Any:
        import datetime

        return getattr(datetime, name).fromisoformat(text)

    return make


def _bytes(text: Any) -> bytes:
    import base64

    return base64.b64decode(text, validate=True)


def _timedelta(parts: Any) -> Any:
    import datetime

    return datetime.timedelta(*parts)


def _decimal(text: Any) -> Any:
    import decimal

    return decimal.Decimal(text)


def _uuid(text: Any) -> Any:
    import uuid

    return uuid.UUID(text)


def _path(text: Any) -> Any:
    import pathlib

    return pathlib.PurePosixPath(text)


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "complex": complex,
    "tuple": lambda items: tuple(_unmark(item) for item in items),
    "set": lambda items: {_unmark(item) for item in items},
    "frozenset": lambda items: frozenset(_unmark(item) for item in items),
    "dict": lambda items: {_unmark(key): _unmark(item) for key, item in items},
    "bytes": _bytes,
    "bytearray": lambda text: bytearray(_bytes(text)),
    "datetime": _time("datetime"),
    "date": _time("date"),
    "time": _time("time"),
    "timedelta": _timedelta,
    "Decimal": _decimal,
    "UUID": _uuid,
    "Path": _path,
}


def _unmark(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmark(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {"$"}:
            kind, content = value["$"]
            return _MAKERS[kind](content)
        return {key: _unmark(item) for key, item in value.items()}
    return value
