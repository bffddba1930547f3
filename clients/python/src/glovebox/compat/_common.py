"""What several of these packages need."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from ..models import Execution

# All of these name the workspace inside a box.
ALIASES = ("/workspace", "/session", "/work", "/sandbox")


def errors_of(execution: Execution) -> str:
    """Standard error, then why the run failed, as an interpreter would print both."""
    parts = [execution.stderr]
    if execution.error is not None:
        parts.append(execution.error.traceback or str(execution.error))
    return "\n".join(part.rstrip("\n") for part in parts if part)


def output_of(execution: Execution) -> str:
    """All that a terminal would show, in one text: the output, then the errors."""
    return "\n".join(part.rstrip("\n") for part in (execution.stdout, errors_of(execution)) if part)


def name_for(text: str, prefix: str = "") -> str:
    """A sandbox name for any text: the text itself where its characters allow it, else what is left and a hash."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).strip("._-")
    name = f"{prefix}{plain}"
    if plain == text and len(name) <= 60:
        return name
    return f"{name[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def engine_of(engine: str | None, image: str | None, original: str) -> dict[str, Any]:
    """`engine` and `image` of a sandbox whose original ran in the Docker image `original`.

    Native serves unless Docker (or another engine) is asked for: by `engine`, else by SANDBOX_MODE. There the image is
    one of that engine's: the one that is named, else DOCKER_SANDBOX_IMAGE, else the original. Natively the original
    stands for Glovebox's own image `host`.
    """
    wanted = engine or os.environ.get("SANDBOX_MODE") or "auto"
    named = None if image == original else image
    if wanted in ("auto", "native", "remote"):
        return {"engine": engine, "image": named}
    return {"engine": wanted, "image": named or os.environ.get("DOCKER_SANDBOX_IMAGE") or original}


def data_home() -> str:
    """Where a data directory beside the user's own may be made."""
    named = os.environ.get("GLOVEBOX_DATA_DIR") or os.environ.get("SANDBOX_DATA_DIR")
    if named and named.startswith("/"):
        return named.rstrip("/")
    if os.geteuid() == 0:
        return "/var/lib/glovebox"
    home = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local/share")
    return os.path.join(home, "glovebox")


def make_directory(path: str | os.PathLike[str], mode: int = 0o755) -> str:
    """The absolute path of a directory that is there afterwards."""
    absolute = os.path.abspath(os.fspath(path))
    os.makedirs(absolute, mode=mode, exist_ok=True)
    return absolute
