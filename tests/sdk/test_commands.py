"""Commands by the Python package, in the foreground and in the background."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from glovebox import CommandExitError, InvalidArgumentError, Sandbox, StdoutEvent, UnsupportedError


def test_a_command_gives_status_and_output(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("echo out; echo err >&2; pwd")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "out\n/workspace\n", "err\n")
    assert sandbox.commands.run(["echo", "$HOME", "a b"]).stdout == "$HOME a b\n"
    assert sandbox.commands.run("echo $A; pwd", env={"A": "b"}, cwd="/tmp").stdout == "b\n/tmp\n"


def test_another_status_raises_unless_asked_otherwise(sandbox: Sandbox) -> None:
    with pytest.raises(CommandExitError, match="status 3.*oops") as raised:
        sandbox.commands.run("echo oops >&2; exit 3")
    assert (raised.value.exit_code, raised.value.stderr) == (3, "oops\n")
    assert sandbox.commands.run("exit 3", check=False).exit_code == 3
    assert sandbox.commands.run("no-such-command", check=False).exit_code == 127


def test_standard_input_of_any_kind_and_size(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("cat", stdin="hé").stdout == "hé"
    assert sandbox.commands.run("wc -c", stdin=b"\0" * 5_000_000).stdout.strip() == "5000000"
    assert sandbox.commands.run("cat").stdout == ""
    assert sandbox.files.list("/workspace/.glovebox") == []


def test_a_time_limit_ends_a_command(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("sleep 100", timeout=0.3, check=False)
    assert (result.status, result.exit_code) == ("timeout", 124) and "time limit" in str(result.error)
    with pytest.raises(CommandExitError, match="time limit"):
        sandbox.commands.run("sleep 100", timeout=0.3)


def test_output_comes_as_it_is_written(sandbox: Sandbox) -> None:
    at: list[float] = []
    sandbox.commands.run("echo 1; sleep 0.5", on_stdout=lambda _: at.append(time.time()))
    assert time.time() - at[0] > 0.3


def test_a_background_command_runs_beside_code(sandbox: Sandbox) -> None:
    sandbox.commands.run("mkdir -p site && echo hello > site/index.html")
    server = sandbox.commands.run("exec python3 -m http.server 8000 -d site", background=True, check=False)
    code = (
        "import time, urllib.request\n"
        "for _ in range(200):\n"
        "    try: page = urllib.request.urlopen('http://127.0.0.1:8000/').read(); break\n"
        "    except OSError: time.sleep(0.05)\n"
        "page"
    )
    assert sandbox.run_code(code, timeout=30).text == "b'hello\\n'"
    assert server.pid > 0 and server.poll() is None
    assert server.kill() and server.wait(30).exit_code == 137
    assert "GET /" in server.stderr and not server.kill()


def test_a_background_command_is_fed_while_code_runs(sandbox: Sandbox) -> None:
    received: list[str] = []
    handle = sandbox.commands.run(
        "read line; echo got $line; cat; echo end >&2; exit 5", background=True, check=False, on_stdout=received.append
    )
    busy = threading.Thread(target=lambda: sandbox.run_code("import time; time.sleep(1)"))
    busy.start()
    started = time.monotonic()
    handle.send_stdin("é1\n")
    handle.send_stdin(b"x" * 300_000)
    handle.close_stdin()
    result = handle.wait(30)
    busy.join()
    assert time.monotonic() - started < 20
    assert result.exit_code == 5 and result.stdout == "got é1\n" + "x" * 300_000 and result.stderr == "end\n"
    assert "".join(received) == result.stdout
    assert sandbox.files.list("/workspace/.glovebox") == [], "nothing of it is left"


def test_a_background_command_is_iterated_over(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.05; done", background=True)
    assert "".join(event.text for event in handle if isinstance(event, StdoutEvent)) == "1\n2\n3\n"
    assert handle.wait().ok
    with pytest.raises(CommandExitError, match="status 4"):
        sandbox.commands.run("exit 4", background=True).wait(30)
    missing = sandbox.commands.run(["no-such-program"], background=True, check=False)
    assert missing.wait(30).exit_code == 127 and "no-such-program" in missing.stderr
    assert sandbox.commands.run("cat", stdin="abc", background=True).wait(30).stdout == "abc"


def test_waiting_has_a_limit_and_the_command_goes_on(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("sleep 1; echo done", background=True)
    with pytest.raises(TimeoutError, match="goes on"):
        handle.wait(0.1)
    assert handle.wait(30).stdout == "done\n"


def test_commands_of_other_users(where: dict[str, Any]) -> None:
    with Sandbox.create(users=True, **where) as sandbox:
        sandbox.commands.run(["useradd", "-m", "eve"], user="root")
        assert sandbox.commands.run("whoami; cat", user="eve", stdin="given").stdout == "eve\ngiven"
        assert sandbox.commands.run("whoami").stdout == "sandbox\n"
        assert sandbox.isolation()["users"] is True
        missing = sandbox.commands.run("true", user="nobody-here", check=False)
        assert missing.exit_code == 126 and "nobody-here" in missing.stderr
        with pytest.raises(InvalidArgumentError, match="background"):
            sandbox.commands.run("true", user="root", background=True)


def test_a_sandbox_without_users_gives_a_hint_how_to_get_them(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("whoami", user="sandbox").stdout == "sandbox\n"
    with pytest.raises(UnsupportedError, match="users"):
        sandbox.commands.run("whoami", user="root")
