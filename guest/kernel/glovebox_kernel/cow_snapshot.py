"""The nursery's memory as a sealed file that its kernels map: the Python side of guest/nursery/cow_snapshot.c.

The C part relies on how this interpreter and its C library allocate memory, so it is used only with versions that it
was tried with. Elsewhere, and on a system that refuses it, kernels are forked without it: each then has more memory of
its own and starts a little later. Nothing else changes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig

# tests/nursery and tests/box/test_real_images.py run with these.
TRIED_PYTHONS = ((3, 11), (3, 12), (3, 13))
TRIED_GLIBC = (2, 36), (2, 41)  # the first and the last
_ARENA_BYTES = 1 << 20


class _ArenaAllocator(ctypes.Structure):
    """PyObjectArenaAllocator."""

    _fields_ = (("context", ctypes.c_void_p), ("allocate", ctypes.c_void_p), ("free", ctypes.c_void_p))


def is_tried() -> bool:
    """True if the snapshot was tested with the allocators of this interpreter and C library."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in TRIED_PYTHONS:
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not sysconfig.get_config_var("WITH_PYMALLOC"):
        return False
    if os.environ.get("PYTHONMALLOC", "") not in ("", "pymalloc") or sys.flags.dev_mode:
        return False
    if os.environ.get("LD_PRELOAD") or os.environ.get("GLIBC_TUNABLES"):
        return False
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    first, last = TRIED_GLIBC
    return name == "glibc" and first <= tuple(int(part) for part in version.split(".")[:2]) <= last


class CowSnapshot:
    def __init__(self, library: ctypes.PyDLL) -> None:
        """Before the imports: their arenas are allocated where the snapshot finds them."""
        self._library = library
        self._usual = _ArenaAllocator()
        library.cow_snapshot_arena_allocate.restype = ctypes.c_void_p
        library.cow_snapshot_arena_allocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        library.cow_snapshot_arena_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        for function in ("PyObject_GetArenaAllocator", "PyObject_SetArenaAllocator"):
            getattr(ctypes.pythonapi, function).restype = None
        self._is_open = is_tried() and library.cow_snapshot_open() == 0
        if self._is_open:
            ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(self._usual))
            allocate, free = (
                ctypes.cast(function, ctypes.c_void_p)
                for function in (library.cow_snapshot_arena_allocate, library.cow_snapshot_arena_free)
            )
            ours = _ArenaAllocator(None, allocate, free)
            ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(ours))
        library.page_warmup_open()

    def take(self) -> bool:
        """After the imports, as the last thing: whatever Python allocates later is not in it. False without one."""
        if not self._is_open:
            return False
        # cow_snapshot_fill needs an arena of this process; a nursery without imports may have none yet.
        arena = self._library.cow_snapshot_arena_allocate(None, _ARENA_BYTES)
        self._library.cow_snapshot_arena_free(None, arena, _ARENA_BYTES)
        self._library.cow_snapshot_fill(ctypes.pythonapi.PyObject_Malloc, ctypes.pythonapi.PyObject_Free)
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self._usual))
        return self._library.cow_snapshot_take() == 0

    def release_equal_pages(self) -> None:
        """In an idle kernel: drops its copies of pages that equal those of the snapshot."""
        self._library.cow_snapshot_return()
