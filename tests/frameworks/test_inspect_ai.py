"""Inspect, by its own self check, and one evaluation with a scripted model."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import tomllib
from glovebox import AsyncSandbox
from glovebox.integrations.inspect_ai import GloveboxConfig, GloveboxSandboxEnvironment
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentSpec,
    SandboxUserUnsupportedError,
)
from inspect_ai.util._sandbox.limits import override_max_read_file_size
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from support.glovebox import REPOSITORY


@pytest.fixture
async def sandbox_env(socket_path: str) -> AsyncIterator[SandboxEnvironment]:
    """As an evaluation gets it."""
    config = GloveboxConfig(socket=socket_path)
    environments = await GloveboxSandboxEnvironment.sample_init("task", config, {})
    yield environments["default"]
    await GloveboxSandboxEnvironment.sample_cleanup("task", config, environments, False)


async def test_without_users_another_user_is_refused(socket_path: str) -> None:
    async with await AsyncSandbox.create(socket=socket_path, users=False) as sandbox:
        environment = GloveboxSandboxEnvironment(sandbox)
        assert (await environment.exec(["whoami"], user="sandbox")).stdout == "sandbox\n"
        with pytest.raises(SandboxUserUnsupportedError, match="users"):
            await environment.exec(["whoami"], user="root")


async def test_a_long_command_of_a_user_runs(sandbox_env: SandboxEnvironment) -> None:
    done = await sandbox_env.exec(["sh", "-c", "whoami; echo $#", "sh", *["x" * 65536] * 12], user="root")
    assert done.stdout == "root\n12\n", done.stderr


async def test_output_beyond_the_limit_is_an_error(sandbox_env: SandboxEnvironment) -> None:
    with pytest.raises(OutputLimitExceededError):
        await sandbox_env.exec(["sh", "-c", "head -c 11000000 /dev/zero | tr '\\0' a"])


async def test_a_file_of_the_limit_itself_is_read(sandbox_env: SandboxEnvironment) -> None:
    await sandbox_env.write_file("file", "a" * 1024)
    with override_max_read_file_size(1024):
        assert len(await sandbox_env.read_file("file")) == 1024


@pytest.mark.parametrize("count", [1, 20])
async def test_arguments_with_nul_are_refused(sandbox_env: SandboxEnvironment, count: int) -> None:
    """Few and many: long lists travel in a file that NUL separates."""
    with pytest.raises(ValueError, match="NUL"):
        await sandbox_env.exec(["printf", "%s", *["x" * 65536] * count, "a\0b"])


async def test_a_long_command_that_is_not_there_ends_with_127(sandbox_env: SandboxEnvironment) -> None:
    done = await sandbox_env.exec(["no-such-program", *["x" * 65536] * 12])
    assert (done.returncode, done.stderr) == (127, "no-such-program: No such file or directory\n")


def test_entry_point_registers_the_name(tmp_path: Path) -> None:
    """In a new Python, over what `pip install` writes for clients/python/pyproject.toml: no import of the adapter."""
    project = tomllib.loads((REPOSITORY / "clients/python/pyproject.toml").read_text())["project"]
    info = tmp_path / "glovebox_sandbox-0.1.0.dist-info"
    info.mkdir()
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["inspect_ai"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[inspect_ai]", *lines, ""]))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: glovebox-sandbox\nVersion: 0.1.0\n")
    code = "from inspect_ai.util._sandbox.registry import *; print(registry_find_sandboxenv('glovebox').__name__)"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY / 'clients/python/src'}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True, timeout=60)
    assert done.stdout.strip() == GloveboxSandboxEnvironment.__name__, done.stderr


def test_evaluation_runs_a_tool_in_the_sandbox(socket_path: str, tmp_path: Path) -> None:
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat question.txt; whoami; echo $((6 * 7))"}),
        ModelOutput.from_content("mockllm/model", "the answer is 42"),
    ]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else a tokenizer is downloaded
    task = Task(
        dataset=[Sample("What is it?", target="42", files={"question.txt": "six times seven\n"})],
        solver=[use_tools(bash(timeout=30)), generate()],
        scorer=includes(),
        sandbox=SandboxEnvironmentSpec("glovebox", GloveboxConfig(socket=socket_path)),
    )
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "success", log.error and log.error.traceback
    assert log.samples is not None and log.samples[0].error is None
    tools = [message for message in log.samples[0].messages if message.role == "tool"]
    assert [tool.error for tool in tools] == [None]
    said = tools[0].text
    assert said.split("\n")[:3] == ["six times seven", "sandbox", "42"]
