"""A kernel, through the whole path: what code prints, answers, breaks and leaves in its namespace."""

from __future__ import annotations

import json
import signal

import pytest
from support.client import ANSWER, ERR, OUT, Client
from support.daemon import Daemon, wait_for


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


def test_variables_stay_between_calls_and_the_last_expression_is_the_result(client: Client) -> None:
    assert client.execute("x = 20\ndef double(v): return 2 * v", "state")["result"] is None
    done = client.execute("double(x) + 2", "state")
    assert (done["status"], done["exit_code"], done["stdout"], done["stderr"]) == ("ok", 0, "", "")
    assert done["result"] == {"text/plain": "42"}
    assert not done.get("variables_lost")


def test_sessions_do_not_see_each_other(client: Client) -> None:
    client.execute("mark = 1; open('mark', 'w').close()", "left")
    done = client.execute("import os; print('mark' in globals(), os.listdir('.'))", "right")
    assert "False" in done["stdout"] and "'mark'" not in done["stdout"], done


def test_contexts_are_apart(client: Client) -> None:
    client.execute("y = 1", "contexts")
    done = client.execute("y", "contexts", context="default")
    assert done["result"] == {"text/plain": "1"}
    refused = client.execute("y", "contexts", context="nowhere")
    assert refused["status"] == "error" and "nowhere" in refused["error"]["message"], refused


def test_prints_of_python_of_c_and_of_child_processes_are_captured_and_split(client: Client) -> None:
    code = """
import ctypes, os, subprocess, sys
print("python out"); print("python err", file=sys.stderr)
libc = ctypes.CDLL(None); libc.puts(b"c out"); libc.perror(b"c err")
os.write(1, b"fd out\\n"); os.write(2, b"fd err\\n")
subprocess.run(["/bin/sh", "-c", "echo child out; echo child err >&2"], check=True)
"""
    done = client.execute(code, "split")
    assert done["status"] == "ok", done
    assert sorted(done["stdout"].split("\n")[:-1]) == ["c out", "child out", "fd out", "python out"]
    lines = sorted(done["stderr"].split("\n")[:-1])
    assert [line.partition(":")[0] for line in lines] == ["c err", "child err", "fd err", "python err"]


def test_output_is_streamed_before_the_run_ends(client: Client) -> None:
    # The run waits for a file that is written only after its first line has come: no clock is involved.
    code = "import os, time\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('second')"
    client.execute("pass", "stream")
    number = client.begin("execute", session="stream", code=code, stream=True)
    seen = b""
    for kind, payload in client.messages(number):
        if kind != OUT:
            continue  # that it has begun
        seen += payload[4:]
        if seen == b"first\n":
            break
    client.write_file("stream", "go", b"")
    done = client.finish(number)
    assert client.out == b"second\n" and done["status"] == "ok" and "stdout" not in done


def test_events_are_numbered_in_order_and_a_stream_can_be_read_again_from_a_number(client: Client) -> None:
    code = "import os, sys\nfor i in range(3):\n    os.write(1, b'o%d' % i); os.write(2, b'e%d' % i)"
    number = client.begin("execute", session="numbers", code=code, stream=True)
    numbers, run_id = [], ""
    for kind, payload in client.messages(number):
        if kind == ANSWER:
            run_id = json.loads(payload)["run_id"]
            break
        if kind in (OUT, ERR):
            numbers.append(int.from_bytes(payload[:4], "little"))
    assert numbers == list(range(1, len(numbers) + 1)) and numbers
    again = client.request("run.read", session="numbers", run=run_id)
    assert (client.out, client.err) == (b"o0o1o2", b"e0e1e2") and again["status"] == "ok"
    client.request("run.read", session="numbers", run=run_id, **{"from": len(numbers)})
    assert len(client.out) + len(client.err) < 12
    client.request("run.read", session="numbers", run=run_id, **{"from": len(numbers) + 1})
    assert (client.out, client.err) == (b"", b"")


