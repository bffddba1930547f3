"""A program of a user, never run: mypy --strict must accept it, which shows that the package's types are usable.

It is checked by tests/sdk/test_types.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from glovebox import (
    AsyncCommandHandle,
    AsyncSandbox,
    CommandHandle,
    CommandResult,
    EndEvent,
    Execution,
    Sandbox,
    StdoutEvent,
    run,
)


def blocking() -> None:
    with Sandbox.create("a", memory="1g", network=["example.org"], mounts={"/srv": "/data"}) as sandbox:
        execution: Execution = sandbox.run_code("1", on_stdout=lambda text: print(text.upper()))
        text: str | None = execution.text
        png: str | None = execution.results[0].png
        for event in sandbox.stream("1"):
            if isinstance(event, StdoutEvent):
                print(event.text.strip())
            elif isinstance(event, EndEvent):
                print(event.execution.status)
        result: CommandResult = sandbox.commands.run("ls")
        handle: CommandHandle = sandbox.commands.run("ls", background=True)
        content: str = sandbox.files.read("a")
        blob: bytes = sandbox.files.read("a", "bytes")
        pieces: Iterator[bytes] = sandbox.files.read("a", "stream")
        print(text, png, result.stdout, handle.wait(3).exit_code, content, blob, list(pieces), run("1").text)


async def asynchronous() -> None:
    async with await AsyncSandbox.create() as sandbox:
        execution: Execution = await sandbox.run_code("1")
        async for event in sandbox.stream("1"):
            if isinstance(event, StdoutEvent):
                print(event.text.strip())
        result: CommandResult = await sandbox.commands.run(["ls", "-l"], check=False)
        handle: AsyncCommandHandle = await sandbox.commands.run("ls", background=True)
        blob: bytes = await sandbox.files.read("a", "bytes")
        pieces: AsyncIterator[bytes] = await sandbox.files.read("a", "stream")
        print(execution.text, result.ok, (await handle.wait()).exit_code, blob, [piece async for piece in pieces])
