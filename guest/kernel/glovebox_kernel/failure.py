"""An exception as text for the user: the user's own lines, none of the kernel's, bounded."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

from glovebox_kernel.mime import text_clip

TRACEBACK_MAX_CHARS = 256 << 10
VALUE_MAX_CHARS = 64 << 10
_CHAIN_MAX = 64
INSTALL_HINT = "glovebox session install NAME"
_INSTALL_HINT_MAX_CHARS = 200
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_install_hint = INSTALL_HINT


def failure_take_install_hint(words: object) -> None:
    """How packages are added to this session, in the words of the host, which knows its name."""
    global _install_hint
    _install_hint = words[:_INSTALL_HINT_MAX_CHARS] if isinstance(words, str) else INSTALL_HINT


def install_hint(packages: str) -> str:
    return f"{_install_hint} {packages}"


def failure_describe(error: BaseException) -> dict[str, str]:
    """Runs user code (`__str__`), so call it where SIGINT is let through."""
    chain = _cut_chain(error)
    try:
        value = str(error)
    except Exception:
        value = "<its __str__ failed>"
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:
        # A chain too deep, or an exception class that lies about itself: the name is always there.
        text = f"{type(error).__name__}: {value}\n"
    return {
        "name": type(error).__name__,
        "value": text_clip(value, VALUE_MAX_CHARS),
        "traceback": _clip_middle(text, TRACEBACK_MAX_CHARS) + _hint(chain) + _module_hint(error),
    }


def _hint(chain: list[type[BaseException]]) -> str:
    """Advice for a host name that cannot be resolved: a box has no DNS."""
    gaierror = getattr(sys.modules.get("_socket"), "gaierror", None)  # importing it would cost every start
    if not any(one is gaierror for one in chain):
        return ""
    if os.environ.get("https_proxy"):
        return "[this box reaches its hosts only through the proxy that http_proxy and https_proxy name]\n"
    return "[this box has no network; allow hosts when it is made: --allow-host HOST, or network of the API's create]\n"


def _module_hint(error: BaseException) -> str:
    """Only in a session, which packages can be added to, and not for a part of a package that is there."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    top = name.partition(".")[0] if isinstance(name, str) else ""
    if (
        not top
        or top in sys.modules
        or top in getattr(sys, "stdlib_module_names", ())
        or not os.path.isdir("/run/session")
    ):
        return ""
    from glovebox_kernel.magics import PACKAGES

    return f"[to add it to this session: {install_hint(PACKAGES.get(top, top))}]\n"


def failure_name_only(error: BaseException) -> dict[str, str]:
    """For an exception that cannot even be described (its `__str__` was interrupted)."""
    name = type(error).__name__
    return {"name": name, "value": "", "traceback": f"{name}\n"}


def _cut_chain(error: BaseException) -> list[type[BaseException]]:
    """Take the kernel's frames out of the exception, its causes, its contexts and its group members: their types."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    types: list[type[BaseException]] = []
    while todo and len(seen) < _CHAIN_MAX:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        types.append(type(one))
        one.__traceback__ = _cut_frames(one.__traceback__)
        todo += [one.__cause__, one.__context__]
        members = getattr(one, "exceptions", None)
        if isinstance(members, tuple):
            todo += [member for member in members if isinstance(member, BaseException)]
    return types


def _cut_frames(trace: TracebackType | None) -> TracebackType | None:
    """Start at the first line of a cell, if there is one (an event loop stands above it); drop our own frames."""
    kept: list[TracebackType] = []
    first_cell = None
    main = sys.modules["__main__"].__dict__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if not filename.startswith(_PACKAGE):
            if first_cell is None and (filename.startswith("<cell ") or trace.tb_frame.f_globals is main):
                first_cell = len(kept)
            kept.append(trace)
        trace = trace.tb_next
    kept = kept[first_cell or 0 :]
    for one, following in zip(kept, [*kept[1:], None]):
        one.tb_next = following
    return kept[0] if kept else None


def _clip_middle(text: str, limit: int) -> str:
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"
    return text.replace("\0", "\ufffd")
