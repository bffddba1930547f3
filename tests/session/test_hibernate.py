"""Hibernation, two depths: trimmed or asleep, the next call finds everything as it was."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, is_gone, wait_for


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


def show(client: Client, name: str) -> dict:
    return client.request("session.show", session=name)


def result(client: Client, code: str, name: str) -> str:
    done = client.execute(code, name)
    assert done["status"] == "ok" and not done.get("variables_lost"), done
    return done["result"]["text/plain"]


def test_sleep_ends_the_process_and_the_next_call_brings_everything_back(daemon: Daemon, client: Client) -> None:
    client.execute(
        "a = [1, 2]; b = a; c = {'a': a}\nclass Point:\n    def __init__(self, x): self.x = x\np = Point(3)\n"
        "def f(x): return x + p.x\nimport math, os\nos.environ['MARK'] = 'yes'; os.makedirs('d'); os.chdir('d')",
        "sleep",
    )
    agent = daemon.agent_of("sleep")
    answered = client.request("session.hibernate", session="sleep", depth="sleep")
    assert answered["state"] == "asleep" and answered["bytes"] > 0, answered
    wait_for("the kernel to end", lambda: is_gone(agent))
    shown = wait_for("no kernel", lambda: show(client, "sleep") if show(client, "sleep")["pid"] == 0 else None)
    assert (shown["state"], shown["memory_bytes"]) == ("asleep", 0), shown
    assert client.request("session.hibernate", session="sleep")["state"] == "asleep"  # again: nothing to do
    code = "(a is b, c['a'] is a, f(1), type(p).__name__, math.pi > 3, os.environ['MARK'], os.getcwd())"
    assert result(client, code, "sleep") == "(True, True, 4, 'Point', True, 'yes', '/workspace/d')"
    assert show(client, "sleep")["state"] == "idle"


def test_a_value_that_cannot_sleep_is_named_and_kept(client: Client) -> None:
    client.execute("kept = 1; stream = (i for i in range(3)); next(stream)", "held")
    answered = client.request("session.hibernate", session="held", depth="sleep")
    assert answered["state"] == "trimmed", answered
    assert [item["name"] for item in answered["held_back"]] == ["stream"], answered
    assert show(client, "held")["held_back"] == answered["held_back"]
    assert result(client, "(kept, next(stream))", "held") == "(1, 1)"


def test_a_running_session_is_not_put_to_sleep(client: Client) -> None:
    number = client.begin("execute", session="busy", code="import time; time.sleep(3600)")
    wait_for("the run", lambda: show(client, "busy")["state"] == "running")
    with pytest.raises(DaemonError) as caught:
        client.request("session.hibernate", session="busy")
    assert caught.value.code == "busy"
    client.request("session.interrupt", session="busy")
    assert client.finish(number)["status"] == "interrupted"


def test_a_restart_of_a_sleeping_session_forgets_the_variables(client: Client) -> None:
    client.execute("x = 1", "forget")
    client.request("session.hibernate", session="forget")
    client.request("session.restart", session="forget")
    assert client.execute("'x' in globals()", "forget")["result"] == {"text/plain": "False"}


SLOW_TO_SAVE = """
import os, time
kept = 'alive'
class Slow:
    def __reduce__(self):
        open('/workspace/saving', 'w').close()
        while not os.path.exists('/workspace/go'): time.sleep(0.01)
        return (Slow, ())
