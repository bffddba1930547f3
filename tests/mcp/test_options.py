"""What the options of `glovebox mcp` allow, and that nothing is allowed without them."""

from __future__ import annotations

from collections.abc import Callable

from support.mcp import StdioPeer
from support.service import Service


def test_nothing_is_open_by_default(stdio: Callable[..., StdioPeer], service: Service) -> None:
    peer = stdio()
    assert "No network. No files of the host." in peer.hello["instructions"]
    secret = service.daemon.glovebox.place.write("secret.txt", "secret")
    assert "No such file" in peer.refusal("run_shell", command=f"cat {secret}")
    words = peer.refusal("run_python", code="import socket; socket.create_connection(('198.51.100.7', 80), 2)")
    assert "OSError" in words or "Error" in words


def test_workspace_is_shown_writable_or_read_only(stdio: Callable[..., StdioPeer], service: Service) -> None:
    project = service.daemon.glovebox.place.make("project")
    (project / "a.txt").write_text("mine")
    writable = stdio("--workspace", str(project))
    assert "changes there are real" in writable.hello["instructions"]
    assert writable.text("read_file", path="a.txt") == "mine"
    assert writable.text("run_shell", command="cat a.txt") == "mine"
    writable.text("write_file", path="b.txt", content="new")
    assert (project / "b.txt").read_text() == "new"
    assert writable.close() == 0
    assert (project / "a.txt").read_text() == "mine", "the project outlives the sandbox"
    readable = stdio("--workspace", f"{project}:ro")
    assert "/project, read-only" in readable.hello["instructions"]
    assert readable.text("run_shell", command="cat /project/a.txt") == "mine"
    readable.refusal("run_shell", command="echo x > /project/a.txt")
    assert (project / "a.txt").read_text() == "mine"


def test_hosts_are_named_to_the_model(stdio: Callable[..., StdioPeer]) -> None:
    peer = stdio("--allow-host", "pypi.org", "--allow-host", ".example.org")
    tools = {tool["name"]: tool for tool in peer.result("tools/list")["tools"]}
    assert "only: pypi.org, .example.org." in tools["run_python"]["description"]
    assert "http_proxy" in peer.text("run_shell", command="env")


def test_wrong_options_are_reported_at_once(service: Service) -> None:
    done = service.daemon.cli("mcp", "--workspace", "/no/such/dir")
    assert done.returncode != 0 and "/no/such/dir" in done.stderr
    done = service.daemon.cli("mcp", "--session", "../x")
    assert done.returncode == 2, done
    done = service.daemon.cli("mcp", "operand")
    assert done.returncode == 2, done
