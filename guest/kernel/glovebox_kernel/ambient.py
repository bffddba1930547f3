"""What a program changes besides its variables, and expects to find again after a sleep.

A table of rows (name, save, restore). A row that cannot be saved or restored is left out: it is comfort, not data.
State inside imported modules other than these rows is not kept.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from typing import Any, Callable

_modules_at_start = frozenset(sys.modules)
_environ_at_start: dict[str, str] = {}
_path_at_start: list[str] = []


def ambient_mark_start() -> None:
    """The kernel is ready: differences from here on are the user's."""
    _environ_at_start.clear()
    _environ_at_start.update(os.environ)
    _path_at_start[:] = sys.path


def _save_environ() -> dict[str, str | None]:
    changes: dict[str, str | None] = {
        name: value for name, value in os.environ.items() if _environ_at_start.get(name) != value
    }
    changes.update({name: None for name in _environ_at_start if name not in os.environ})
    return changes


def _restore_environ(changes: dict[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _save_path() -> list[str] | None:
    return list(sys.path) if sys.path != _path_at_start else None


def _restore_path(path: list[str]) -> None:
    sys.path[:] = path


def _save_modules() -> list[str]:
    """Imported since the start. A name is not enough: `import xml.dom` leaves only `xml` in the namespace."""
    return [
        name
        for name, module in list(sys.modules.items())
        if name not in _modules_at_start
        and name != "__main__"
        and not name.startswith(__package__ or "glovebox_kernel")
        and getattr(module, "__spec__", None) is not None
    ]


def _restore_modules(names: list[str]) -> None:
    for name in names:
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except Exception:  # a variable that needs it will say so
                continue


def _numpy(part: str) -> Any:
    module: Any = sys.modules.get("numpy")
    return getattr(module, part) if module is not None else None


def _save_numpy() -> dict[str, Any] | None:
    if "numpy" not in sys.modules:
        return None
    options = {"print": _numpy("get_printoptions")(), "errors": _numpy("geterr")()}
    if "numpy.random" in sys.modules:
        options["random"] = _numpy("random").get_state()
    return options


def _restore_numpy(options: dict[str, Any]) -> None:
    import numpy

    numpy.set_printoptions(**options["print"])
    numpy.seterr(**options["errors"])
    if "random" in options:
        numpy.random.set_state(options["random"])


def _save_pandas() -> dict[str, Any] | None:
    config: Any = sys.modules.get("pandas._config.config")
    if config is None:
        return None
    changed = {}
    for name, option in config._registered_options.items():
        value = config.get_option(name)
        if value != option.defval:
            changed[name] = value
    return changed


def _restore_pandas(options: dict[str, Any]) -> None:
    import pandas

    for name, value in options.items():
        pandas.set_option(name, value)


def _save_matplotlib() -> dict[str, Any] | None:
    module: Any = sys.modules.get("matplotlib")
    if module is None:
        return None
    defaults = module.rcParamsDefault
    return {name: value for name, value in module.rcParams.items() if name != "backend" and defaults.get(name) != value}


def _restore_matplotlib(options: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.rcParams.update(options)


_ROWS: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    # The first three come before modules: imports depend on them.
    ("environ", _save_environ, _restore_environ),
    ("directory", os.getcwd, os.chdir),
    ("path", _save_path, _restore_path),
    ("modules", _save_modules, _restore_modules),
    ("recursion", sys.getrecursionlimit, sys.setrecursionlimit),
    ("random", random.getstate, random.setstate),
    ("numpy", _save_numpy, _restore_numpy),
    ("pandas", _save_pandas, _restore_pandas),
    ("matplotlib", _save_matplotlib, _restore_matplotlib),
)


def ambient_save() -> dict[str, Any]:
    saved = {}
    for name, save, _ in _ROWS:
        try:
            saved[name] = save()
        except Exception:
            saved[name] = None
    return saved


def ambient_restore(saved: dict[str, Any]) -> list[str]:
    """The names of rows that did not come back."""
    lost = []
    for name, _, restore in _ROWS:
        if saved.get(name) is not None:
            try:
                restore(saved[name])
            except Exception:
                lost.append(name)
    return lost
