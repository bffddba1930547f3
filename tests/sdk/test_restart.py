"""The package with a daemon that restarts, threads, and cancellation."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import warnings
from typing import Any, Callable

import pytest
from glovebox import (
    AsyncSandbox,
    ConnectionLostError,
    DaemonUnavailableError,
    EndEvent,
    Sandbox,
    StartEvent,
    StdoutEvent,
)
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon
from support.service import Service, start_service

COUNT = "import time\nfor i in range(60): print(i, flush=True); time.sleep(0.04)\nprint('ä' * 100)\n'end'"
COUNTED = "".join(f"{i}\n" for i in range(60)) + "ä" * 100 + "\n"


def restart(daemon: Daemon, service: Service | None, how: int) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(how)
    daemon.process.wait(60)
    if service is not None:  # a client of HTTP knows the port only
        daemon.options = (*daemon.options[:-2], "--port", str(service.port))
    daemon.start()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("way", ["socket", "http"])
def test_a_stream_reads_on_after_the_daemon_was_restarted(start_daemon: StartDaemon, way: str, how: int) -> None:
    daemon = start_daemon(start=False)
    service = start_service(daemon, ("ann",))
    where: dict[str, Any] = {"socket": daemon.socket}
    if way == "http":
        where = {"url": f"http://127.0.0.1:{service.port}", "api_key": service.keys["ann"]}
    sandbox = Sandbox.create("steady", **where)
    text = ""
    again: threading.Thread | None = None
    for event in sandbox.stream(COUNT):
        if isinstance(event, StdoutEvent):
            text += event.text
            if again is None and "5\n" in text:
                again = threading.Thread(target=restart, args=(daemon, service if way == "http" else None, how))
                again.start()
        if isinstance(event, EndEvent):
            assert event.execution.text == "'end'" and event.execution.stdout == COUNTED
    assert text == COUNTED, "nothing is lost and nothing comes twice"
    assert again is not None
    again.join()
    assert sandbox.run_code("i").text == "59"
    sandbox.kill()


def test_an_async_stream_reads_on_after_the_daemon_was_restarted(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()

    async def work() -> None:
        sandbox = await AsyncSandbox.create("steady", socket=daemon.socket)
        pieces: list[str] = []
        again = None
        async for event in sandbox.stream(COUNT):
            if isinstance(event, StdoutEvent):
                pieces.append(event.text)
                if again is None:
                    again = asyncio.get_running_loop().run_in_executor(None, restart, daemon, None, signal.SIGKILL)
        assert "".join(pieces) == COUNTED and again is not None
        await again
        await sandbox.kill()

    asyncio.run(work())


def test_a_request_after_a_restart_takes_a_new_connection(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    sandbox = Sandbox.create("old", socket=daemon.socket)
    sandbox.run_code("x = 3")
    for _ in range(2):
        restart(daemon, None, signal.SIGTERM)
        assert sandbox.run_code("x").text == "3"
    sandbox.kill()


def test_a_run_that_was_never_accepted_is_said_to_be_unknown(start_daemon: StartDaemon) -> None:
    from glovebox._sync import runs, unix

    daemon = start_daemon()
    sandbox = Sandbox.create("unknown", socket=daemon.socket)
    sandbox.run_code("1")
    os.kill(daemon.pid, signal.SIGSTOP)
    killing = threading.Timer(0.5, daemon.kill)
    killing.start()
    unix.RETURN_S, runs.RETURN_S, before = 0.5, 0.5, unix.RETURN_S
    try:
        with pytest.raises((ConnectionLostError, DaemonUnavailableError), match="not known|glovebox serve"):
            sandbox.run_code("1")
    finally:
        unix.RETURN_S = runs.RETURN_S = before
    killing.join()
    daemon.start()
    sandbox.kill()


def test_many_threads_share_one_sandbox(sandbox: Sandbox) -> None:
    sandbox.run_code("total = 0")
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                execution = sandbox.run_code(f"total += 1\nprint({number * 100 + turn})")
                assert execution.stdout == f"{number * 100 + turn}\n"
                sandbox.files.write(f"t{number}", str(turn))
                assert sandbox.files.read(f"t{number}") == str(turn)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [] and sandbox.run_code("total").text == "80"


def _sockets() -> int:
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except OSError:
            continue
    return found


def test_no_socket_is_left(where: dict[str, Any]) -> None:
    gc.collect()
    before = _sockets()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            with Sandbox.create(**where) as made:
                made.run_code("1 / 0")
                made.commands.run("exit 1", check=False)
                made.files.write("a", b"x" * 1_000_000)
                stream = made.files.read("a", "stream")
                next(iter(stream))
                del stream
                events = made.stream("print(1)\nimport time; time.sleep(0.2)")
                assert isinstance(next(events), StartEvent)
                del events
                with pytest.raises(FileNotFoundError):
                    made.files.read("nope")
            del made
        gc.collect()
        assert _sockets() == before


def test_an_interrupt_of_the_caller_interrupts_the_code(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 1")
    main = threading.get_ident()
    threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sandbox.run_code("while True: pass")
    started = time.monotonic()
    assert sandbox.run_code("x", timeout=30).text == "1" and time.monotonic() - started < 20


# asyncio


def test_the_async_half_has_the_same_names() -> None:
    for blocking, asynchronous in ((Sandbox, AsyncSandbox),):
        ours = {name for name in dir(asynchronous) if not name.startswith("_")}
        assert ours == {name for name in dir(blocking) if not name.startswith("_")}


def test_everything_once_with_asyncio(with_async: Callable[..., Any], tmp_path: Any) -> None:
    async def work(sandbox: AsyncSandbox) -> None:
        received: list[str] = []

        async def hear(text: str) -> None:
            await asyncio.sleep(0)
            received.append(text)

        execution = await sandbox.run_code("print('a'); 6 * 7", on_stdout=hear)
        assert execution.text == "42" and received == ["a\n"]
        kinds = [event.type async for event in sandbox.stream("print(1); 2")]
        assert kinds == ["start", "stdout", "result", "end"]
        await sandbox.set("x", {"a": (1, 2)})
        assert await sandbox.get("x") == {"a": (1, 2)}
        assert (await sandbox.commands.run("cat", stdin="in")).stdout == "in"
        await sandbox.files.write("d/a", b"x" * 1_000_000)
        assert len(await sandbox.files.read("d/a", "bytes")) == 1_000_000
        assert sum([len(piece) async for piece in await sandbox.files.read("d/a", "stream")]) == 1_000_000
        await sandbox.files.download("d", tmp_path / "d")
        handle = await sandbox.commands.run("read a; echo got $a", background=True)
        await handle.send_stdin("b\n")
        assert "".join([event.text async for event in handle]) == "got b\n"
        assert (await handle.wait()).ok
        while await sandbox.hibernate() != "asleep":  # the command's supervisor may be about to end
            await asyncio.sleep(0.05)
        results = await asyncio.gather(*(sandbox.run_code(f"print({i})") for i in range(20)))
        assert [result.stdout for result in results] == [f"{i}\n" for i in range(20)]
        found = await AsyncSandbox.connect(sandbox.name, **_where(sandbox))
        assert (await found.info()).id == sandbox.id

    with_async(work)


def _where(sandbox: AsyncSandbox) -> dict[str, Any]:
    target = sandbox._transport.target
    return {"socket": target.socket} if target.socket else {"url": target.url, "api_key": target.api_key}


def test_a_cancelled_task_interrupts_its_code_and_leaves_no_socket(with_async: Callable[..., Any]) -> None:
    before = _sockets()

    async def work(sandbox: AsyncSandbox) -> None:
        await sandbox.run_code("x = 1")
        task = asyncio.ensure_future(sandbox.run_code("while True: pass"))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sandbox.run_code("while True: pass"), 0.5)
        assert (await sandbox.run_code("x", timeout=30)).text == "1"

    with_async(work)
    gc.collect()
    assert _sockets() <= before + 1  # the transport's own, until it is collected


def test_one_async_sandbox_serves_several_loops(where: dict[str, Any]) -> None:
    sandbox = asyncio.run(AsyncSandbox.create(**where))
    assert asyncio.run(sandbox.run_code("6 * 7")).text == "42"
    assert asyncio.run(sandbox.run_code("6 * 8")).text == "48"
    asyncio.run(sandbox.kill())


def test_a_daemon_is_started_when_none_runs(idle_place: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in idle_place.items():
        monkeypatch.setenv(name, value)
    threads = [threading.Thread(target=lambda: Sandbox.list()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Sandbox.create().run_code("6 * 7").text == "42"
    wait_for("the nameless sandbox to be gone", lambda: Sandbox.list() == [])
