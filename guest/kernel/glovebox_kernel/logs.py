"""The settings of `logging`, for sleep: levels, and handlers of the root logger that write to stdout or stderr."""

from __future__ import annotations

import sys
from typing import Any

_STREAMS = ("stdout", "stderr")


def _logging() -> Any:
    return sys.modules.get("logging")


def _loggers(logging: Any) -> dict[str, Any]:
    found = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    return {"": logging.root, **found}


def _stream_of(handler: Any) -> str | None:
    """ "stdout" or "stderr" if it is a plain handler that writes there, and can be made again."""
    logging = _logging()
    formatter = handler.formatter
    if type(handler) is not logging.StreamHandler or handler.filters:
        return None
    if formatter is not None and type(formatter) is not logging.Formatter:
        return None
    return next((name for name in _STREAMS if handler.stream is getattr(sys, name)), None)


def logs_save() -> dict[str, Any] | None:
    logging = _logging()
    if logging is None:
        return None
    handlers = []
    for handler in logging.root.handlers:
        stream, formatter = _stream_of(handler), handler.formatter
        if stream is not None:
            form = None if formatter is None else (formatter._fmt, formatter.datefmt)
            handlers.append((stream, handler.level, form))
    levels = {name: one.level for name, one in _loggers(logging).items() if one.level != logging.NOTSET}
    return {"levels": levels, "disabled": logging.root.manager.disable, "handlers": handlers}


def logs_restore(saved: dict[str, Any]) -> None:
    import logging

    for name, level in saved["levels"].items():
        (logging.getLogger(name) if name else logging.root).setLevel(level)
    logging.disable(saved["disabled"])
    for stream, level, form in saved["handlers"]:
        handler = logging.StreamHandler(getattr(sys, stream))
        handler.setLevel(level)
        if form is not None:
            handler.setFormatter(logging.Formatter(*form))
        logging.root.addHandler(handler)


def _is_librarys(name: str) -> bool:
    """A library makes its own handlers when it is imported again."""
    package = name.partition(".")[0]
    return package != "__main__" and package in sys.modules


def logs_not_carried() -> list[str]:
    logging = _logging()
    if logging is None:
        return []
    others = [
        f"{name or 'root'}: {type(handler).__name__}"
        for name, one in _loggers(logging).items()
        if not _is_librarys(name)
        for handler in one.handlers
        if (name or _stream_of(handler) is None) and type(handler) is not logging.NullHandler
    ]
    return [f"handlers of logging: {', '.join(others[:20])}"] if others else []
