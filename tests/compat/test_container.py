"""Seed 004: a box for each call of a tool."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.glovebox import REPOSITORY

from compat.seeds import block_with, seed_text


def test_the_verification_of_the_text(place: Path) -> None:
    (line,) = re.findall(r"`(python -c \"import asyncio; from sandbox import SandboxRunner.*?)`", seed_text("004"))
    words = shlex.split(line.replace("from sandbox import", "from glovebox.compat.container import"))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "clients/python/src")}
    done = subprocess.run([sys.executable, *words[1:]], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("42\n\n", 0), done.stderr


def test_runs_are_apart_bounded_and_see_their_code(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    from glovebox.compat.container import SandboxConfig, SandboxRunner

    (place / "in").mkdir()
    (place / "in/a.txt").write_text("from the host")
    config = SandboxConfig(timeout_seconds=2, memory_limit="128m", allowed_read_paths=[str(place / "in")])
    runner = SandboxRunner(config)
    run = asyncio.run(runner.run_code("x = 1\nprint(__file__, open('/workspace/code').read(5))"))
    assert run.success and str(run) == "/workspace/code x = 1\n"
    failed = asyncio.run(runner.run_code("import sys; print('o'); sys.exit(3)"))
    assert (failed.success, failed.exit_code) == (False, 3)
    assert str(failed) == "Exit code 3.\nStdout: o\n\nStderr: "
    late = asyncio.run(runner.run_code("print('begun', flush=True)\nwhile True: pass"))
    assert (late.timed_out, late.exit_code, late.success) == (True, -1, False)
    assert str(late).startswith("Execution timed out.")
    assert asyncio.run(runner.run_code("x = bytearray(10**9)")).exit_code == 137
    assert asyncio.run(runner.run_command("echo $((6 * 7))")).stdout == "42\n"
    network = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    assert not asyncio.run(runner.run_code(network)).success
    mounts = [
        {"host_path": str(place / "in"), "container_path": "/mnt/in"},
        {"host_path": "/etc/passwd", "container_path": "/mnt/passwd"},
        {"host_path": str(place / "in"), "container_path": "/mnt/out", "readonly": False},
    ]
    with caplog.at_level(logging.WARNING):
        listed = asyncio.run(runner.run_code("ls /mnt; cat /mnt/in/a.txt", "bash", mounts))
    assert listed.stdout == "in\nfrom the host", listed
    assert len(caplog.records) == 2


def test_many_runs_at_once(place: Path) -> None:
    from glovebox.compat.container import SandboxRunner

    async def all_of_them() -> list[str]:
        runner = SandboxRunner()
        runs = await asyncio.gather(*(runner.run_code(f"print({number})") for number in range(8)))
        return [run.stdout for run in runs]

    assert asyncio.run(all_of_them()) == [f"{number}\n" for number in range(8)]


def test_the_policy_decides_as_the_texts_own_and_never_more_widely(tmp_path: Path) -> None:
    from glovebox.compat.container import mount_security

    importlib.reload(mount_security)  # other tests have another HOME
    MountPolicy, validate_mount = mount_security.MountPolicy, mount_security.validate_mount
    theirs: dict[str, object] = {}
    exec(block_with("004", "FORBIDDEN_PATHS = ["), theirs)
    assert theirs["FORBIDDEN_PATHS"] == mount_security.FORBIDDEN_PATHS
    (tmp_path / "r/sub").mkdir(parents=True)
    (tmp_path / "w").mkdir()
    (tmp_path / "r/link").symlink_to("/etc")
    lists = {"allowed_read_paths": [str(tmp_path / "r"), "/etc"], "allowed_write_paths": [str(tmp_path / "w")]}
    ours, original = MountPolicy(**lists), theirs["MountPolicy"](**lists)  # type: ignore[operator]
    paths = [tmp_path / "r", tmp_path / "r/sub", tmp_path / "w", tmp_path, tmp_path / "r/link", tmp_path / "missing"]
    for path in [*map(str, paths), "/etc/shadow", "/proc/1", "/root", "/dev/null", "/"]:
        for writable in (False, True):
            want = theirs["validate_mount"](path, original, writable)  # type: ignore[operator]
            assert validate_mount(path, ours, writable) == (want and "link" not in path), (path, writable)
    assert not MountPolicy().is_allowed(str(tmp_path))
    # /etc is refused although it is listed: it would show /etc/shadow.
    assert not validate_mount("/etc", ours)
