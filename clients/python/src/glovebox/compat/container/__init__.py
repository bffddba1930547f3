"""A box for each call of a tool: `SandboxRunner` runs code or a command. For example:

    import asyncio
    from glovebox.compat.container import SandboxRunner

    print(asyncio.run(SandboxRunner().run_code("print(42)")))

Nothing is left of a call afterwards.
"""

from __future__ import annotations

from .config import SandboxConfig
from .container_runner import SandboxResult, SandboxRunner
from .mount_security import FORBIDDEN_PATHS, MountPolicy, validate_mount

__all__ = ["FORBIDDEN_PATHS", "MountPolicy", "SandboxConfig", "SandboxResult", "SandboxRunner", "validate_mount"]
