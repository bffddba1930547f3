"""Packages, and quotas of a key."""

from __future__ import annotations

from pathlib import Path

import pytest
from glovebox import InstallError, InvalidArgumentError, LimitError, Sandbox
from support.daemons import StartDaemon
from support.service import start_service
from support.wheels import make_wheel


def test_packages_are_installed_or_the_reason_is_given(start_daemon: StartDaemon, tmp_path: Path) -> None:
    make_wheel(tmp_path, "tiny", "1.5", {"tiny/__init__.py": "answer = 42"})
    wheels = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    daemon = start_daemon(env=wheels)
    received: list[str] = []
    with Sandbox.create(socket=daemon.socket) as sandbox:
        installed = sandbox.install("tiny>=1", on_stdout=received.append)
        assert [(package.name, package.version) for package in installed] == [("tiny", "1.5")]
        assert installed.restart_needed == [] and "tiny" in "".join(received)
        assert sandbox.run_code("import tiny; tiny.answer").text == "42"
        for code in ("import nonesuch", "x = 1\n%pip install -q nonesuch"):
            error = sandbox.run_code(code).error
            assert error and "sandbox.install() with nonesuch" in error.traceback, error
        with pytest.raises(InstallError, match=r"(?s)nonesuch could not be installed: pip .*No matching distribution"):
            sandbox.install("nonesuch")
        with pytest.raises(InvalidArgumentError):
            sandbox.install("--index-url=http://x")
        with pytest.raises(InvalidArgumentError, match="at least one"):
            sandbox.install()
    with Sandbox.create(packages=["tiny"], socket=daemon.socket) as ready:
        assert ready.run_code("import tiny; tiny.answer").text == "42"
    with pytest.raises(InstallError, match="nonesuch"):
        Sandbox.create("failed", packages=["nonesuch"], socket=daemon.socket)
    assert Sandbox.list(socket=daemon.socket) == []


def test_a_quota_that_is_used_up_says_so(start_daemon: StartDaemon) -> None:
    service = start_service(start_daemon("--key-sandboxes", "1", start=False), ("ann",))
    where = {"url": f"http://127.0.0.1:{service.port}", "api_key": service.keys["ann"]}
    with Sandbox.create(**where):
        with pytest.raises(LimitError, match="destroy"):
            Sandbox.create(**where)