def test_traceback_shows_the_users_own_lines(client: Client) -> None:
    done = client.execute("def inner():\n    return 1 / 0  # my line\n\ninner()", "trace")
    error = done["error"]
    assert (done["status"], done["exit_code"], error["name"]) == ("error", 1, "ZeroDivisionError")
    assert "1 / 0  # my line" in error["traceback"] and "line 2, in inner" in error["traceback"]
    assert "glovebox_kernel" not in error["traceback"]


def test_input_fails_at_once_with_a_clear_message(client: Client) -> None:
    done = client.execute("input('name? ')", "input", timeout_ms=30000)
    assert done["status"] == "error" and not done["timed_out"]
    assert "input" in done["error"]["value"].lower(), done["error"]
    done = client.execute("import sys; sys.stdin.read()", "input", timeout_ms=30000)
    assert not done["timed_out"], done


def test_top_level_await_works(client: Client) -> None:
    done = client.execute("import asyncio\nawait asyncio.sleep(0, 'slept')", "await")
    assert (done["status"], done["result"]) == ("ok", {"text/plain": "'slept'"}), done


# Each way to end has its own report, and only what is truly lost is reported lost.
KEPT = {
    "syntax error": ("def f(:", "error", 1, "SyntaxError"),
    "exception": ("raise KeyError('k')", "error", 1, "KeyError"),
    "sys.exit": ("import sys; sys.exit(3)", "error", 3, None),
    "sys.exit(0)": ("import sys; sys.exit(0)", "ok", 0, None),
    "killed child": ("import subprocess; subprocess.run(['/bin/sh', '-c', 'kill -9 $$']).returncode", "ok", 0, None),
}
LOST = {
    "os._exit": ("import os; os._exit(1)", "error", 1, "kernel_exited", "os._exit"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "killed", 139, "segmentation_fault", "signal 11"),
    "own SIGKILL": (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "killed",
        137,
        "kernel_killed",
        "signal 9",
    ),
}


@pytest.mark.parametrize("how", KEPT)
def test_an_end_that_keeps_the_variables(client: Client, how: str) -> None:
    code, status, exit_code, name = KEPT[how]
    client.execute("kept = 'here'", "kept")
    done = client.execute(code, "kept")
    assert (done["status"], done["exit_code"]) == (status, exit_code), done
    assert (done["error"] or {}).get("name") == name or name is None, done
    assert not done.get("variables_lost"), done
    if how == "killed child":
        assert done["result"] == {"text/plain": str(-signal.SIGKILL)}
    assert client.execute("kept", "kept")["result"] == {"text/plain": "'here'"}


@pytest.mark.parametrize("how", LOST)
def test_an_end_that_loses_the_variables_says_so_and_the_next_run_works(client: Client, how: str) -> None:
    code, status, exit_code, name, word = LOST[how]
    client.execute("kept = 'here'; open('file', 'w').write('stays')", "lost")
    done = client.execute(f"print('partial', flush=True)\n{code}", "lost")
    assert (done["status"], done["exit_code"], done["error"]["name"]) == (status, exit_code, name), done
    assert word in done["error"]["message"] and "variables are lost" in done["error"]["message"], done
    assert (done["variables_lost"], done["stdout"]) == (True, "partial\n"), done
    after = client.execute("('kept' in globals(), open('file').read())", "lost")
    assert after["result"] == {"text/plain": "(False, 'stays')"} and not after.get("variables_lost"), after


def test_a_command_runs_beside_the_kernel(client: Client) -> None:
    client.execute("open('from_kernel', 'w').write('hello')", "command")
    done = client.request("command", session="command", shell="cat from_kernel; echo oops >&2; exit 5")
    assert (done["exit_code"], done["stdout"], done["stderr"]) == (5, "hello", "oops\n"), done
    done = client.request("command", session="command", argv=["/bin/echo", "a b"], env={"X": "1"}, cwd="/workspace")
    assert (done["status"], done["stdout"]) == ("ok", "a b\n"), done


