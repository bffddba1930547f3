"""bubblewrap with every namespace it has, and the same interpreter."""

from __future__ import annotations

import shutil

from context import SYSTEM_PYTHON
from measure import Skipped

OPTIONS = (
    "--unshare-all --die-with-parent --new-session --clearenv --setenv PATH /usr/bin "
    "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 "
    "--proc /proc --dev /dev --tmpfs /tmp"
).split()


def command(code: str) -> list[str]:
    program = shutil.which("bwrap")
    if not program:
        raise Skipped("bubblewrap is not installed")
    return [program, *OPTIONS, SYSTEM_PYTHON, "-c", code]
