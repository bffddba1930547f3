"""Packages that were installed into this session while it lives.

They appear in a directory that the host alone can write to, all at once. Python's finders cache what they have
seen. So each search for a module compares that directory's time, and clears the caches if it changed.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from typing import Any

ROOT = "/opt/glovebox/packages"

_seen_ns: int | None = None  # None: this kernel has no such directory


def packages_mark_start() -> None:
    """The kernel starts: it has what is there now."""
    global _seen_ns
    try:
        _seen_ns = os.stat(ROOT).st_mtime_ns
    except OSError:
        _seen_ns = None


class PackagesHook:
    """First of the finders: it finds nothing, but those that come after it see what is there now."""

    @staticmethod
    def find_spec(_name: str, _path: Any = None, _target: Any = None) -> None:
        packages_refresh()

    @classmethod
    def install(cls) -> None:
        sys.meta_path.insert(0, cls)  # type: ignore[arg-type]


def packages_refresh() -> None:
    """Let `import` see what came since the last look."""
    global _seen_ns
    if _seen_ns is None:
        return
    try:
        now_ns = os.stat(ROOT).st_mtime_ns
    except OSError:
        return
    if now_ns != _seen_ns:
        _seen_ns = now_ns
        importlib.invalidate_caches()


def _modules_of(name: str) -> set[str]:
    """The top-level modules that a distribution brings."""
    import importlib.metadata  # only those who install pay for it

    modules = set()
    for path in importlib.metadata.distribution(name).files or ():
        top = path.parts[0]
        if len(path.parts) > 1 and top.isidentifier():
            modules.add(top)
        elif len(path.parts) == 1 and path.suffix in (".py", ".so"):
            modules.add(top.partition(".")[0])
    return modules


def _is_stale(module: str, was_replaced: bool) -> bool:
    """Is it imported, and another one than an import would find now?"""
    loaded = sys.modules.get(module)
    if loaded is None:
        return False
    spec = importlib.machinery.PathFinder.find_spec(module)
    origin = getattr(getattr(loaded, "__spec__", None), "origin", None)
    return was_replaced or (spec is not None and spec.origin != origin)


def packages_stale(names: list[Any], replaced: list[Any]) -> list[str]:
    """Those of the distributions just installed of which an older module is imported: they need a restart."""
    packages_refresh()
    stale = []
    for name in names:
        try:
            modules = _modules_of(name)
        except Exception:  # a distribution that cannot be read cannot be imported either
            continue
        if any(_is_stale(module, name in replaced) for module in modules):
            stale.append(name)
    return stale
