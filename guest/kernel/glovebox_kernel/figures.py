"""matplotlib, if the user's code has it: open figures become pictures at `plt.show()` and at the end of a cell.

The kernel never imports matplotlib. Its backend is Agg by environment (so that child processes get it too); a hook
replaces `show` at the moment pyplot is imported, because Agg's own `show` only warns.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import warnings
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


# Fonts for what DejaVu lacks, as Debian and others name them; the first that are there are used.
_WIDE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP",
    "Noto Sans KR", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "AR PL UMing CN",
    "AR PL UKai CN", "Droid Sans Fallback", "IPAexGothic", "IPAGothic", "TakaoGothic", "VL Gothic", "NanumGothic",
    "UnDotum", "Unifont",
)  # fmt: skip
_WIDE_FONTS_MAX = 3
_GLYPH = re.compile(r"Glyph (\d+) ")
_MISSING_SHOWN = 20


def figure_png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        figure.savefig(buffer, format="png", bbox_inches="tight")
    _tell_warnings(caught)
    return buffer.getvalue()


def _tell_warnings(caught: list[warnings.WarningMessage]) -> None:
    """Without its location: that would be a line of the kernel."""
    missing: dict[str, None] = {}
    for warning in caught:
        text = str(warning.message)
        glyph = _GLYPH.match(text)
        if glyph and int(glyph[1]) < 0x110000:
            missing[chr(int(glyph[1]))] = None
        elif text:
            print(f"{warning.category.__name__}: {text}", file=sys.stderr)
    if missing:
        shown = "".join(list(missing)[:_MISSING_SHOWN]) + (" ..." if len(missing) > _MISSING_SHOWN else "")
        print(f"[the figure has characters for which there is no font here: {shown}; "
              "a font that the host has is used, fonts-noto-cjk for instance]", file=sys.stderr)  # fmt: skip


def _use_wide_fonts(matplotlib: Any) -> None:
    """After the usual fonts: a character that they lack is taken from these."""
    manager = getattr(sys.modules.get("matplotlib.font_manager"), "fontManager", None)
    there = {font.name for font in getattr(manager, "ttflist", ())}
    found = [name for name in _WIDE_FONTS if name in there][:_WIDE_FONTS_MAX]
    families = list(matplotlib.rcParams["font.family"])
    if found and not set(found) & set(families):
        matplotlib.rcParams["font.family"] = families + found


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
        with contextlib.suppress(Exception):  # a matplotlib too old for it shows what it can
            _use_wide_fonts(sys.modules["matplotlib"])
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
