"""Seeds 000, 001, 002 and 004 with Docker in place of native boxes: the same code, the same result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import engines

from compat.seeds import block_with

ENGINES = ("native", "docker")


@pytest.fixture(scope="module")
def dockerd() -> Iterator[engines.Engine]:
    with engines.docker() as engine:
        yield engine


@pytest.fixture
def docker(place: Path, dockerd: engines.Engine, monkeypatch: pytest.MonkeyPatch) -> engines.Engine:
    """As a user has it: a dockerd at its socket, and an image named in the environment."""
    monkeypatch.setenv("GLOVEBOX_DOCKER_SOCKET", str(dockerd.socket))
    monkeypatch.setenv("DOCKER_SANDBOX_IMAGE", engines.IMAGE)
    return dockerd


class Counter:
    """Counts the containers that appear from now on, as often as it is called."""

    def __init__(self, docker: engines.Engine) -> None:
        self.docker = docker
        self.before = {box["Id"] for box in docker.boxes()}
        self.seen: set[str] = set()

    def __call__(self) -> int:
        self.seen.update({box["Id"] for box in self.docker.boxes()} - self.before)
        return len(self.seen)


def on_both(docker: engines.Engine, work: Callable[[str, Callable[[], int]], Any]) -> None:
    """Runs `work` natively and on Docker: a container for the second alone, and the same answer from both."""
    told = {}
    for engine in ENGINES:
        count = Counter(docker)
        told[engine] = work(engine, count)
        assert (count() > 0) == (engine == "docker"), engine
    assert told["docker"] == told["native"]


def test_000_the_kernel_of_a_project(place: Path, docker: engines.Engine) -> None:
    from glovebox.compat.kernellite import exec_code, ping, start_container, stop_container

    def work(engine: str, count: Callable[[], int]) -> list[Any]:
        project = place / f"project-{engine}"
        project.mkdir()
        start_container(project, engine, memory="512m", engine=engine)
        codes = ("x = 6; print(open('in.txt').read())", "print(x * 7)", "1 / 0", "open('out.txt', 'w').write(str(x))")
        (project / "in.txt").write_text("from the host")
        told = [exec_code(project, code) for code in codes]
        count()
        for answer in told:  # paths inside the interpreter differ between images
            answer["stderr"] = answer["stderr"].strip().rpartition("\n")[2]
        told.append((project / "out.txt").read_text())
        stop_container(engine)
        assert not ping(project)
        return told

    on_both(docker, work)


def test_000_pandastool_by_the_variable(place: Path, docker: engines.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from glovebox.compat.kernellite import pandastool, stop_container

    monkeypatch.setenv("SANDBOX_MODE", "docker")
    (place / "tool").mkdir()
    told = json.loads(pandastool("import os; print(6 * 7, os.path.exists('/.dockerenv'))", str(place / "tool")))
    assert told == {"status": "[OK] exec", "stdout": "42 True\n", "stderr": ""}
    stop_container("tool")


def test_001_sessions_and_artifacts(place: Path, docker: engines.Engine) -> None:
    from glovebox.compat.code_sandbox import SessionManager

    (place / "datasets").mkdir()
    (place / "datasets/in.txt").write_text("seven")

    def work(engine: str, count: Callable[[], int]) -> list[Any]:
        own = place / engine
        told: list[Any] = []
        with SessionManager(sessions_dir=own / "sessions", engine=engine, memory="256m") as manager:
            first = manager.exec(block_with("001", "hello from sandbox"), session_id="conv")
            host = own / "sessions/conv/artifacts/output.txt"
            assert dict(first.artifact_map) == {"/session/artifacts/output.txt": str(host)}, first
            told += [first.status, first.stdout, host.read_text(), host.stat().st_uid]
            told.append(manager.exec("print(x)", session_id="conv").stdout)
            count()
        ephemeral = SessionManager(
            "ephemeral", outputs_dir=own / "outputs", datasets_dir=place / "datasets", engine=engine
        )
        code = (
            "import os; os.makedirs('/work/artifacts', exist_ok=True)\n"
            "open('/work/artifacts/out.txt', 'w').write(open('/data/in.txt').read())"
        )
        run = ephemeral.exec(code)
        (path,) = run.artifact_map
        return [*told, run.status, path, Path(run.artifact_map[path]).read_text()]

    on_both(docker, work)


def test_002_the_executor_and_its_switch(place: Path, docker: engines.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from glovebox.compat.dolphin import DockerSandboxExecutor, ReasoningConfig
    from glovebox.compat.dolphin.reasoning import reason

    def answer(messages: list[dict[str, str]]) -> str:
        last = messages[-1]["content"]
        if last.startswith("The code printed"):
            return last
        return "```python\nopen('/sandbox/kept.txt', 'w').write('kept'); print(6 * 7)\n```"

    def work(engine: str, count: Callable[[], int]) -> list[Any]:
        base = place / engine
        with DockerSandboxExecutor("mine", str(base), memory_limit="256m", engine=engine) as sandbox:
            told: list[Any] = [sandbox.execute_code("n = 41"), sandbox.execute_code("print(n + 1)")]
            told.append("ZeroDivisionError" in sandbox.execute_code("1 / 0"))
            told.append(sandbox.execute_code("open('/sandbox/result.txt', 'w').write('55')"))
            count()
        told.append((base / "mine/result.txt").read_text())
        monkeypatch.setenv("DOLPHIN_USE_DOCKER_SANDBOX", "1")
        config = ReasoningConfig(True, session_id="loop", sandbox_base_dir=str(base), engine=engine)
        told.append(asyncio.run(reason("what is 6 * 7?", answer, config)).answer)
        return [*told, (base / "loop/kept.txt").read_text()]

    on_both(docker, work)


def test_002_an_image_that_is_not_there_is_named(place: Path, docker: engines.Engine) -> None:
    from glovebox.compat.dolphin import DockerSandboxExecutor

    missing = DockerSandboxExecutor("a", str(place / "b"), image_name="no-such-image", engine="docker")
    with pytest.raises(RuntimeError, match="docker pull no-such-image"):
        missing.execute_code("1")
    missing.close()


def test_004_a_box_for_each_call(place: Path, docker: engines.Engine) -> None:
    from glovebox.compat.container import SandboxConfig, SandboxRunner

    (place / "in").mkdir()
    (place / "in/a.txt").write_text("from the host")

    def work(engine: str, count: Callable[[], int]) -> list[Any]:
        config = SandboxConfig(
            timeout_seconds=10, memory_limit="128m", allowed_read_paths=[str(place / "in")], engine=engine
        )
        runner = SandboxRunner(config)
        mounts = [{"host_path": str(place / "in"), "container_path": "/mnt/in"}]
        codes = [
            ("x = 1\nprint(__file__, open('/workspace/code').read(5))", "python", []),
            ("import sys; print('o'); sys.exit(3)", "python", []),
            ("x = bytearray(10**9)", "python", []),
            ("cat /mnt/in/a.txt; touch /mnt/in/b 2>/dev/null || echo no", "bash", mounts),
        ]

        async def all_of_them() -> list[Any]:
            told = []
            for code, language, shown in codes:
                run = asyncio.create_task(runner.run_code(code, language, shown))
                while not run.done():  # a box is there only while it runs
                    await asyncio.sleep(0.02)
                    count()
                result = run.result()
                told.append((result.success, result.exit_code, result.stdout, result.timed_out))
            return told

        return asyncio.run(all_of_them())

    on_both(docker, work)
    assert [path.name for path in (place / "in").iterdir()] == ["a.txt"]
