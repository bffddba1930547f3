"""The package on every Python from 3.9 on: by its grammar everywhere, and for real on those that are here."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.glovebox import REPOSITORY
from support.service import Service

SOURCE = REPOSITORY / "clients/python/src"
USE = """
import asyncio, sys
from glovebox import AsyncSandbox, CommandExitError, Sandbox, run

def blocking(where):
    with Sandbox.create(**where) as s:
        assert s.run_code("print('hé'); 6 * 7").text == "42"
        assert [e.type for e in s.stream("print(1); 2")] == ["start", "stdout", "result", "end"]
        assert s.run_code("1 / 0").error.name == "ZeroDivisionError"
        s.set("x", {"a": (1, 2)}); assert s.get("x") == {"a": (1, 2)}
        s.files.write("/tmp/a", b"1"); assert s.files.read("/tmp/a") == "1" and not s.files.exists("b")
        assert s.commands.run("cat", stdin="in").stdout == "in"
        h = s.commands.run("read a; echo $a", background=True); h.send_stdin("b\\n"); assert h.wait(30).stdout == "b\\n"
        try: s.commands.run("exit 2"); raise SystemExit("no error")
        except CommandExitError as error: assert error.exit_code == 2
    assert run("6 * 7", **where).text == "42"

async def asynchronous(where):
    async with await AsyncSandbox.create(**where) as s:
        assert (await s.run_code("6 * 7")).text == "42"
        assert [e.type async for e in s.stream("print(1)")] == ["start", "stdout", "end"]
        task = asyncio.ensure_future(s.run_code("while True: pass"))
        await asyncio.sleep(0.3)
        task.cancel()
        try: await task
        except asyncio.CancelledError: pass
        try: await asyncio.wait_for(s.run_code("while True: pass"), 0.3)
        except asyncio.TimeoutError: pass
        await s.files.write("a", b"x" * 300000)
        assert len(await s.files.read("a", "bytes")) == 300000 and (await s.run_code("1", timeout=30)).text == "1"

for where in WHERE:
    blocking(where)
    asyncio.run(asynchronous(where))
print("fine")
"""


def find_python(version: str) -> str | None:
    found = shutil.which(f"python{version}")
    here = sorted(Path(os.path.expanduser("~/.pyenv/versions")).glob(f"{version}.*/bin/python"))
    return str(here[-1]) if here else found


def test_the_grammar_is_that_of_the_oldest() -> None:
    for path in [*SOURCE.rglob("*.py"), *(REPOSITORY / "clients/runtime").rglob("*.py")]:
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_it_works_on_python(version: str, service: Service) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"optional: there is no Python {version} here")
    url = {"url": f"http://127.0.0.1:{service.port}", "api_key": service.keys["ann"]}
    code = f"WHERE = {[{'socket': service.daemon.socket}, url]!r}\n{USE}"
    environment = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}
    command = [python, "-X", "dev", "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.stderr) == ("fine\n", "")
