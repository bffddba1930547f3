"""Source text to code objects: the body of a cell, and its last expression apart."""

from __future__ import annotations
import __future__

import ast
import contextlib
import linecache
from collections import OrderedDict
from types import CodeType

_FUTURE_FLAGS = 0
for _feature in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _feature).compiler_flag
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

CO_COROUTINE = 0x80  # inspect.CO_COROUTINE; inspect itself takes long to import
SOURCES_MAX_BYTES = 8 << 20
MAGICS_MAX = 200
_CACHE_ENTRIES = 128
_CACHE_SOURCE_MAX = 1024


class Cell:
    """`body` runs first, then `last` is evaluated; either may be None."""

    __slots__ = ("body", "is_async", "last", "name")

    def __init__(self, name: str, body: CodeType | None, last: CodeType | None) -> None:
        self.name = name
        self.body = body
        self.last = last
        self.is_async = any(code is not None and code.co_flags & CO_COROUTINE for code in (body, last))


class CellCompiler:
    """Numbers the cells, remembers their lines for tracebacks, and keeps the code of short ones."""

    def __init__(self) -> None:
        self.count = 0
        self.sources: OrderedDict[str, str] = OrderedDict()
        self._sources_bytes = 0
        self._future = 0
        self.cache: OrderedDict[str, Cell] = OrderedDict()

    def compile(self, source: str, file: str | None = None) -> Cell:
        """Raises what the compiler raises. The lines are in linecache by then, so that a traceback shows them."""
        if file is None and (cell := self.cache.get(source)):
            return cell
        self.count += 1
        name = file or f"<cell {self.count}>"
        self.remember(name, source)
        cell = self._compile_with_magics(source, name)
        if file is None and len(source) <= _CACHE_SOURCE_MAX:
            self.cache[source] = cell
            if len(self.cache) > _CACHE_ENTRIES:
                self.cache.popitem(last=False)
        return cell

    def remember(self, name: str, source: str) -> None:
        """Tracebacks read `linecache`; the oldest sources go first when there are too many."""
        # The last line ends like the others: traceback counts columns from both ends.
        lines = [line + "\n" for line in source.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        linecache.cache[name] = (len(source), None, lines, name)
        self._sources_bytes += len(source) - len(self.sources.get(name, ""))
        self.sources[name] = source
        while self._sources_bytes > SOURCES_MAX_BYTES and len(self.sources) > 1:
            old, text = self.sources.popitem(last=False)
            self._sources_bytes -= len(text)
            linecache.cache.pop(old, None)
            self.cache.clear()

    def _compile_with_magics(self, source: str, name: str) -> Cell:
        """Each syntax error may be one more line that is not Python; the first error is the one to report."""
        first: SyntaxError | None = None
        for _ in range(MAGICS_MAX):
            try:
                return self._compile(source, name)
            except SyntaxError as error:
                first = first or error
                from glovebox_kernel import magics  # imported at first use

                rewritten = magics.magics_rewrite(source, error)
                if rewritten is None:
                    # An error in Python code after lines that were rewritten is reported unchanged.
                    raise
                source = rewritten
        raise first or SyntaxError("too many lines that are no Python")

    def _compile(self, source: str, name: str) -> Cell:
        # dont_inherit: this file's own __future__ imports must not reach the user's code.
        flags = _FLAGS | self._future
        if _looks_like_a_call(source):
            with contextlib.suppress(SyntaxError, ValueError):  # the general way below reports it
                return Cell(name, None, compile(source, name, "eval", flags, dont_inherit=True))
        tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        statements = tree.body
        last_node = statements[-1] if statements else None
        if not isinstance(last_node, ast.Expr) or _ends_with_semicolon(source):
            return Cell(name, self._compile_body(tree, name, flags), None)
        body = None
        if len(statements) > 1:
            del statements[-1]
            body = self._compile_body(tree, name, flags)
        last = compile(ast.Expression(last_node.value), name, "eval", _FLAGS | self._future, dont_inherit=True)
        return Cell(name, body, last)

    def _compile_body(self, tree: ast.Module, name: str, flags: int) -> CodeType:
        code: CodeType = compile(tree, name, "exec", flags, dont_inherit=True)
        future = code.co_flags & _FUTURE_FLAGS
        if future & ~self._future:
            self._future |= future
            self.cache.clear()
        return code


def _looks_like_a_call(source: str) -> bool:
    """True for `print(x)` and the like, as in most short cells: the last expression is found without a tree."""
    return source[-1:] == ")" and "\n" not in source and source.partition("(")[0].isidentifier()


def _ends_with_semicolon(source: str) -> bool:
    """`plot();` shows no value, as in notebooks."""
    text = source.rstrip()
    return text.endswith(";") and "#" not in text[text.rfind("\n") + 1 :]
