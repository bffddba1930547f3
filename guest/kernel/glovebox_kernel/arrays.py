"""Saving numpy, pandas and pyarrow data: memory once, views as views, nothing copied on the way to the file.

numpy's own pickling copies a view as if it were data of its own. Here the array that owns the memory is saved, and a
view as (owner, dtype, shape, strides, offset). pandas' copy-on-write bookkeeping (`refs`) is not part of its pickles
either; without it two frames over the same memory would write into each other after a wake, so it is saved as well.
Functions named `*_restore` are called from sleep files: their names and arguments are part of the format.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable
from typing import Any, Callable

from glovebox_kernel import sleep_file
from glovebox_kernel.memory import array_root
from glovebox_kernel.sleep_file import SMALL_BYTES, SleepFileWriter

Reducer = Callable[[Any], Any]


class SpoiltError(Exception):
    """The value refers to memory that was damaged on the disk."""


class ArrayReducers:
    """Reduce functions for one file. `table` maps exact types to them; `find` looks at base classes."""

    def __init__(self, writer: SleepFileWriter, spoilt: Iterable[Any] = ()) -> None:
        self._writer = writer
        # Memory that did not come back from the disk as it was: an object that reaches it cannot be pickled.
        self._spoilt = {one if isinstance(one, tuple) else id(one) for one in spoilt}
        self._byte_roots: dict[int, Any] = {}
        self._buffers: dict[tuple[int, int], Any] = {}
        self._numpy: Any = sys.modules.get("numpy")
        self._pyarrow: Any = sys.modules.get("pyarrow")
        internals: Any = sys.modules.get("pandas._libs.internals")
        self._block: Any = getattr(internals, "Block", ())
        self._refs: Any = getattr(internals, "BlockValuesRefs", ())
        managers: Any = sys.modules.get("pandas.core.internals.managers")
        self._series_manager: Any = getattr(managers, "SingleBlockManager", ())
        self._index: Any = getattr(sys.modules.get("pandas"), "Index", ())

    def find(self, kind: type) -> Reducer | None:
        if self._numpy is not None:
            if kind is self._numpy.ndarray:
                return self._reduce_array
            if issubclass(kind, self._numpy.memmap):
                return _refuse_memmap
        if self._pyarrow is not None and issubclass(kind, self._pyarrow.Buffer):
            return self._reduce_buffer
        if issubclass(kind, self._block) and self._refs:
            return self._reduce_block
        if issubclass(kind, self._series_manager) and self._refs:
            # A Series' own pickle takes its block apart, and with it the bookkeeping.
            return lambda manager: (kind, (manager.blocks[0], manager.axes[0]))
        if issubclass(kind, self._refs):
            return lambda _refs: (refs_restore, ())
        if issubclass(kind, self._index) and self._refs:
            return self._reduce_index
        return None

    # numpy

    def _reduce_array(self, array: Any) -> Any:
        root = array_root(array)
        if id(root) in self._spoilt:
            raise SpoiltError
        if type(root) is not self._numpy.ndarray:
            return NotImplemented
        base = root.base.obj if type(root.base) is memoryview else root.base
        if type(base) in (bytes, bytearray) and array.size and not array.dtype.hasobject:
            return self._reduce_over_bytes(array, base)
        if array.size == 0 or array.dtype.itemsize == 0:
            return NotImplemented
        axes = array_dense_axes(root)
        if axes is None:
            return NotImplemented
        if root is not array:
            return self._reduce_view(array, root)
        if array.dtype.hasobject:
            return NotImplemented
        flat = array_flat_bytes(array, axes)
        view = memoryview(flat)
        place = view.tobytes() if view.nbytes < SMALL_BYTES else self._writer.reserve(view)
        shape = tuple(array.shape[axis] for axis in axes)
        return array_restore, (array.dtype, shape, axes, place, array.flags.writeable)

    def _reduce_view(self, array: Any, root: Any) -> Any:
        offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return view_restore, (root, array.dtype, array.shape, array.strides, offset, array.flags.writeable)

    def _reduce_over_bytes(self, array: Any, base: Any) -> Any:
        """np.frombuffer over bytes or a bytearray: the bytes object is the owner, and stays shared."""
        start = self._byte_roots.get(id(base))
        if start is None:
            start = self._numpy.frombuffer(base, "u1").__array_interface__["data"][0]
            self._byte_roots[id(base)] = start
        offset = array.__array_interface__["data"][0] - start
        return over_bytes_restore, (base, array.dtype, array.shape, array.strides, offset, array.flags.writeable)

    # pyarrow

    def _reduce_buffer(self, buffer: Any) -> Any:
        """pyarrow makes a new object for the same memory each time: two arrays over it must not save it twice."""
        if buffer.size < SMALL_BYTES or not buffer.is_cpu:
            return NotImplemented
        key = (buffer.address, buffer.size)
        if key in self._spoilt:
            raise SpoiltError
        first = self._buffers.setdefault(key, buffer)
        if first is not buffer:
            return same_restore, (first,)
        return buffer_restore, (self._writer.reserve(memoryview(buffer)), buffer.size)

    # pandas

    def _reduce_block(self, block: Any) -> Any:
        reduced = block.__reduce_ex__(5)
        return block_restore, (reduced[0], reduced[1], block.refs, *reduced[2:3])

    def _reduce_index(self, index: Any) -> Any:
        refs = index.__dict__.get("_references")  # a RangeIndex makes its own when asked: not by getattr
        if refs is None:
            return NotImplemented
        reduced = index.__reduce_ex__(5)
        return index_restore, (reduced[0], reduced[1], refs)


def _refuse_memmap(_array: Any) -> Any:
    raise pickle.PicklingError("a memory-mapped file (numpy.memmap) cannot be saved")


def array_dense_axes(array: Any) -> tuple[int, ...] | None:
    """The order of axes in which the array is one contiguous run of memory; None if there is no such order."""
    if array.flags.c_contiguous:
        return tuple(range(array.ndim))
    axes = tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    return axes if array.transpose(axes).flags.c_contiguous else None


def array_flat_bytes(array: Any, axes: tuple[int, ...]) -> Any:
    return array.transpose(axes).reshape(-1).view("u1")


def array_restore(dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...], place: int | bytes, write: bool) -> Any:
    """An array that owns its memory, in the order of axes it had."""
    import numpy

    reader = sleep_file.current
    assert reader is not None
    size = dtype.itemsize
    for length in shape:
        size *= length
    mapped = reader.mapped(place, size) if isinstance(place, int) else None
    if mapped is not None:
        array = numpy.frombuffer(mapped, "u1").view(dtype).reshape(shape).transpose(numpy.argsort(axes))
    else:
        array = _array_empty(numpy, dtype, shape, axes)
        flat = memoryview(array_flat_bytes(array, axes))
        if isinstance(place, int):
            if not reader.read_into(place, flat):
                reader.spoilt.append(array)
        else:
            flat[:] = place
    if not write:
        array.flags.writeable = False
    return array


def _array_empty(numpy: Any, dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    if axes == tuple(range(len(axes))):
        return numpy.empty(shape, dtype)
    ordered = tuple(shape[axes.index(axis)] for axis in range(len(axes)))
    if axes == tuple(reversed(range(len(axes)))):
        return numpy.empty(ordered, dtype, order="F")
    # order="K" copies the order of axes from a prototype; one without memory will do.
    prototype = numpy.broadcast_to(numpy.empty((), dtype), shape)
    strides = []
    step = dtype.itemsize
    for length in reversed(shape):
        strides.insert(0, step)
        step *= length
    prototype = numpy.lib.stride_tricks.as_strided(prototype, shape, strides).transpose(numpy.argsort(axes))
    return numpy.empty_like(prototype, order="K")


def view_restore(root: Any, dtype: Any, shape: Any, strides: Any, offset: int, write: bool) -> Any:
    import numpy

    axes = array_dense_axes(root)
    if axes is None:
        raise ValueError("the owner of a view came back in another layout")
    if dtype.hasobject:
        start = root.transpose(axes).reshape(-1)[offset // dtype.itemsize :]
        return numpy.lib.stride_tricks.as_strided(start, shape, strides, writeable=write)
    is_locked = write and not root.flags.writeable
    if is_locked:
        root.flags.writeable = True
    view = numpy.ndarray(shape, dtype, array_flat_bytes(root, axes), offset, strides)
    if is_locked:
        root.flags.writeable = False
    if not write:
        view.flags.writeable = False
    return view


def over_bytes_restore(base: Any, dtype: Any, shape: Any, strides: Any, offset: int, write: bool) -> Any:
    import numpy

    array = numpy.ndarray(shape, dtype, base, offset, strides)
    if not write and array.flags.writeable:
        array.flags.writeable = False
    return array


def buffer_restore(offset: int, size: int) -> Any:
    import pyarrow

    reader = sleep_file.current
    assert reader is not None
    mapped = reader.mapped(offset, size)
    if mapped is not None:
        return pyarrow.py_buffer(mapped)
    buffer = pyarrow.allocate_buffer(size)
    if not reader.read_into(offset, memoryview(buffer)):
        reader.spoilt.append((buffer.address, buffer.size))
    return buffer


def same_restore(value: Any) -> Any:
    return value


def refs_restore() -> Any:
    from pandas._libs.internals import BlockValuesRefs  # type: ignore[import-not-found]

    return BlockValuesRefs()


def block_restore(make: Callable[..., Any], args: tuple[Any, ...], refs: Any, state: Any = None) -> Any:
    block = make(*args)
    if state is not None:
        block.__setstate__(state)
    block.refs = refs
    refs.add_reference(block)
    return block


def index_restore(make: Callable[..., Any], args: tuple[Any, ...], refs: Any) -> Any:
    index = make(*args)
    index._references = refs
    refs.add_index_reference(index)
    return index