def test_code_may_follow_as_data_and_runs_wait_their_turn(client: Client) -> None:
    size = 3 << 20
    done = client.request("execute", f"text = {'x' * size!r}\nlen(text)".encode(), session="queue", code_follows=True)
    assert done["result"] == {"text/plain": str(size)}
    client.execute("order = []", "queue")
    numbers = [client.begin("execute", session="queue", code=f"order.append({i}); order") for i in range(5)]
    results = [client.finish(number)["result"]["text/plain"] for number in reversed(numbers)]
    assert results[0] == "[0, 1, 2, 3, 4]" and results[-1] == "[0]"


def test_a_user_without_privileges_has_the_same(start_daemon) -> None:  # noqa: ANN001
    client = start_daemon(who="user").client()
    client.execute("x = 41", "mine")
    assert client.execute("x + 1", "mine")["result"] == {"text/plain": "42"}
    assert client.execute("import os; os.getuid()")["status"] == "ok"
    done = client.execute("bytearray(1 << 30)", "mine", limits={"memory_bytes": 256 << 20})
    assert done["status"] in ("oom", "error"), done
    client.request("session.remove", session="mine")


def test_a_stream_says_how_much_of_it_was_cut(client: Client) -> None:
    """The journal keeps 16 MiB of each stream; the result, which ends the stream, counts the rest."""
    printed = (16 << 20) + 300_000
    done = client.request("execute", session="cut", code=f"import os\nprint('x' * {printed - 1})", stream=True)
    assert len(client.out) == 16 << 20 and done["stdout_cut_bytes"] == printed - (16 << 20), done["stdout_cut_bytes"]
    again = client.request("run.read", session="cut", run=done["run_id"])
    assert len(client.out) == 16 << 20 and again["stdout_cut_bytes"] == done["stdout_cut_bytes"]


def test_all_callers_of_a_run_are_answered_as_they_asked(daemon: Daemon, client: Client) -> None:
    """One has the output in its answer, bounded; the next ones read it as a stream, whose answer has none."""
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('x' * (3 << 20))\n'the result'"
    number = client.begin("execute", session="shared", code=code)
    other = daemon.client()
    runs = []

    def is_on() -> bool:
        runs[:] = [run for one in other.request("ps")["processes"] if one["name"] == "shared" for run in one["runs"]]
        return bool(runs)

    wait_for("the run", is_on)
    readers = [daemon.client() for _ in range(2)]
    for reader in readers:
        reader.begin("run.read", session="shared", run=runs[0]["run_id"])
    other.write_file("shared", "go", b"")
    done = client.finish(number)
    assert len(done["stdout"]) == 1 << 20 and done["stdout_cut_bytes"] == (2 << 20) + 1
    for reader in readers:
        answered = reader.finish()
        assert len(reader.out) == (3 << 20) + 1 and "stdout" not in answered and answered["stdout_cut_bytes"] == 0, (
            answered
        )
        assert answered["result"] == done["result"] == {"text/plain": "'the result'"}


def test_the_last_words_of_a_run_that_printed_very_often_are_shown_at_once(client: Client) -> None:
    """Its events are merged; what is left must not wait for the next output."""
    code = (
        "import os, time\n"
        "for _ in range(20_000):\n    os.write(1, b'x')\n    time.sleep(1e-5)\n"
        "os.write(1, b'last words')\ntime.sleep(50)"
    )
    number = client.begin("execute", session="often", code=code, stream=True, timeout_ms=60_000)
    seen, n_pieces = b"", 0
    for kind, payload in client.output(number):
        assert kind == OUT, "the run ended first"
        seen, n_pieces = (seen + payload[4:])[-20:], n_pieces + 1
        if seen.endswith(b"last words"):
            break
    assert n_pieces > 4096, "so few that none were merged"
    client.request("session.interrupt", session="often")
    assert client.finish(number)["status"] == "interrupted"