slow = Slow()
"""


def saving(workspace: Path) -> bool:
    return (workspace / "saving").exists()


def test_killed_in_the_middle_of_sleeping_leaves_no_half_file(daemon: Daemon, client: Client) -> None:
    client.execute(SLOW_TO_SAVE, "middle")
    workspace = Path(show(client, "middle")["workspace"])
    number = client.begin("session.hibernate", session="middle", depth="sleep")
    wait_for("the sleep to begin", lambda: saving(workspace))
    os.kill(daemon.agent_of("middle"), signal.SIGKILL)
    with pytest.raises(DaemonError) as caught:
        client.finish(number)
    assert caught.value.code == "gone"
    state = daemon.data / "state" / show(client, "middle")["id"] / "kernel"
    assert not (state / "sleep").exists()
    after = client.execute("'kept' in globals()", "middle")
    assert (after["result"], after["variables_lost"]) == ({"text/plain": "False"}, True), after


def test_a_kernel_that_is_asleep_before_the_daemon_looks_is_asleep_and_not_lost(daemon: Daemon, client: Client) -> None:
    client.execute(SLOW_TO_SAVE, "quick")
    workspace = Path(show(client, "quick")["workspace"])
    agent = daemon.agent_of("quick")
    kernel = daemon.kernel_of("quick")
    number = client.begin("session.hibernate", session="quick", depth="sleep")
    wait_for("the sleep to begin", lambda: saving(workspace))
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        (workspace / "go").touch()
        wait_for("the kernel to be gone", lambda: is_gone(kernel))
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert client.finish(number)["state"] == "asleep"
    wait_for("its box to be gone", lambda: is_gone(agent))
    assert result(client, "kept", "quick") == "'alive'"


def test_daemon_killed_while_a_session_goes_to_sleep_loses_nothing(start_daemon) -> None:  # noqa: ANN001
    daemon = start_daemon()
    client = daemon.client()
    client.execute(SLOW_TO_SAVE, "s")
    workspace = Path(show(client, "s")["workspace"])
    kernel = daemon.kernel_of("s")
    client.begin("session.hibernate", session="s", depth="sleep")
    wait_for("the sleep to begin", lambda: saving(workspace))
    daemon.kill()
    (workspace / "go").touch()
    wait_for("the kernel to be gone", lambda: is_gone(kernel))
    client = daemon.start().client()
    assert result(client, "kept", "s") == "'alive'"


SLOW_TO_WAKE = """
import os, time
class Slow:
    def __setstate__(self, state):
        self.kept = state['kept']
        if os.path.exists('/workspace/slow'):
            open('/workspace/waking', 'w').close()
            while not os.path.exists('/workspace/go'): time.sleep(0.01)
