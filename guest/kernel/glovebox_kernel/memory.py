"""Where the bytes of big data are: from the user's variables to ranges of this process's memory.

Arrays are looked at by the array that owns the memory, so a view and its base are one range. Nothing here imports
numpy, pandas or pyarrow: what is not loaded cannot be in a variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
_VISITS_MAX = 200_000
_REGION_MIN_BYTES = 16 * PAGE

Region = tuple  # (address, bytes)


def array_root(array: Any) -> Any:
    """The array at the end of the chain of bases. Views made by stride tricks have a dummy in between."""
    ndarray = sys.modules["numpy"].ndarray  # type: ignore[attr-defined]
    while True:
        base = array.base
        if isinstance(base, ndarray):
            array = base
        elif type(base).__name__ == "DummyArray" and isinstance(getattr(base, "base", None), ndarray):
            array = base.base
        else:
            return array


class RegionFinder:
    """Walks values and what they contain, and gathers the memory of data that is large enough."""

    def __init__(self, frame_min_bytes: int, array_min_bytes: int) -> None:
        self._frame_min = frame_min_bytes
        self._array_min = array_min_bytes
        self._seen: set[int] = set()
        self._keep: list[Any] = []
        numpy, pandas, pyarrow = (sys.modules.get(name) for name in ("numpy", "pandas", "pyarrow"))
        self._ndarray: Any = getattr(numpy, "ndarray", ())
        self._frames: Any = tuple(
            getattr(pandas, name) for name in ("DataFrame", "Series", "Index") if hasattr(pandas, name)
        )
        self._extension_array: Any = getattr(getattr(pandas, "api", None), "extensions", None)
        self._extension_array = getattr(self._extension_array, "ExtensionArray", ())
        self._tables: Any = tuple(
            getattr(pyarrow, name)
            for name in ("Table", "RecordBatch", "ChunkedArray", "Array")
            if hasattr(pyarrow, name)
        )

    def find(self, value: Any) -> list[Region]:
        """The regions of one variable that no earlier call has given."""
        regions: list[Region] = []
        todo = [value]
        while todo and len(self._seen) < _VISITS_MAX:
            one = todo.pop()
            if id(one) in self._seen or isinstance(one, (str, int, float, bytes, type(None), type)):
                continue
            self._seen.add(id(one))
            self._keep.append(one)  # an id means nothing once its object is gone
            if isinstance(one, self._ndarray):
                regions += self._array_regions(one, self._array_min)
            elif isinstance(one, (self._frames, self._tables, self._extension_array)):
                parts = list(self._parts_of(one))
                if sum(size for _, size in parts) >= self._frame_min:
                    regions += parts
            else:
                todo += _contents(one)
        return regions

    def _array_regions(self, array: Any, minimum: int) -> list[Region]:
        root = array_root(array)
        if not root.flags.owndata or root.dtype.hasobject or root.nbytes < max(minimum, _REGION_MIN_BYTES):
            return []
        return [(root.__array_interface__["data"][0], root.nbytes)]

    def _parts_of(self, value: Any) -> Iterable[Region]:
        """The memory under a frame, a series, an index, an extension array or an Arrow thing."""
        if isinstance(value, self._ndarray):
            yield from self._array_regions(value, 0)
        elif isinstance(value, self._tables):
            yield from _arrow_regions(value)
        elif hasattr(value, "_mgr"):
            for block in getattr(value._mgr, "blocks", ()):
                yield from self._parts_of(block.values)
            for axis in getattr(value._mgr, "axes", ()):
                yield from self._parts_of(axis)
        else:
            for one in _inner_arrays(value):
                if isinstance(one, (self._ndarray, self._tables, self._extension_array)):
                    yield from self._parts_of(one)


def _inner_arrays(value: Any) -> Iterable[Any]:
    """Of an index or an extension array: what its well-known attributes hold."""
    for name in ("_data", "_ndarray", "_mask", "_pa_array", "_codes", "_sparse_values"):
        part = getattr(value, name, None)
        if part is not None and part is not value:
            yield from part if isinstance(part, (list, tuple)) else (part,)


def _arrow_regions(value: Any) -> Iterable[Region]:
    for array in _arrow_arrays(value):
        for buffer in array.buffers():
            if buffer is not None and buffer.size >= _REGION_MIN_BYTES and buffer.is_cpu:
                yield buffer.address, buffer.size


def _arrow_arrays(value: Any) -> Iterable[Any]:
    if hasattr(value, "columns"):
        for column in value.columns:
            yield from _arrow_arrays(column)
    elif hasattr(value, "chunks"):
        yield from value.chunks
    else:
        yield value


def _contents(value: Any) -> list[Any]:
    """What a plain container or an ordinary object holds. Subclasses may lie: only the exact types are trusted."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return list(value)
    if kind is dict:
        return list(value.values())
    if kind.__module__ in ("builtins", "sys") or isinstance(value, type(sys)):
        return []
    attributes = getattr(value, "__dict__", None)
    return list(attributes.values()) if type(attributes) is dict else []


def regions_merge(regions: list[Region]) -> list[Region]:
    """Whole pages only, sorted, no two overlapping."""
    merged: list[Region] = []
    for address, size in sorted(regions):
        start, end = -(-address // PAGE) * PAGE, (address + size) // PAGE * PAGE
        if merged and start < merged[-1][0] + merged[-1][1]:
            last_start, last_size = merged[-1]
            merged[-1] = (last_start, max(last_size, end - last_start))
        elif end > start:
            merged.append((start, end - start))
    return merged


def regions_private(regions: list[Region]) -> list[Region]:
    """Only those that are wholly private, anonymous, writable memory: what a file backs is not ours to drop."""
    spans: list[list[int]] = []
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if fields[1] != "rw-p" or fields[4] != "0" or len(fields) > 5 and fields[5].startswith("[stack"):
                continue
            start, end = (int(part, 16) for part in fields[0].split("-"))
            if spans and spans[-1][1] == start:
                spans[-1][1] = end
            else:
                spans.append([start, end])
    kept = []
    index = 0
    for address, size in regions:
        while index < len(spans) and spans[index][1] <= address:
            index += 1
        if index < len(spans) and spans[index][0] <= address and address + size <= spans[index][1]:
            kept.append((address, size))
    return kept
