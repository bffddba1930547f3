"""Reseeds what must not repeat after a fork: random numbers, temporary names, time-based ids."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from typing import Any

_seed = super(random.Random, random._inst).seed  # type: ignore[attr-defined]


def reseed() -> None:
    """Call in every process that was forked from a nursery, before any code of a user runs. Imports nothing."""
    random.seed()
    _attribute("tempfile", "_name_sequence", None)
    _attribute("uuid", "_last_timestamp", None)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(list(os.urandom(64)))  # type: ignore[attr-defined]
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        with contextlib.suppress(Exception):
            torch.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)


def reseed_is_short() -> bool:
    """True if no module needs what reseed_prepared leaves out."""
    return "numpy.random" not in sys.modules and "torch" not in sys.modules


def reseed_prepared() -> None:
    """The same in as few steps as can be, where reseed() was called right before the fork and nothing else ran."""
    _seed()


def _attribute(module_name: str, name: str, value: Any) -> None:
    module = sys.modules.get(module_name)
    if module is not None and hasattr(module, name):
        setattr(module, name, value)