slow = Slow()
slow.kept = 'alive'
"""


@pytest.mark.parametrize("is_lost", [False, True], ids=["unread", "lost"])
def test_daemon_killed_before_it_recorded_a_wake_loses_nothing(start_daemon, is_lost: bool) -> None:  # noqa: ANN001
    """The kernel has the variables, and the record still names the file."""
    daemon = start_daemon()
    client = daemon.client()
    client.execute(SLOW_TO_WAKE, "s")
    workspace = Path(show(client, "s")["workspace"])
    assert client.request("session.hibernate", session="s", depth="sleep")["state"] == "asleep"
    (workspace / "slow").touch()
    client.begin("execute", session="s", code="1")
    wait_for("the wake to begin", lambda: (workspace / "waking").exists())
    kernel = daemon.kernel_of("s")
    replies = os.open(f"/proc/{kernel}/fd/4", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.kill(daemon.pid, signal.SIGSTOP)
        (workspace / "go").touch()
        wait_for("the answer", lambda: select.select([replies], [], [], 0)[0])
        daemon.kill()
        if is_lost:
            assert b'"ok":true' in os.read(replies, 1 << 20)
    finally:
        os.close(replies)
    client = daemon.start().client()
    file = daemon.data / "state" / show(client, "s")["id"] / "kernel" / "sleep"
    if is_lost:  # how far the wake came is unknown: the file counts
        wait_for("the session to be asleep again", lambda: show(client, "s")["state"] == "asleep", 10)
        assert file.exists()
    else:
        wait_for("the file to be gone", lambda: not file.exists(), 10)
    daemon.kill()
    client = daemon.start().client()
    done = client.execute("slow.kept", "s")
    assert done["result"] == {"text/plain": "'alive'"} and "variables_lost" not in done and "wake" not in done, done


@pytest.mark.parametrize("how", ["option", "variable"])
def test_an_idle_session_goes_to_sleep_by_itself(start_daemon, how: str) -> None:  # noqa: ANN001
    daemon = start_daemon("--idle", "1") if how == "option" else start_daemon(env={"IDLE_HIBERNATE_SEC": "1"})
    client = daemon.client()
    client.execute("x = [1]", "idle")
    wait_for("the session to sleep", lambda: show(client, "idle")["state"] == "asleep")
    assert result(client, "x", "idle") == "[1]"


def test_a_file_that_cannot_be_woken_is_kept_and_the_loss_is_said(daemon: Daemon, client: Client) -> None:
    client.execute("x = 1", "spoiled")
    client.request("session.hibernate", session="spoiled")
    state = daemon.data / "state" / show(client, "spoiled")["id"] / "kernel"
    wait_for("the kernel to end", lambda: show(client, "spoiled")["pid"] == 0)
    (state / "sleep").write_bytes(b"GLOVEBOX-SLEEP 1\nnonsense")
    done = client.execute("'x' in globals()", "spoiled")
    assert (done["status"], done["result"], done["variables_lost"]) == ("ok", {"text/plain": "False"}, True), done
    assert (state / "sleep.unreadable").exists()


def test_files_in_tmp_home_and_shm_and_the_umask_survive_a_sleep(daemon: Daemon, client: Client) -> None:
    client.execute(
        "import os, pathlib\nos.umask(0o027)\n"
        "pathlib.Path('/tmp/dir').mkdir(); pathlib.Path('/tmp/dir/large').write_bytes(b'l' * 1_000_000)\n"
        "pathlib.Path.home().joinpath('.config').write_text('mine'); pathlib.Path('/dev/shm/s').write_text('shared')\n"
        "os.chdir('/tmp/dir')",
        "files",
    )
    answered = client.request("session.hibernate", session="files", depth="sleep")
    assert answered["state"] == "asleep" and "not_carried" not in answered, answered
    code = (
        "(os.getcwd(), len(open('large').read()), pathlib.Path.home().joinpath('.config').read_text(),"
        " open('/dev/shm/s').read(), oct(os.umask(0o027)))"
    )
    assert result(client, code, "files") == "('/tmp/dir', 1000000, 'mine', 'shared', '0o27')"


def test_a_session_with_too_much_in_tmp_stays_awake_and_says_why(client: Client) -> None:
    client.execute("x = 1\nfor i in range(10_001): open(f'/tmp/{i}', 'w').close()", "much")
    answered = client.request("session.hibernate", session="much", depth="sleep")
    assert answered["state"] == "trimmed" and "move them to the workspace" in answered["held_back"][0]["why"], answered
    assert result(client, "x, len(__import__('os').listdir('/tmp')) > 10_000", "much") == "(1, True)"


def test_values_that_a_sleep_does_not_carry_are_in_its_answer_and_the_next_result(
    client: Client, daemon: Daemon
) -> None:
    client.execute("import builtins; builtins.extra = 1; x = 2", "named")
    answered = client.request("session.hibernate", session="named", depth="sleep")
    assert "extra" in answered["not_carried"][0], answered
    done = client.execute("x", "named")
    assert done["wake"] == {"not_carried": answered["not_carried"]} and "variables_lost" not in done, done
    assert "wake" not in client.execute("x", "named")
    client.execute("builtins.extra = 1", "named")
    assert "not carried: builtins" in daemon.cli("session", "hibernate", "named").stdout


def test_a_flipped_bit_in_a_sleep_file_is_reported_with_the_next_result(daemon: Daemon, client: Client) -> None:
    client.execute("x = 1; text = 'a' * 100_000", "flipped")
    client.request("session.hibernate", session="flipped")
    state = daemon.data / "state" / show(client, "flipped")["id"] / "kernel"
    wait_for("the kernel to end", lambda: show(client, "flipped")["pid"] == 0)
    content = bytearray((state / "sleep").read_bytes())
    content[content.index(b"a" * 1000) + 500] ^= 1
    (state / "sleep").write_bytes(content)
    done = client.execute("'x' in globals()", "flipped")
    assert (done["result"], done["variables_lost"]) == ({"text/plain": "False"}, True), done
    assert "checksum" in done["wake"]["error"] and sorted(done["wake"]["damaged"]) == ["text", "x"], done
    assert (state / "sleep.unreadable").exists() and "cannot be woken" in daemon.words()
