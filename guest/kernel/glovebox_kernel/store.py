"""`save(df, name)` and `load(name)`: tables kept as Parquet in the session's data directory.

A file is written under no name, or a temporary one, made durable, and only then given its name: a kill at any moment
leaves the old file or the new one. What was saved comes back as what it was: a note in the file's metadata says so.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Callable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_SUFFIX = ".parquet"
_NOTE = b"glovebox"
_ACCEPTED = "a pandas DataFrame or Series, a numpy array or a pyarrow Table"
_COLUMNS_MAX = 2000


class StoreError(Exception):
    """save() or load() failed."""


def save(df: Any, name: str) -> str:
    """Keep a DataFrame, Series, numpy array or pyarrow Table under a name; returns the file's path."""
    name = _check_name(name)
    if isinstance(df, str):
        raise StoreError(f"save() takes the data first and the name second: save(df, {df!r})")
    table, note = _table_from(df)
    metadata = dict(table.schema.metadata or {})
    metadata[_NOTE] = json.dumps(note).encode()
    table = table.replace_schema_metadata(metadata)
    parquet = _pyarrow("parquet")
    with _data_directory() as directory_fd:
        _write_atomically(directory_fd, name + _SUFFIX, lambda file: parquet.write_table(table, file))
    return os.path.join(_data_path(), name + _SUFFIX)


def load(name: str) -> Any:
    """What save() kept under this name (or any Parquet file `name`.parquet in the data directory)."""
    name = _check_name(name)
    parquet = _pyarrow("parquet")
    with _data_directory() as directory_fd:
        try:
            fd = os.open(
                name + _SUFFIX, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory_fd
            )
        except FileNotFoundError:
            raise StoreError(_missing_message(name, directory_fd)) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StoreError(f"{name}{_SUFFIX} is a symbolic link, which load() does not follow") from None
            raise
        with open(fd, "rb") as file:
            try:
                table = parquet.read_table(file)
            except (OSError, ValueError) as error:
                raise StoreError(f"{name}{_SUFFIX} is not a readable Parquet file: {error}") from error
    return _table_to(table)


# Names and files.


def _check_name(name: Any) -> str:
    """The name without the suffix, which may be given."""
    if not isinstance(name, str):
        raise StoreError(f"the name must be text, not {type(name).__name__}: save(df, 'sales')")
    if not _NAME.match(name):
        raise StoreError(
            f"{name!r} is not a name: use 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or "
            "digit (no directories, no '.parquet' needed)"
        )
    return name[: -len(_SUFFIX)] if name.endswith(_SUFFIX) and name != _SUFFIX else name


def _data_path() -> str:
    return os.path.join(os.environ.get("WORKSPACE_DIR") or "/workspace", "data")


@contextlib.contextmanager
def _data_directory() -> Iterator[int]:
    path = _data_path()
    os.makedirs(path, mode=0o755, exist_ok=True)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{path} is not a directory that can be used: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _missing_message(name: str, directory_fd: int) -> str:
    names = sorted(entry[: -len(_SUFFIX)] for entry in os.listdir(directory_fd) if entry.endswith(_SUFFIX))
    names = [entry for entry in names if _NAME.match(entry)]
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"nothing is saved under {name!r} in {_data_path()}; there is: {shown or 'nothing'}"


def _write_atomically(directory_fd: int, target: str, write: Callable[[BinaryIO], None]) -> None:
    temporary = f".{os.urandom(8).hex()}.tmp"
    file, is_named = _open_temporary(directory_fd, temporary)
    try:
        with file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            if not is_named:
                # linkat on the magic link is how a file without a name gets one (open(2), O_TMPFILE).
                os.link(f"/proc/self/fd/{file.fileno()}", temporary, dst_dir_fd=directory_fd, follow_symlinks=True)
                is_named = True
        os.rename(temporary, target, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except BaseException:
        if is_named:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory_fd)
        raise
    os.fsync(directory_fd)


def _open_temporary(directory_fd: int, name: str) -> tuple[BinaryIO, bool]:
    """A file without a name leaves nothing behind when the kernel is killed; not every file system has them."""
    if os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            return open(os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644, dir_fd=directory_fd), "wb"), False
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(name, flags, 0o644, dir_fd=directory_fd), "wb"), True


