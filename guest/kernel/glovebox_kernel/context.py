"""One namespace of variables. A kernel has one called "default" and may have more; only one runs at a time."""

from __future__ import annotations

import builtins
import sys
from types import ModuleType
from typing import Any

DEFAULT = "default"
CONTEXTS_MAX = 64


class Context:
    """A real module named `__main__`: classes made in cells can be pickled and multiprocessing finds them."""

    __slots__ = ("module", "name", "namespace")

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = ModuleType("__main__", None)
        self.namespace: dict[str, Any] = self.module.__dict__
        self.namespace["__builtins__"] = builtins

    def enter(self) -> None:
        """Call it before code of this context runs: `import __main__` must return this one."""
        sys.modules["__main__"] = self.module

    def user_items(self) -> list[tuple[str, Any]]:
        """The variables of the user's code, with `__annotations__`; without those of every module."""
        return [(key, value) for key, value in self.namespace.items() if key not in _OF_EVERY_MODULE]


_OF_EVERY_MODULE = frozenset(
    ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__", "__warningregistry__")
)


class ContextError(Exception):
    """A context that does not exist, exists already, or would be one too many."""


class ContextTable:
    def __init__(self) -> None:
        self.contexts: dict[str, Context] = {DEFAULT: Context(DEFAULT)}

    def get(self, name: str) -> Context:
        try:
            return self.contexts[name]
        except KeyError:
            known = ", ".join(sorted(self.contexts))
            raise ContextError(f"there is no context {name!r}; there are: {known}. Create it first") from None

    def new(self, name: str) -> Context:
        if not name or len(name) > 128:
            raise ContextError("a context's name has 1 to 128 characters")
        if name in self.contexts:
            raise ContextError(f"the context {name!r} exists already")
        if len(self.contexts) >= CONTEXTS_MAX:
            raise ContextError(f"{CONTEXTS_MAX} contexts exist, which is the limit: drop one first")
        context = self.contexts[name] = Context(name)
        return context

    def drop(self, name: str) -> None:
        """The default context is emptied, not removed: a kernel always has one."""
        context = self.get(name)
        context.namespace.clear()
        del self.contexts[name]
        if name == DEFAULT:
            self.contexts[name] = Context(name)
        self.contexts[DEFAULT].enter()
