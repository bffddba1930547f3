"""`pip install` in a helper box: what the session had, and what is asked for, into a directory that the host then looks
at and puts in the place of the old one.

`python3 -I install.py REQUIREMENT...`, with /opt/glovebox/packages writable and empty, what the session had so far
below BEFORE, and PYTHONUSERBASE set. pip takes the new directory for the user's site: so it takes what the
image brings for installed, shadows what it must replace, and touches nothing else.

No code of a package runs here: only wheels are taken, and modules are never imported from where packages are. What pip
knows of the index (addresses with passwords in them, perhaps) stays with pip.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import runpy
import shutil
import site
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

ROOT = "/opt/glovebox/packages"
BEFORE = "/opt/glovebox/packages-before"
LAYER = "/opt/glovebox/python"
KERNEL = "/opt/glovebox/kernel"
CURRENT = f"{ROOT}/current"
REPORT = f"{ROOT}/report.json"
TEMPORARY = f"{ROOT}/tmp"
EXIT_NO_PIP = 69  # EX_UNAVAILABLE

_PIP = [
    "install",
    "--user",
    "--no-input",
    "--no-color",
    "--progress-bar",
    "off",
    "--no-cache-dir",
    "--only-binary",
    ":all:",
    "--prefer-binary",
    "--no-warn-script-location",
    "--disable-pip-version-check",
]

Installed = dict[str, tuple[str, str, str]]  # normal name: name, version, where


class _Finder(PathFinder):
    """Imports as always, but from nowhere that packages are."""

    hidden: tuple[str, ...] = ()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None:
            path = [entry for entry in sys.path if entry not in cls.hidden]
        return PathFinder.find_spec(fullname, path, target)


def _hide(*paths: str) -> None:
    """On sys.path, so that pip sees what is installed there; out of reach for `import`."""
    _Finder.hidden = paths
    sys.meta_path[:] = [_Finder if finder is PathFinder else finder for finder in sys.meta_path]
    sys.path[:0] = paths


def _installed() -> Installed:
    found: Installed = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            key = re.sub(r"[-_.]+", "-", name).lower()
            found.setdefault(key, (name, distribution.version, str(distribution.locate_file(""))))
    return found


def _report(before: Installed, after: Installed, packages: str) -> dict[str, Any]:
    """What is new, what was there in another version, and whether something of the image is covered now."""
    changed = [key for key, value in sorted(after.items()) if before.get(key, ("", "", ""))[:2] != value[:2]]
    return {
        "installed": [{"name": after[key][0], "version": after[key][1]} for key in changed],
        "replaced": [after[key][0] for key in changed if key in before],
        "covers_image": any(
            key in before
            and os.path.normpath(before[key][2]) != packages
            and os.path.normpath(after[key][2]) == packages
            for key in changed
        ),
    }


def _run_pip(requirements: list[str]) -> int:
    sys.argv = ["pip", *_PIP, "--", *requirements]
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def main() -> int:
    os.umask(0o022)
    sys.path.append(KERNEL)
    from glovebox_kernel.pip_place import MISSING, pip_find

    packages = site.getusersitepackages()
    sys.dont_write_bytecode = True
    if os.path.isdir(f"{BEFORE}/current"):
        shutil.copytree(f"{BEFORE}/current", CURRENT, symlinks=True)
    os.makedirs(packages, exist_ok=True)
    os.makedirs(TEMPORARY)
    if not os.path.lexists(f"{CURRENT}/site"):
        os.symlink(os.path.relpath(packages, CURRENT), f"{CURRENT}/site")
    _hide(packages, LAYER)
    if not pip_find():
        print(f"glovebox: {MISSING}", file=sys.stderr)
        return EXIT_NO_PIP
    before = _installed()
    code = _run_pip(sys.argv[1:])
    sys.stdout.flush()
    if code == 0:
        importlib.invalidate_caches()
        with open(REPORT, "w", encoding="utf-8") as file:
            json.dump(_report(before, _installed(), packages), file)
    return code


if __name__ == "__main__":
    sys.exit(main())
