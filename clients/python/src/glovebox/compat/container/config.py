"""What a box may take, and what of the host it may see."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class SandboxConfig:
    """`image_name` names an image of Glovebox's; the default stands for the image `host`.

    With `engine="docker"`, or SANDBOX_MODE=docker in the environment, it is an image of dockerd's.
    """

    image_name: str = "aod-sandbox:latest"
    memory_limit: str = "512m"
    cpu_limit: float = 1.0
    timeout_seconds: int = 60
    pids_limit: int = 50
    network_enabled: bool = False
    allowed_read_paths: list[str] = field(default_factory=list)
    allowed_write_paths: list[str] = field(default_factory=list)
    engine: str | None = None
