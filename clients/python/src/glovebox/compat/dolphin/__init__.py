"""`DockerSandboxExecutor` and the reasoning loop that runs the code of a model in it. No Docker is needed;
`engine="docker"` or `SANDBOX_MODE=docker` uses it, with the same result."""

from __future__ import annotations

from .docker_sandbox import DockerSandboxExecutor
from .reasoning import ReasoningConfig

__all__ = ["DockerSandboxExecutor", "ReasoningConfig"]
