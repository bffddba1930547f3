"""Pydantic AI, by its own suite for workspace backends, and one run of an agent with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from glovebox import Sandbox
from glovebox.integrations.pydantic_ai import GloveboxWorkspaceBackend
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import Workspace, WorkspaceBackend, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def made(socket_path: str) -> Iterator[list[GloveboxWorkspaceBackend]]:
    backends: list[GloveboxWorkspaceBackend] = []
    yield backends
    for backend in backends:
        if backend.ref is not None and any(one.id == backend.ref.id for one in Sandbox.list(socket=socket_path)):
            Sandbox.connect(backend.ref.id, socket=socket_path).kill()


class TestGloveboxWorkspaceBackend(WorkspaceBackendSuite):
    @pytest.fixture
    def fresh_backend(self, socket_path: str, made: list[GloveboxWorkspaceBackend]) -> Callable[[], WorkspaceBackend]:
        def make() -> WorkspaceBackend:
            made.append(GloveboxWorkspaceBackend(socket=socket_path))
            return made[-1]

        return make

    @pytest.fixture
    async def backend(self, fresh_backend: Callable[[], WorkspaceBackend]) -> AsyncIterator[WorkspaceBackend]:
        yield fresh_backend()

    @pytest.fixture
    def attach_backend(self, socket_path: str) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: GloveboxWorkspaceBackend(ref, socket=socket_path)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: WorkspaceBackend) -> None:
            assert isinstance(backend, GloveboxWorkspaceBackend)
            await backend.delete()

        return destroy


@pytest.mark.anyio
async def test_agent_works_in_the_sandbox(socket_path: str, made: list[GloveboxWorkspaceBackend]) -> None:
    said: list[str] = []

    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("shell", {"command": "whoami; echo $((6 * 7)) | tee answer"})])
        said.append(str(messages[-1].parts[0].content))
        return ModelResponse(parts=[TextPart("done")])

    made.append(GloveboxWorkspaceBackend(socket=socket_path))
    agent = Agent(FunctionModel(script))

    @agent.tool
    async def shell(context: RunContext[None], command: str) -> str:
        assert context.workspace is not None
        return (await context.workspace.run(command, shell=True)).stdout

    result = await agent.run("What is six times seven?", workspace=made[0])
    assert (result.output, said) == ("done", ["sandbox\n42\n"])
    assert await Workspace(made[0]).read_bytes("answer") == b"42\n"
