"""Saving what was defined in cells: functions, classes and what hangs on them, by value and not by name.

pickle saves a function or class as its name in a module. What cells define lives in a `__main__` that a new process
does not have, so it is saved whole: code by marshal (same Python version only), closures cell by cell, globals as a
reference to the context's own namespace, classes as a skeleton that is filled after it is known, so that a method may
refer to its class. What can be found by name in a module is left to pickle.
Functions named `*_restore` are called from sleep files: their names and arguments are part of the format.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import enum
import functools
import importlib
import marshal
import pickle
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, Callable

_SKIPPED_ATTRIBUTES = frozenset(("__dict__", "__weakref__", "__module__", "__slots__", "_abc_impl"))
_ENUM_ATTRIBUTES = frozenset(
    ("_generate_next_value_", "_member_names_", "_member_map_", "_member_type_", "_value2member_map_", "_use_args_",
     "_new_member_", "_value_repr_", "_unhashable_values_", "_hashable_values_", "_unhashable_values_map_",
     "_sort_order_", "_missing_", "_order_", "_boundary_", "_flag_mask_", "_singles_mask_", "_all_bits_",
     "_inverted_", "_use_args_", "__new__", "__new_member__", "__getnewargs__", "__getnewargs_ex__", "__reduce_ex__",
     "__reduce__", "__signature__")
)  # fmt: skip


def is_found_by_name(value: Any) -> bool:
    """Whether `module.qualname` leads to this very object in a process that has the module."""
    module_name = getattr(value, "__module__", None)
    if not isinstance(module_name, str) or module_name == "__main__":
        return False
    found: Any = sys.modules.get(module_name)
    if found is None:
        return False
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


# Functions


def _reduce_function(function: Any) -> Any:
    if is_found_by_name(function):
        return NotImplemented
    state = {
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__dict__": function.__dict__ or None,
        "__annotations__": dict(function.__annotations__) or None,
        "__qualname__": function.__qualname__,
        "__module__": function.__module__,
        "__doc__": function.__doc__,
        "__type_params__": getattr(function, "__type_params__", None) or None,
    }
    state = {name: value for name, value in state.items() if value is not None}
    arguments = (function.__code__, _globals_of(function), function.__name__, function.__closure__)
    return function_restore, arguments, state, None, None, attributes_restore


def _globals_of(function: Any) -> Any:
    """A module's dictionary goes by the module's name; a context's is known to the pickler; others are saved by value.

    The name is the dictionary's own: a decorator gives its wrapper the `__module__` of what it wraps.
    """
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) and name != "__main__" else None
    if module is not None and module.__dict__ is function.__globals__:
        return ModuleGlobals(module.__name__)
    return function.__globals__


class ModuleGlobals:
    """Pickled as the dictionary of a module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return module_globals_restore, (self.name,)


def module_globals_restore(name: str) -> dict[str, Any]:
    return importlib.import_module(name).__dict__


def function_restore(code: Any, namespace: dict[str, Any], name: str, closure: Any) -> Any:
    return types.FunctionType(code, namespace, name, None, closure)


def attributes_restore(value: Any, state: dict[str, Any]) -> None:
    for name, attribute in state.items():
        if name == "__dict__":
            value.__dict__.update(attribute)
        else:
            setattr(value, name, attribute)


def _reduce_code(code: types.CodeType) -> Any:
    return marshal.loads, (marshal.dumps(code),)


def _reduce_cell(cell: Any) -> Any:
    """A closure's variable. Filled after it is made: a recursive function is inside its own cell."""
    try:
        contents = cell.cell_contents
    except ValueError:
        return types.CellType, ()
    return types.CellType, (), (contents,), None, None, cell_fill


def cell_fill(cell: Any, contents: tuple[Any]) -> None:
    cell.cell_contents = contents[0]


def _reduce_lru_cache(wrapper: Any) -> Any:
    """Saves the function and its settings; cached values are computed again."""
    if is_found_by_name(wrapper):
        return NotImplemented
    return lru_cache_restore, (wrapper.__wrapped__, wrapper.cache_parameters())


def lru_cache_restore(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


# Classes


def _reduce_class(cls: Any) -> Any:
    if is_found_by_name(cls) or cls is type(None) or cls is type(...) or cls is type(NotImplemented):
        return NotImplemented
    if cls in _NAMES_IN_TYPES:
        return singleton_restore, ("types", _NAMES_IN_TYPES[cls])
    if cls.__module__ == "builtins":
        return NotImplemented
    state = _class_state(cls)
    if issubclass(cls, enum.Enum):
        members = {name: member.value for name, member in cls.__members__.items()}
        state = {name: value for name, value in state.items() if name not in _ENUM_ATTRIBUTES and name not in members}
        arguments: tuple[Any, ...] = (type(cls), cls.__name__, cls.__bases__, cls.__module__, members)
        return enum_restore, arguments, state, None, None, class_fill
    body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    for name in ("__slots__", "__orig_bases__"):  # both must be there when the class is made
        if name in cls.__dict__:
            body[name] = cls.__dict__[name]
    arguments = (type(cls), cls.__name__, cls.__bases__, body)
    return class_restore, arguments, state, None, None, class_fill


def _class_state(cls: Any) -> dict[str, Any]:
    slots = cls.__dict__.get("__slots__", ())
    skipped = {slots} if isinstance(slots, str) else set(slots)
    state = {}
    for name, value in cls.__dict__.items():
        is_slot = name in skipped or isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))
        if not is_slot and name not in _SKIPPED_ATTRIBUTES:
            state[name] = value
    return state


