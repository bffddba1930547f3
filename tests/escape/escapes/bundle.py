"""Attempts as one script: everything under attempts/ and a configuration, to be run by any Python anywhere."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

ATTEMPTS_DIR = Path(__file__).resolve().parents[1] / "attempts"
MODULES = ("kit", "mounts", "kernel", "proc", "files", "processes", "network", "resources", "shared")

# The descriptors are looked at before anything else could open one.
STUB = """\
import os
first = {}
for number in os.listdir("/proc/self/fd"):
    try:
        first[int(number)] = os.readlink("/proc/self/fd/" + number)
    except OSError:
        pass
import json, sys, types
for name, source in SOURCES.items():
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)
kit = sys.modules["kit"]
kit.CONFIG.update(json.loads(CONFIG))
kit.FIRST_FDS.update(first)
kit.main(NAMES)
"""


def sources() -> dict[str, str]:
    return {name: (ATTEMPTS_DIR / f"{name}.py").read_text() for name in MODULES}


def load() -> types.ModuleType:
    """The kit with every attempt registered, for a caller that wants the list."""
    if "kit" not in sys.modules:
        for name, source in sources().items():
            module = types.ModuleType(name)
            sys.modules[name if name == "kit" else f"attempts_{name}"] = module
            exec(compile(source, str(ATTEMPTS_DIR / f"{name}.py"), "exec"), module.__dict__)
    return sys.modules["kit"]


def script(names: list[str], config: dict[str, Any]) -> str:
    """The program that makes these attempts and prints a line of JSON for each."""
    head = f"SOURCES = {sources()!r}\nCONFIG = {json.dumps(config)!r}\nNAMES = {names!r}\n"
    return head + STUB
