"""Where this Python's pip is: a module of its own, or the wheel that comes with ensurepip.

Used on the host and in boxes. Standard library only.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import sys

# Debian keeps the wheel apart; others have it inside ensurepip.
_WHEELS = ("/usr/share/python-wheels/pip-*.whl", "{ensurepip}/_bundled/pip-*.whl")

MISSING = (
    "this Python has no pip: install it (Debian and Ubuntu: apt install python3-pip, or python3-venv; in an image: "
    "python -m ensurepip), then try again"
)


def pip_find() -> bool:
    """Make `import pip` work. False when there is none; MISSING says what to do."""
    if importlib.util.find_spec("pip") is not None:
        return True
    spec = importlib.util.find_spec("ensurepip")
    ensurepip = os.path.dirname(spec.origin) if spec and spec.origin else "/nonexistent"
    for pattern in _WHEELS:
        for wheel in sorted(glob.glob(pattern.format(ensurepip=ensurepip)), reverse=True):
            sys.path.append(wheel)
            return True
    return False
