"""mini-swe-agent: its default agent with its own scripted model."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.glovebox import REPOSITORY

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ.setdefault("MSWEA_GLOBAL_CONFIG_DIR", str(REPOSITORY / "build/frameworks-venv/mini-swe-agent"))

from glovebox.integrations.mini_swe_agent import GloveboxEnvironment
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

DOTTED_PATH = "glovebox.integrations.mini_swe_agent.GloveboxEnvironment"


@pytest.fixture
def environment(socket_path: str) -> Iterator[GloveboxEnvironment]:
    options = {"socket": socket_path}
    made = get_environment({"environment_class": DOTTED_PATH, "env": {"ANSWER": "42"}, "options": options})
    assert isinstance(made, GloveboxEnvironment)
    yield made
    made.cleanup()


def test_agent_works_in_the_sandbox(environment: GloveboxEnvironment) -> None:
    commands = [
        "whoami; ls nowhere; echo $ANSWER > answer",
        "sleep 30",
        "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat answer",
    ]
    model = DeterministicModel(outputs=[make_output("", [{"command": one}], cost=0.1) for one in commands])
    environment.config.timeout = 1
    agent = DefaultAgent(model, environment, system_template="on {{system}} {{machine}}", instance_template="{{task}}")
    assert agent.run("What is it?") == {"exit_status": "Submitted", "submission": "42\n"}
    assert agent.messages[0]["content"].startswith("on Linux ")
    first, second = (message["content"] for message in agent.messages if "<returncode>" in str(message["content"]))
    assert "<returncode>0</returncode>" in first
    assert "sandbox\nls: cannot access 'nowhere'" in first  # both streams, in order
    assert "time limit 1 s reached" in second and "<returncode>-1</returncode>" in second


def test_prompts_see_nothing_of_the_host(environment: GloveboxEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "x")
    assert "HOST_SECRET" not in environment.get_template_vars()
    assert environment.get_template_vars(task="t")["task"] == "t"
    assert environment.serialize()["info"]["config"]["environment_type"] == DOTTED_PATH
