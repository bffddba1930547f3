"""Additions to Python for a program of `glovebox run`: `save` and `load`, and figures that `plt.show()` keeps as files.

The same for a program in a forked interpreter (program.py) and in a fresh one (../start/sitecustomize.py). It costs a
start next to nothing: modules are imported at first use, and sys.path and sys.modules do not show it.
"""

import builtins
import sys

# Nothing is imported for annotations: each module costs the start of every cold run up to a millisecond.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

START_PATH = "/opt/glovebox/kernel/start"
_PACKAGE_PATH = "/opt/glovebox/kernel/glovebox_kernel"
_PYPLOT = "matplotlib.pyplot"


def extras_install() -> None:
    builtins.save = _save  # type: ignore[attr-defined]
    builtins.load = _load  # type: ignore[attr-defined]
    if _PYPLOT in sys.modules:
        _import("figures").PyplotHook(_show).patch(sys.modules[_PYPLOT])
    else:
        sys.meta_path.insert(0, _PyplotFinder)  # type: ignore[arg-type]


class _PyplotFinder:
    """Waits for pyplot to be imported; figures.PyplotHook does the rest."""

    @classmethod
    def find_spec(cls, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != _PYPLOT:
            return None
        sys.meta_path.remove(cls)  # type: ignore[arg-type]
        return _import("figures").PyplotHook(_show).find_spec(name, path, target)


def _import(name: str) -> "Any":
    """A module of this package that imports nothing but the standard library."""
    module = _modules.get(name) or sys.modules.get(f"glovebox_kernel.{name}")
    if module is None:
        module = type(sys)(f"glovebox_kernel.{name}")
        path = f"{_PACKAGE_PATH}/{name}.py"
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec", dont_inherit=True), module.__dict__)
    _modules[name] = module
    return module


_modules: "dict[str, Any]" = {}


def _save(df: "Any", name: str) -> str:
    """Keep a DataFrame, Series, numpy array or pyarrow Table under a name; returns the file's path."""
    return _import("store").save(df, name)  # type: ignore[no-any-return]


def _load(name: str) -> "Any":
    """Returns the value that save() stored under this name."""
    return _import("store").load(name)


_save.__name__ = _save.__qualname__ = "save"
_load.__name__ = _load.__qualname__ = "load"


def _show(*_args: "Any", **_options: "Any") -> None:
    """`plt.show()`: every open figure is kept as a file among the artifacts, and closed."""
    figures = _import("figures")
    try:
        for figure in figures.figures_open()[: figures.FIGURES_MAX]:
            figures.figure_save(figures.figure_png(figure))
    finally:
        figures.figures_close()