# Kinds of data.


def _pyarrow(part: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise StoreError(f"save() and load() need pyarrow, which this image does not have: {error}") from error
    return pyarrow.parquet if part == "parquet" else pyarrow


def _table_from(data: Any) -> tuple[Any, dict[str, Any]]:
    kind = type(data)
    root = kind.__module__.partition(".")[0]
    try:
        if root == "pandas" and kind.__name__ == "Series":
            return _table_from_series(data)
        if root == "numpy" and hasattr(data, "dtype") and hasattr(data, "shape") and kind.__name__ == "ndarray":
            return _table_from_array(data)
        pyarrow = _pyarrow("base")
        if isinstance(data, pyarrow.Table):
            return data, {"kind": "table"}
        if hasattr(data, "_mgr") and hasattr(data, "to_parquet"):
            return pyarrow.Table.from_pandas(data), {"kind": "frame"}
    except (ValueError, TypeError, NotImplementedError) as error:
        raise StoreError(f"this {kind.__name__} cannot be kept as Parquet: {error}") from error
    raise StoreError(f"save() takes {_ACCEPTED}, not {kind.__name__}; pickle or json can keep other things")


def _table_from_series(series: Any) -> tuple[Any, dict[str, Any]]:
    name = series.name
    if name is not None and not isinstance(name, (str, int, float, bool)):
        raise TypeError(f"the name of a Series must be text or a number, not {type(name).__name__}")
    frame = series.to_frame("value")
    return _pyarrow("base").Table.from_pandas(frame), {"kind": "series", "name": name}


def _table_from_array(array: Any) -> tuple[Any, dict[str, Any]]:
    pyarrow = _pyarrow("base")
    note: dict[str, Any] = {"kind": "array", "dtype": array.dtype.str, "shape": list(array.shape)}
    if array.dtype.kind not in "biufUmMc" or array.dtype.char in "gG":
        raise TypeError(f"arrays of dtype {array.dtype} have no Parquet form; convert with astype() first")
    if array.dtype.kind == "c":
        # Two columns' worth of real numbers: the last axis doubles.
        array = array.reshape(*array.shape, 1).copy().view(array.real.dtype)
    if array.dtype.kind == "m" or array.dtype.kind == "M":
        array = array.astype(array.dtype.newbyteorder("=")).view("i8")
    elif array.dtype.str[0] == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    if array.ndim == 2 and array.shape[1] <= _COLUMNS_MAX and note["dtype"][1] != "c":
        note["layout"] = "columns"
        columns = {str(number): array[:, number] for number in range(array.shape[1])}
    else:
        note["layout"] = "flat"
        columns = {"value": array.reshape(-1)}
    arrays = [pyarrow.array(column.tolist() if column.dtype.kind == "U" else column) for column in columns.values()]
    return pyarrow.Table.from_arrays(arrays, names=list(columns)), note


def _table_to(table: Any) -> Any:
    try:
        note = json.loads((table.schema.metadata or {}).get(_NOTE, b"{}"))
    except ValueError:
        note = {}
    kind = note.get("kind", "frame")
    if kind == "table":
        metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key != _NOTE}
        return table.replace_schema_metadata(metadata or None)
    if kind == "array":
        return _table_to_array(table, note)
    frame = table.to_pandas()
    if kind != "series":
        return frame
    series = frame["value"]
    series.name = note["name"]
    return series


def _table_to_array(table: Any, note: dict[str, Any]) -> Any:
    import numpy

    dtype, shape = numpy.dtype(note["dtype"]), tuple(note["shape"])
    columns = [column.to_numpy() for column in table.columns]
    if note["layout"] == "columns":
        array = numpy.empty(shape, _stored_dtype(dtype))
        for number, column in enumerate(columns):
            array[:, number] = column
    else:
        array = columns[0]
    if dtype.kind in "mM":
        return array.astype("i8").view(dtype.newbyteorder("=")).astype(dtype).reshape(shape)
    if dtype.kind == "c":
        return numpy.ascontiguousarray(array).view(dtype.newbyteorder("=")).astype(dtype).reshape(shape)
    return numpy.array(array, dtype=dtype).reshape(shape)


def _stored_dtype(dtype: Any) -> Any:
    return "i8" if dtype.kind in "mM" else dtype
