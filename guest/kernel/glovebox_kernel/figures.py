"""matplotlib, if the user's code has it: open figures become pictures at `plt.show()` and at the end of a cell.

The kernel never imports matplotlib. Its backend is Agg by environment (so that child processes get it too); a hook
replaces `show` at the moment pyplot is imported, because Agg's own `show` only warns.
"""

from __future__ import annotations

import io
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable

_PYPLOT = "matplotlib.pyplot"
FIGURES_MAX = 50

registry: dict[int, Any] = {}  # pyplot's own, by number, from the moment on that pyplot is imported


def is_figure(value: Any) -> bool:
    module = sys.modules.get("matplotlib.figure")
    kind = getattr(module, "Figure", None)
    return kind is not None and isinstance(value, kind)


def figure_png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()


def figures_open() -> list[Any]:
    """Figures that pyplot holds, oldest first."""
    return [manager.canvas.figure for manager in registry.values()]


def figures_close() -> None:
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is not None:
        helpers.Gcf.destroy_all()


def figure_save(png: bytes) -> str | None:
    """Keep the picture as an artifact; its path, or None where there is no artifacts directory or no room."""
    if os.environ.get("GLOVEBOX_SAVE_FIGURES", "1") == "0":
        return None
    directory = os.path.join(os.environ.get("WORKSPACE_DIR", "/workspace"), "artifacts")
    global _next_number
    for _ in range(10000):
        path = os.path.join(directory, f"figure-{_next_number}.png")
        _next_number += 1
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        except OSError:
            return None
        try:
            with open(fd, "wb") as file:
                file.write(png)
        except OSError:
            return None
        return path
    return None


_next_number = 1


class PyplotHook:
    """An import hook for one module: after pyplot has run, `show` is ours."""

    def __init__(self, show: Callable[..., None]) -> None:
        self._show = show

    def install(self) -> None:
        os.environ["MPLBACKEND"] = "Agg"
        pyplot = sys.modules.get(_PYPLOT)
        if pyplot is not None:
            self.patch(pyplot)
        else:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def patch(self, pyplot: ModuleType) -> None:
        def show(*args: Any, **options: Any) -> None:
            """Show all open figures and close them."""
            self._show(*args, **options)

        # A function and not the bound method: matplotlib sets attributes on it.
        pyplot.show = show  # type: ignore[attr-defined]
        global registry
        registry = sys.modules["matplotlib._pylab_helpers"].Gcf.figs

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _PYPLOT:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                return self._wrap(spec)
        return None

    def _wrap(self, spec: ModuleSpec) -> ModuleSpec:
        loader = spec.loader
        exec_module = loader.exec_module  # type: ignore[union-attr]

        def exec_and_patch(module: ModuleType) -> None:
            exec_module(module)
            self.patch(module)

        loader.exec_module = exec_and_patch  # type: ignore[union-attr, method-assign]
        return spec
