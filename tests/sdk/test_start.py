"""Finding the daemon and starting it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from glovebox import InvalidArgumentError, Sandbox, UnsupportedError, _place, _start, errors
from support.daemon import wait_for
from support.daemons import StartDaemon


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in list(os.environ):
        if name.startswith(("GLOVEBOX_", "SANDBOX_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def test_the_places_are_those_of_the_command_line(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def at() -> str:
        return _place.find_target().name

    clean.setattr(os, "geteuid", lambda: 0)
    assert at() == "/run/glovebox/glovebox.sock"
    clean.setattr(os, "geteuid", lambda: 1000)
    assert at() == "/tmp/glovebox-1000/glovebox.sock"
    clean.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert at() == "/run/user/1000/glovebox/glovebox.sock"
    clean.setenv("SANDBOX_DATA_DIR", "/srv/other")
    assert at() == "/srv/other/glovebox.sock"
    clean.setenv("GLOVEBOX_DATA_DIR", "/srv/data")
    assert at() == "/srv/data/glovebox.sock"
    clean.setenv("GLOVEBOX_SOCKET", "here.sock")
    assert at() == str(tmp_path / "here.sock")
    clean.setenv("GLOVEBOX_URL", "https://sandbox.example.org/")
    clean.setenv("GLOVEBOX_API_KEY", "key")
    found = _place.find_target()
    assert (found.url, found.api_key, found.may_start) == ("https://sandbox.example.org", "key", False)
    assert _place.find_target(socket="/a.sock").may_start is False, "what is named is not started"
    assert _place.find_target(socket="/a.sock", start=True).may_start is True
    with pytest.raises(InvalidArgumentError, match="http://"):
        _place.find_target(url="sandbox.example.org")
    with pytest.raises(InvalidArgumentError, match="107"):
        _place.find_target(socket="/" + "x" * 200)


def test_a_project_has_a_daemon_of_its_own(clean: pytest.MonkeyPatch, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    project = daemon.glovebox.place.make("project")
    (project / ".sandbox").mkdir()
    (project / "below").mkdir()
    clean.chdir(project / "below")
    os.link(daemon.socket, project / ".sandbox/kernel.sock")
    assert _place.find_target().name == str(project / ".sandbox/kernel.sock")
    assert Sandbox.list() == []
    os.unlink(project / ".sandbox/kernel.sock")
    (project / ".sandbox/kernel.sock").write_text("no socket")
    assert _place.find_target().project is None


def test_the_program_is_found_in_order(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin/glovebox"
    program.parent.mkdir()
    program.write_bytes(b"\x7fELF")
    clean.setenv("PATH", str(program.parent))
    assert _start.find_program() is None, "it cannot be executed"
    program.chmod(0o755)
    assert _start.find_program() == _start.Program(str(program), "path")
    program.write_text("#!/bin/sh\n")
    assert _start.find_program() is None, "a script of that name is not the program"
    clean.setenv("GLOVEBOX_PROGRAM", "/bin/true")
    assert _start.find_program() == _start.Program("/bin/true", "variable")


def test_a_daemon_that_cannot_start_says_why(clean: pytest.MonkeyPatch, binary: Path) -> None:
    clean.setenv("GLOVEBOX_PROGRAM", str(binary))
    clean.setenv("GLOVEBOX_DATA_DIR", "/proc/nowhere")
    with pytest.raises(errors.DaemonUnavailableError, match="could not be started: .*doctor"):
        Sandbox.create()


def test_a_users_daemon_gets_a_scope_where_systemd_serves_the_user(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no systemd here: what is looked at is when it would be asked, and for what."""
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/private").touch()
    runner = tmp_path / "systemd-run"
    runner.write_text("#!/bin/sh\n")
    runner.chmod(0o755)
    clean.setenv("PATH", str(tmp_path))
    clean.setattr(os.path, "exists", lambda path: path.startswith("/sys/fs/cgroup/") or Path(path).is_file())
    assert _start.delegation() == [], "root needs none"
    clean.setattr(os, "geteuid", lambda: 1000)
    assert _start.delegation() == []
    clean.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert _start.delegation() == [
        str(runner), "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--",
    ]  # fmt: skip
    clean.setenv("GLOVEBOX_CGROUP_PARENT", "mine")
    assert _start.delegation() == []


def test_a_daemon_that_was_killed_is_started_again(idle_place: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in idle_place.items():
        monkeypatch.setenv(name, value)
    sandbox = Sandbox.create("survivor")
    sandbox.run_code("x = 42")
    pid = int(sandbox._transport.check()["daemon"]["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_for("it to die", lambda: not os.path.exists(f"/proc/{pid}") or _is_zombie(pid))
    assert sandbox.run_code("x").text == "42"
    assert int(sandbox._transport.check()["daemon"]["pid"]) != pid
    sandbox.kill()


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_advice_is_spelled_in_python() -> None:
    error = errors.error_of("unsupported", "this host cannot enforce it; or use --allow-weaker")
    assert isinstance(error, UnsupportedError) and "allow_weaker=True" in str(error)
