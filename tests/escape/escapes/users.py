"""The door of a sandbox with users: the attempts are made by its root."""

from __future__ import annotations

from typing import Any

from support.client import Client
from support.daemon import Daemon

from .kernels import WHICH_DOOR, KernelRunner
from .runners import Start


class RootRunner(KernelRunner):
    """Runs the script as a command of root, in a session of its own."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon, "fresh")
        self.name = "users-root"

    def paths(self, start: Start) -> dict[str, Any]:
        return {**super().paths(start), "own_descriptors": {}}

    def _execute(self, client: Client, name: str | None, start: Start) -> dict[str, Any]:
        name = name or f"users-{next(self.numbers)}"
        options = self.request(start)
        timeout_ms = options.pop("timeout_ms")
        script = WHICH_DOOR + start.script.read_text()
        client.request("session.create", session=name, users=True, **options)
        try:
            client.execute(f"open('/tmp/attempts.py', 'w').write({script!r})", name)
            argv = ["python3", "/tmp/attempts.py"]
            number = client.begin("command", session=name, argv=argv, user="root", timeout_ms=timeout_ms)
            return client.finish(number)
        finally:
            client.request("session.remove", session=name)
            self._wait_for_end()
