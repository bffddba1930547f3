"""Which paths of the host a tool may ask for. The daemon's own policy counts besides, whatever is allowed here."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

FORBIDDEN_PATHS = [
    "/etc/shadow",
    "/etc/passwd",
    "/etc/sudoers",
    "/root",
    "/proc",
    "/sys",
    "/dev",
    "/var/run/docker.sock",
    os.path.expanduser("~/.ssh"),
    os.path.expanduser("~/.aws"),
    os.path.expanduser("~/.gnupg"),
    os.path.expanduser("~/.config"),
]


def _is_below(path: Path, top: str) -> bool:
    resolved = Path(top).resolve()
    return path == resolved or resolved in path.parents


@dataclass
class MountPolicy:
    """Nothing is allowed unless it lies below a path that is listed, and not below a forbidden one.

    A directory that *contains* a forbidden path is refused as well: mounting it would show what is forbidden.
    """

    allowed_read_paths: list[str] = field(default_factory=list)
    allowed_write_paths: list[str] = field(default_factory=list)
    forbidden_paths: list[str] = field(default_factory=lambda: FORBIDDEN_PATHS.copy())

    def is_allowed(self, host_path: str, writable: bool = False) -> bool:
        path = Path(host_path).resolve()
        if any(_is_below(path, forbidden) or path in Path(forbidden).resolve().parents
               for forbidden in self.forbidden_paths):  # fmt: skip
            return False
        allowed = self.allowed_write_paths + ([] if writable else self.allowed_read_paths)
        return any(_is_below(path, top) for top in allowed)


def validate_mount(host_path: str, policy: MountPolicy, writable: bool = False) -> bool:
    """Whether the policy allows this path, which must be there."""
    return os.path.exists(host_path) and policy.is_allowed(host_path, writable)