def class_restore(meta: Any, name: str, bases: tuple[Any, ...], body: dict[str, Any]) -> Any:
    # Not the metaclass's own __new__: the class is already what its metaclass made of it. ABCMeta's keeps a registry.
    make = abc.ABCMeta.__new__ if issubclass(meta, abc.ABCMeta) else type.__new__
    with _hooks_hidden(bases):
        return make(meta, name, bases, dict(body))


@contextlib.contextmanager
def _hooks_hidden(bases: tuple[Any, ...]) -> Iterator[None]:
    """No `__init_subclass__` runs: it ran when the class was first made, and may have registered it somewhere."""
    owners = {cls for base in bases for cls in base.__mro__ if isinstance(cls.__dict__.get(_HOOK), classmethod)}
    hooks = {cls: cls.__dict__[_HOOK] for cls in owners}
    for cls in hooks:
        type.__setattr__(cls, _HOOK, classmethod(lambda _cls, **_options: None))
    try:
        yield
    finally:
        for cls, hook in hooks.items():
            type.__setattr__(cls, _HOOK, hook)


_HOOK = "__init_subclass__"


def class_fill(cls: Any, state: dict[str, Any]) -> None:
    for name, value in state.items():
        type.__setattr__(cls, name, value)  # a metaclass may refuse or redirect (Enum does)


def enum_restore(meta: Any, name: str, bases: tuple[Any, ...], module: str, members: dict[str, Any]) -> Any:
    body = meta.__prepare__(name, bases)
    for member, value in members.items():
        body[member] = value
    body["__module__"] = module
    return meta.__new__(meta, name, bases, body)


# Parts of classes


def _reduce_property(value: Any) -> Any:
    return type(value), (value.fget, value.fset, value.fdel, value.__doc__)


def _reduce_wrapped_method(value: Any) -> Any:
    return type(value), (value.__func__,)


def _reduce_cached_property(value: Any) -> Any:
    return cached_property_restore, (value.func, value.attrname)


def cached_property_restore(function: Any, name: str | None) -> Any:
    value: Any = functools.cached_property(function)
    value.attrname = name
    return value


def _reduce_mapping_proxy(value: Any) -> Any:
    return types.MappingProxyType, (dict(value),)


def _reduce_type_variable(value: Any) -> Any:
    if is_found_by_name_only(value):
        return NotImplemented
    options = {"covariant": value.__covariant__, "contravariant": value.__contravariant__, "bound": value.__bound__}
    return type_variable_restore, (value.__name__, value.__constraints__, options)


def is_found_by_name_only(value: Any) -> bool:
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return module is not None and module.__name__ != "__main__" and getattr(module, value.__name__, None) is value


def type_variable_restore(name: str, constraints: tuple[Any, ...], options: dict[str, Any]) -> Any:
    variable: Any = typing.TypeVar(name, *constraints, **options)  # type: ignore[misc]
    variable.__module__ = "__main__"
    return variable


# Modules, streams, singletons


def _reduce_module(module: types.ModuleType) -> Any:
    name = module.__name__
    if sys.modules.get(name) is not module or name == "__main__":
        raise pickle.PicklingError(f"the module {name!r} was not imported from anywhere")
    return importlib.import_module, (name,)


def _reduce_stream(stream: Any) -> Any:
    for name in ("stdout", "stderr", "stdin"):
        if stream is getattr(sys, name):
            return getattr, (sys, name)
    return NotImplemented


def _singletons() -> dict[int, tuple[str, str]]:
    """Values that are compared by identity, which pickle would copy."""
    kinds = ("_FIELD_BASE", "_MISSING_TYPE", "_HAS_DEFAULT_FACTORY_CLASS", "_KW_ONLY_TYPE")
    types_of_them = tuple(getattr(dataclasses, kind) for kind in kinds if hasattr(dataclasses, kind))
    return {
        id(value): ("dataclasses", name)
        for name, value in vars(dataclasses).items()
        if isinstance(value, types_of_them)
    }


_SINGLETONS = _singletons()


# Types of the interpreter that call themselves builtins and are not there: function, cell, code…
_NAMES_IN_TYPES = {value: name for name, value in vars(types).items() if isinstance(value, type)}


def _reduce_singleton(value: Any) -> Any:
    place = _SINGLETONS.get(id(value))
    return (singleton_restore, place) if place is not None else NotImplemented


def singleton_restore(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


_TABLE: dict[type, Callable[[Any], Any]] = {
    types.FunctionType: _reduce_function,
    types.CodeType: _reduce_code,
    types.CellType: _reduce_cell,
    types.ModuleType: _reduce_module,
    types.MappingProxyType: _reduce_mapping_proxy,
    property: _reduce_property,
    staticmethod: _reduce_wrapped_method,
    classmethod: _reduce_wrapped_method,
    functools.cached_property: _reduce_cached_property,
    functools._lru_cache_wrapper: _reduce_lru_cache,
    typing.TypeVar: _reduce_type_variable,  # type: ignore[dict-item]
}


def reducer_find(kind: type) -> Callable[[Any], Any] | None:
    reduce = _TABLE.get(kind)
    if reduce is not None:
        return reduce
    if issubclass(kind, type):
        return _reduce_class
    if issubclass(kind, types.ModuleType):
        return _reduce_module
    if issubclass(kind, property):
        return _reduce_property
    if kind.__module__ == "dataclasses":
        return _reduce_singleton
    if kind.__name__ in ("TextIOWrapper", "NoInput"):
        return _reduce_stream
    return None
