"""smolagents: an executor for `CodeAgent`.

    from glovebox.integrations.smolagents import GloveboxExecutor
    from smolagents import CodeAgent

    with CodeAgent(tools=[], model=model, executor=GloveboxExecutor(memory="1g")) as agent:
        print(agent.run("What is the 20th prime?"))

Needs `smolagents` (`pip install "glovebox-sandbox[smolagents]"`).
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Sequence
from typing import Any

from smolagents import serialization
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

from .. import Sandbox
from .._values import HIDDEN_DIRECTORY
from ..models import Execution, Result

MODULES = {"pillow": "PIL"}  # packages whose module has another name, as smolagents has it
ANSWER_FILE = f"{HIDDEN_DIRECTORY}/final-answer"
# Runs in the sandbox. smolagents' own patch of the tool would need numpy and pillow there, and works only once. The
# text of an exception is cut at 64 KiB, so a longer answer goes through a file.
WRAP_FINAL_ANSWER = """
def _glovebox_wrap(tool, serializer_source):
    serializer = {"__name__": "smolagents_serialization"}
    exec(serializer_source, serializer)

    class FinalAnswerException(BaseException):
        pass

    def final_answer(*args, **kwargs):
        value = serializer["SafeSerializer"].dumps(tool(*args, **kwargs))
        if len(value) > 60000:
            import os
            os.makedirs(os.path.dirname(%(file)r), exist_ok=True)
            with open(%(file)r, "w", encoding="utf-8") as file:
                file.write(value)
            value = "file:"
        raise FinalAnswerException(value)

    return final_answer

final_answer = _glovebox_wrap(final_answer, %(source)r)
"""


class GloveboxExecutor(RemotePythonExecutor):  # type: ignore[misc,unused-ignore]
    """Runs an agent's code in a sandbox: the one given, or one of its own, made with these options.

    Tools run in the sandbox, too: smolagents sends their source. `additional_imports` are packages to install if the
    sandbox does not have them, and so are the requirements of tools. Values come back as JSON only: what comes from a
    sandbox is never unpickled. `cleanup()`, which the agent calls, ends a sandbox of its own.
    """

    def __init__(
        self, additional_imports: Sequence[str] = (), logger: AgentLogger | None = None, *,
        sandbox: Sandbox | None = None, timeout: float | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__([*additional_imports], logger or AgentLogger(level=LogLevel.ERROR), allow_pickle=False)
        self._is_owner = sandbox is None
        self._timeout = timeout
        self.sandbox = sandbox if sandbox is not None else Sandbox.create(**options)
        try:
            self.installed_packages = self.install_packages(self.additional_imports)
        except BaseException:
            self.cleanup()
            raise

    def send_tools(self, tools: dict[str, Any]) -> None:
        super().send_tools(tools)
        if "final_answer" in tools:
            source = inspect.getsource(serialization)
            self.run_code_raise_errors(WRAP_FINAL_ANSWER % {"file": ANSWER_FILE, "source": source})

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        execution = self.sandbox.run_code(code, timeout=self._timeout)
        logs = "\n".join(part.rstrip("\n") for part in (execution.stdout, execution.stderr) if part)
        error = execution.error
        if error is not None and error.name == self.FINAL_ANSWER_EXCEPTION:
            value = self.sandbox.files.read(ANSWER_FILE) if error.value == "file:" else error.value
            return CodeOutput(self._deserialize_final_answer(value), logs, is_final_answer=True)
        if not execution.ok:
            raise AgentError(_failure(execution, logs), self.logger)
        return CodeOutput(_value(execution.results), logs, is_final_answer=False)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs those which the sandbox cannot import yet."""
        missing = [name for name in additional_imports if not self._has_module(name)]
        if missing:
            self.sandbox.install(*missing)
        return additional_imports

    def cleanup(self) -> None:
        """Ends the sandbox, unless it was given."""
        if self._is_owner:
            self.sandbox.kill()

    def _has_module(self, package: str) -> bool:
        name = MODULES.get(package, package)
        if not name.isidentifier():
            return False
        return bool(self.sandbox.get(f"__import__('importlib.util').util.find_spec({name!r}) is not None"))

    def _patch_final_answer_with_exception(self, final_answer_tool: Any) -> None:
        """Leaves the tool as it is: `send_tools` wraps it in the sandbox."""


def _failure(execution: Execution, logs: str) -> str:
    error = execution.error
    why = (error.traceback or str(error)) if error is not None else f"status {execution.status}"
    return f"{logs}\nExecuting code yielded an error:\n{why}".lstrip("\n")


def _value(results: list[Result]) -> Any:
    """The value of the last expression: an image as an image, everything else as text."""
    for result in results:
        if not result.is_main_result:
            continue
        content = result.image()
        if content is not None:
            import PIL.Image

            return PIL.Image.open(io.BytesIO(content))
        return result.text
    return None
