"""A reasoning loop: the model thinks, writes code, sees what the code printed, and goes on until it answers.

Code never runs in this process. `DOLPHIN_USE_DOCKER_SANDBOX=1` gives it a directory on the host, as
`DockerSandboxExecutor` does; without it the code has a sandbox whose files go with it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Callable, Union

from ..._sync.sandbox import Sandbox
from .._common import engine_of, output_of
from .docker_sandbox import DEFAULT_IMAGE, DockerSandboxExecutor

Message = dict[str, str]
# Takes the conversation so far, returns what the model says next.
Model = Callable[[list[Message]], Union[str, Awaitable[str]]]

_CODE = re.compile(r"```(?:python|py)\s*\n(.*?)```", re.DOTALL)
SYSTEM_PROMPT = """You solve tasks step by step. To run Python, write one block:
```python
...
```
You then see what it printed. Variables stay between blocks; files that you write to /sandbox are kept. When you have
the answer, say it without any code block."""


@dataclass
class ReasoningConfig:
    """How the loop works. Without `enable_code_execution` the first answer of the model is the last one."""

    enable_code_execution: bool = False
    max_iterations: int = 10
    session_id: str | None = None
    sandbox_base_dir: str = "/tmp/sandboxes"
    timeout: float = 30
    output_max: int = 20000  # characters of output that the model is shown
    engine: str | None = None  # "docker": containers in place of native boxes, as SANDBOX_MODE=docker does for all


@dataclass
class ReasoningResult:
    """`answer`, and what was said and run on the way."""

    answer: str
    steps: list[Message] = field(default_factory=list)
    code_runs: int = 0

    def __str__(self) -> str:
        return self.answer


class _PlainExecutor:
    """A sandbox whose files go with it."""

    def __init__(self, timeout: float, engine: str | None) -> None:
        self._timeout = timeout
        self._sandbox = Sandbox.create(**engine_of(engine, None, DEFAULT_IMAGE))

    def execute_code(self, code: str) -> str:
        return output_of(self._sandbox.run_code(code, timeout=self._timeout))

    def close(self) -> None:
        self._sandbox.kill()


def make_executor(config: ReasoningConfig) -> DockerSandboxExecutor | _PlainExecutor:
    if os.environ.get("DOLPHIN_USE_DOCKER_SANDBOX") == "1":
        return DockerSandboxExecutor(
            config.session_id, config.sandbox_base_dir, timeout=config.timeout, engine=config.engine
        )
    return _PlainExecutor(config.timeout, config.engine)


def code_of(answer: str) -> str | None:
    """The code in a model's answer; several blocks are one piece of code."""
    blocks = _CODE.findall(answer)
    return "\n".join(blocks) if blocks else None


async def _ask(model: Model, messages: list[Message]) -> str:
    answer = model(messages)
    return await answer if not isinstance(answer, str) else answer


async def reason(user_query: str, model: Model, config: ReasoningConfig) -> ReasoningResult:
    """Asks the model until it answers without code, or has had its turns."""
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": user_query}]
    executor: DockerSandboxExecutor | _PlainExecutor | None = None
    runs = 0
    try:
        for _ in range(max(1, config.max_iterations)):
            answer = await _ask(model, messages)
            messages.append({"role": "assistant", "content": answer})
            code = code_of(answer) if config.enable_code_execution else None
            if code is None:
                break
            if executor is None:
                executor = await asyncio.to_thread(make_executor, config)
            output = await asyncio.to_thread(executor.execute_code, code)
            runs += 1
            messages.append({"role": "user", "content": _shown(output, config.output_max)})
    finally:
        if executor is not None:
            await asyncio.to_thread(executor.close)
    return ReasoningResult(answer, messages, runs)


def _shown(output: str, most: int) -> str:
    if len(output) > most:
        output = f"{output[: most // 2]}\n[{len(output) - most} characters left out]\n{output[-most // 2 :]}"
    return f"The code printed:\n{output}" if output else "The code printed nothing."
