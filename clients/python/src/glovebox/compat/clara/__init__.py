"""One sandbox for each user of a chat, on this machine or on another."""

from __future__ import annotations

from .manager import SandboxManager, get_sandbox_manager

__all__ = ["SandboxManager", "get_sandbox_manager"]
