"""State of a program besides its variables that sleep keeps.

A table of rows (name, save, restore). A row that cannot be restored is named in the answer of WAKE.
State inside imported modules other than these rows is not kept; what of it can be seen, `ambient_not_carried` names.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import os
import random
import sys
import time
import warnings
from typing import Any, Callable

from glovebox_kernel import logs

_modules_at_start = frozenset(sys.modules)
_environ_at_start: dict[str, str] = {}
_path_at_start: list[str] = []
_filters_at_start: list[Any] = []
_hooks_at_start: dict[str, Any] = {}
_builtins_at_start: dict[str, Any] = {}
_LAST = ("_", "__glovebox_last__")  # the last value, and whether it is the kernel that has put it there (runner.py)
_MAGIC = "__glovebox_magic__"  # what magics are rewritten to (magics.py)
_HOOKS = ("stdin", "stdout", "stderr", "excepthook", "displayhook", "unraisablehook", "breakpointhook")


def ambient_mark_start() -> None:
    """Call it when the kernel is ready: later differences are the user's."""
    _environ_at_start.clear()
    _environ_at_start.update(os.environ)
    _path_at_start[:] = sys.path
    _filters_at_start[:] = warnings.filters
    _hooks_at_start.update({name: getattr(sys, name) for name in _HOOKS})
    _builtins_at_start.update(vars(builtins))


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
    if "TZ" in changes:
        time.tzset()


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


def _get_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _save_warnings() -> list[Any] | None:
    """The filters whose category can be found by its name; those of other categories are named as not carried."""
    if list(warnings.filters) == _filters_at_start:
        return None
    return [_plain_filter(one) for one in warnings.filters if _is_importable(one[2])]


def _plain_filter(one: Any) -> Any:
    action, message, category, module, line = one
    return action, getattr(message, "pattern", message), category, getattr(module, "pattern", module), line


def _is_importable(kind: type) -> bool:
    return kind.__module__ != "__main__" and getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def _restore_warnings(filters: list[Any]) -> None:
    warnings.resetwarnings()
    for action, message, category, module, line in reversed(filters):
        warnings.filterwarnings(action, message or "", category, module or "", line)


def _save_locale() -> str | None:
    locale: Any = sys.modules.get("locale")
    return locale.setlocale(locale.LC_ALL) if locale is not None else None


def _restore_locale(name: str) -> None:
    import locale

    if locale.setlocale(locale.LC_ALL) != name:
        locale.setlocale(locale.LC_ALL, name)


def _save_decimal() -> Any:
    decimal: Any = sys.modules.get("decimal")
    return decimal.getcontext().copy() if decimal is not None else None


def _restore_decimal(context: Any) -> None:
    import decimal

    decimal.setcontext(context)


def _save_socket() -> float | None:
    module: Any = sys.modules.get("socket")
    return module.getdefaulttimeout() if module is not None else None


def _restore_socket(seconds: float) -> None:
    import socket

    socket.setdefaulttimeout(seconds)


def _save_interpreter() -> dict[str, Any]:
    return {
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "digits": sys.get_int_max_str_digits() if hasattr(sys, "get_int_max_str_digits") else None,
        "gc": gc.isenabled(),
        "gc_thresholds": gc.get_threshold(),
    }


def _restore_interpreter(saved: dict[str, Any]) -> None:
    sys.setrecursionlimit(saved["recursion"])
    sys.setswitchinterval(saved["switch"])
    if saved["digits"] is not None and hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(saved["digits"])
    gc.set_threshold(*saved["gc_thresholds"])
    if not saved["gc"]:
        gc.disable()


def _save_rdkit() -> int | None:
    module: Any = sys.modules.get("rdkit.Chem.rdchem")
    return int(module.GetDefaultPickleProperties()) if module is not None else None


def _restore_rdkit(properties: int) -> None:
    module: Any = importlib.import_module("rdkit.Chem.rdchem")
    if int(module.GetDefaultPickleProperties()) != properties:
        module.SetDefaultPickleProperties(properties)


def _restore_magics(_: bool) -> None:
    from glovebox_kernel.magics import magics_install  # few sessions use them

    magics_install()


_ROWS: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    # The first four come before modules: imports depend on them.
    ("umask", _get_umask, os.umask),
    ("environ", _save_environ, _restore_environ),
    ("directory", os.getcwd, os.chdir),
    ("path", _save_path, _restore_path),
    ("modules", _save_modules, _restore_modules),
    ("interpreter", _save_interpreter, _restore_interpreter),
    ("magics", lambda: hasattr(builtins, _MAGIC) or None, _restore_magics),
    ("recursion", lambda: None, sys.setrecursionlimit),  # of files of version 1
    ("random", random.getstate, random.setstate),
    ("locale", _save_locale, _restore_locale),
    ("decimal", _save_decimal, _restore_decimal),
    ("socket", _save_socket, _restore_socket),
    ("numpy", _save_numpy, _restore_numpy),
    ("pandas", _save_pandas, _restore_pandas),
    ("matplotlib", _save_matplotlib, _restore_matplotlib),
    ("rdkit", _save_rdkit, _restore_rdkit),
    ("logging", logs.logs_save, logs.logs_restore),
    ("warnings", _save_warnings, _restore_warnings),  # last: imports add filters of their own
)


def ambient_not_carried() -> list[str]:
    """A sentence for each visible thing that sleep does not keep."""
    lines = []
    changed = [name for name in _HOOKS if _hooks_at_start.get(name) is not getattr(sys, name)]
    if changed:
        lines.append(f"sys.{', sys.'.join(changed)}: set by the code, will be as at the start")
    if sys.gettrace() is not None or sys.getprofile() is not None:
        lines.append("sys.settrace, sys.setprofile: the function that is set will be gone")
    ours = (*_LAST, _MAGIC)
    names = [name for name, value in vars(builtins).items() if name not in ours and not _is_builtin(name, value)]
    if names:
        lines.append(f"builtins that the code set or replaced: {', '.join(sorted(names)[:20])}")
    modules = sorted(_workspace_modules())
    if modules:
        lines.append(f"variables of modules imported from the workspace: {', '.join(modules[:20])}: imported anew")
    if any(not _is_importable(one[2]) for one in warnings.filters):
        lines.append("warnings filters for categories that cells define")
    return lines + logs.logs_not_carried()


def _is_builtin(name: str, value: Any) -> bool:
    return name in _builtins_at_start and _builtins_at_start[name] is value


def _workspace_modules() -> list[str]:
    workspace = (os.environ.get("WORKSPACE_DIR") or "/workspace").rstrip("/") + "/"
    return [
        name
        for name, module in list(sys.modules.items())
        if str(getattr(module, "__file__", None) or "").startswith(workspace)
    ]


def ambient_save() -> dict[str, Any]:
    saved = {}
    for name, save, _ in _ROWS:
        try:
            saved[name] = save()
        except Exception:
            saved[name] = None
    return saved


def ambient_restore(saved: dict[str, Any]) -> list[str]:
    """Restores the rows; returns the names of those that failed."""
    lost = []
    for name, _, restore in _ROWS:
        if saved.get(name) is not None:
            try:
                restore(saved[name])
            except Exception:
                lost.append(name)
    return lost
