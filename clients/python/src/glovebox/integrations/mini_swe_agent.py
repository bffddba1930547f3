"""mini-swe-agent: an environment, chosen by its dotted path.

    from minisweagent.agents.default import DefaultAgent
    from glovebox.integrations.mini_swe_agent import GloveboxEnvironment

    environment = GloveboxEnvironment(timeout=60, options={"memory": "1g"})
    DefaultAgent(model, environment, **templates).run("…")

In a configuration file: `environment_class: glovebox.integrations.mini_swe_agent.GloveboxEnvironment`.
Needs `mini-swe-agent` (`pip install "glovebox-sandbox[mini-swe-agent]"`).
"""

from __future__ import annotations

from typing import Any

from minisweagent.exceptions import Submitted
from pydantic import BaseModel

from .. import Sandbox

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
FAILED = -1  # the status that mini-swe-agent gives to a command that did not end by itself


class GloveboxEnvironmentConfig(BaseModel):  # type: ignore[misc,unused-ignore]
    cwd: str = "/workspace"
    env: dict[str, str] = {}
    timeout: int = 30
    options: dict[str, Any] = {}
    """As Sandbox.create() has them: memory, network, image, mounts, socket…"""


class GloveboxEnvironment:
    """A sandbox for one agent, removed by `cleanup()`, or when nothing refers to it."""

    def __init__(self, *, config_class: type = GloveboxEnvironmentConfig, **kwargs: Any) -> None:
        self.config = config_class(**kwargs)
        self.sandbox = Sandbox.create(**self.config.options)
        words = self.sandbox.commands.run(["sh", "-c", "uname -s; uname -r; uname -v; uname -m"]).stdout.splitlines()
        self._system = dict(zip(("system", "release", "version", "machine"), words))

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Runs a command of the agent. Its output and its errors come as one text, in the order of writing."""
        argv = ["bash", "-c", f"exec 2>&1\n{action.get('command', '')}"]
        limit = timeout or self.config.timeout
        done = self.sandbox.commands.run(
            argv, cwd=cwd or self.config.cwd, env=self.config.env, timeout=limit, check=False
        )
        output = {"output": done.stdout + done.stderr, "returncode": done.exit_code, "exception_info": ""}
        if done.error:
            output["returncode"] = FAILED
            output["exception_info"] = f"An error occurred while executing the command: {done.error}"
            output["extra"] = {"exception_type": done.status, "exception": done.error}
        _check_submitted(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """What prompts may name. The system is the sandbox's; nothing of the host's environment is among it."""
        return {**self.config.model_dump(exclude={"options"}), **self._system, **kwargs}

    def serialize(self) -> dict[str, Any]:
        environment = self.config.model_dump(mode="json", exclude={"options": {"api_key"}})
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": environment, "environment_type": kind}}}

    def cleanup(self) -> None:
        """Ends the sandbox and removes its files."""
        self.sandbox.kill()


def _check_submitted(output: dict[str, Any]) -> None:
    lines = output["output"].lstrip().splitlines(keepends=True)
    if lines and lines[0].strip() == SUBMIT and output["returncode"] == 0:
        submission = "".join(lines[1:])
        extra = {"exit_status": "Submitted", "submission": submission}
        raise Submitted({"role": "exit", "content": submission, "extra": extra})
