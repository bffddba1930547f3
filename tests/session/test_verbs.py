"""The verbs that use the daemon, against a real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.glovebox import Completed, Glovebox, slowness

USAGE, NOT_STARTED, TIMEOUT, MEMORY, INTERRUPTED = 2, 125, 124, 137, 130

# True inside a kernel of the daemon, False in a box that was made for one script.
IN_KERNEL = "import sys; print('glovebox_kernel' in sys.modules)"


def good(done: Completed) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_json(done: Completed) -> dict[str, Any]:
    value = json.loads(good(done))
    assert isinstance(value, dict)
    return value


def wait_for(what: str, happened: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds * slowness()
    while not happened():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.05)


# ---- exec ----


def test_exec_keeps_variables_and_shows_the_last_value(served_glovebox: Glovebox) -> None:
    assert good(served_glovebox("exec", "demo", "-c", "print('first'); x = 41; x + 1")) == "first\n42\n"
    assert good(served_glovebox("exec", "demo", "-c", "x")) == "41\n"
    assert good(served_glovebox("exec", "demo", "-c", "x = 2")) == ""
    assert good(served_glovebox("exec", "demo", "-c", "None")) == ""
    assert good(served_glovebox("exec", "other", "-c", "'x' in globals()")) == "False\n"


def test_exec_takes_code_from_a_file_and_from_standard_input(served_glovebox: Glovebox) -> None:
    script = served_glovebox.place.write("script.py", "x = 6\nx * 7\n")
    assert good(served_glovebox("exec", "demo", script)) == "42\n"
    assert good(served_glovebox("exec", "demo", input="x + 1")) == "7\n"
    assert good(served_glovebox("exec", "--quiet", "demo", "-", input="x + 2")) == "8\n"
    large = f"y = {'1' * 200_000!r}\nlen(y)"  # more than travels in the request itself
    assert good(served_glovebox("exec", "demo", "-", input=large)) == "200000\n"


def test_exec_shows_the_traceback_and_keeps_variables(served_glovebox: Glovebox) -> None:
    failed = served_glovebox("exec", "demo", "-c", "x = 1\nprint('before')\n1 / 0")
    assert failed.returncode == 1 and failed.stdout == "before\n"
    assert failed.stderr.startswith("Traceback") and "ZeroDivisionError" in failed.stderr and "1 / 0" in failed.stderr
    assert good(served_glovebox("exec", "demo", "-c", "x")) == "1\n"
    assert served_glovebox("exec", "demo", "-c", "import sys; sys.exit(3)").returncode == 3


def test_exec_stops_at_the_time_limit_and_keeps_variables(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "-c", "x = 1"))
    late = served_glovebox("exec", "demo", "--timeout", "300ms", "-c", "import time; time.sleep(600)")
    assert late.returncode == TIMEOUT and "time limit 0.3 s" in late.stderr
    assert good(served_glovebox("exec", "demo", "-c", "x")) == "1\n"


def test_exec_stops_at_the_memory_limit_and_the_session_stays_usable(served_glovebox: Glovebox) -> None:
    code = "b = bytearray(400 << 20)"
    greedy = served_glovebox("exec", "small", "--memory", "96m", "-c", code)
    assert greedy.returncode == MEMORY and "memory limit 96 MiB" in greedy.stderr
    assert greedy.stderr.count("variables are lost") == 1
    assert good(served_glovebox("exec", "small", "-c", "1 + 1")) == "2\n"


def test_ctrl_c_interrupts_the_code_and_keeps_variables(served_glovebox: Glovebox) -> None:
    code = "import time\nx = 5\nprint('ready', flush=True)\ntime.sleep(600)"
    with served_glovebox.popen("exec", "demo", "-c", code) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == "ready\n"  # shown while the code runs
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60 * slowness()) == INTERRUPTED
        assert "KeyboardInterrupt" in process.stderr.read()
    assert good(served_glovebox("exec", "demo", "-c", "x")) == "5\n"


def test_ctrl_c_cancels_a_run_that_waits_and_no_other(served_glovebox: Glovebox) -> None:
    for words in (["-c", "print('never')"], ["--", "echo", "never"]):
        code = "import time; print('ready', flush=True); time.sleep(2); print('whole')"
        with served_glovebox.popen("exec", "demo", "-c", code) as running:
            assert running.stdout and running.stdout.readline() == "ready\n"
            with served_glovebox.popen("exec", "demo", *words) as waiting:
                time.sleep(0.5)
                waiting.send_signal(signal.SIGINT)
                out, told = waiting.communicate(timeout=60 * slowness())
                assert (waiting.returncode, out) == (INTERRUPTED, "") and "cancelled before it began" in told
            assert running.communicate(timeout=60 * slowness())[0] == "whole\n" and running.returncode == 0


def test_run_alone_refuses_other_engines(served_glovebox: Glovebox) -> None:
    """Sessions have them; whether the engine is there is the daemon's to say."""
    for words in (["run"], ["exec", "demo"], ["session", "new", "demo"]):
        refused = served_glovebox(*words, "--engine", "dokcer", *([] if "new" in words else ["-c", "1"]))
        assert 'there is no engine "dokcer"; there are auto' in refused.stderr, refused.stderr
        levels = served_glovebox(*words, "--isolation", "high", *([] if "new" in words else ["-c", "1"]))
        assert 'isolation is "container"' in levels.stderr, levels.stderr
    assert (
        "use a session: glovebox exec NAME --engine podman"
        in served_glovebox("run", "--engine", "podman", "-c", "1").stderr
    )
    there = served_glovebox("exec", "demo", "--engine", "podman", "--image", "x", "-c", "1").stderr
    assert there and "glovebox run" not in there


def test_exec_as_json_is_the_whole_result(served_glovebox: Glovebox) -> None:
    done = served_glovebox("exec", "demo", "--json", "-c", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n7")
    result = read_json(done)
    assert done.stderr == "" and "ok" not in result
    assert (result["status"], result["stdout"], result["stderr"]) == ("ok", "out\n", "err\n")
    assert result["result"]["text/plain"] == "7"
    failed = served_glovebox("exec", "demo", "--json", "-c", "int('x')")
    assert failed.returncode == 1 and json.loads(failed.stdout)["error"]["name"] == "ValueError"


def test_exec_says_where_the_artifacts_are(served_glovebox: Glovebox) -> None:
    code = "import os; os.makedirs('/workspace/artifacts', exist_ok=True); f = open('/workspace/artifacts/a.txt', 'w')"
    done = served_glovebox("exec", "demo", "-c", code + "; f.write('hello'); f.close()")
    assert done.returncode == 0 and done.stderr.startswith("glovebox: artifact "), done.stderr
    path = Path(done.stderr.removeprefix("glovebox: artifact ").rstrip("\n"))
    assert path.read_text() == "hello"
    assert served_glovebox("exec", "-q", "demo", "-c", "open('/workspace/artifacts/b', 'w').close()").stderr == ""


def test_exec_refuses_invalid_calls(served_glovebox: Glovebox) -> None:
    for words, status, said in (
        (["exec"], USAGE, "needs a session"),
        (["exec", "demo", "-l", "sh", "-c", "1", "argument"], USAGE, "takes no arguments"),
        (["exec", "demo", "--memory", "12x", "-c", "1"], USAGE, "is not a size"),
        (["exec", "demo", "no-such-file.py"], USAGE, "there is no file"),
        (["exec", "../demo", "-c", "1"], USAGE, "name"),
        (["exec", "new", "--workspace", "/nowhere", "-c", "1"], NOT_STARTED, "/nowhere"),
    ):
        done = served_glovebox(*words)
        assert done.returncode == status and said in done.stderr and done.stdout == "", (words, done)
    assert read_json(served_glovebox("session", "ls", "--json")) == {"sessions": []}


def test_exec_says_which_settings_a_session_keeps(served_glovebox: Glovebox) -> None:
    settings = ["--memory", "256m", "--env", "A=1"]
    made = served_glovebox("exec", "demo", *settings, "-c", "import os; os.environ['A']")
    assert good(made) == "'1'\n" and made.stderr == ""
    same = served_glovebox("exec", "demo", *settings, "--network", "none", "--timeout", "50", "-c", "2")
    assert good(same) == "2\n" and same.stderr == ""
    other = ["--memory", "300m", "--env", "A=2", "--allow-host", "example.org", "--mode", "fresh"]
    kept = served_glovebox("exec", "demo", *other, "-c", "os.environ['A']")
    assert good(kept) == "'1'\n" and "not changed: mode, memory, env, network; use another name" in kept.stderr
    assert "to change limits and keep its variables: glovebox session set demo --memory 300m\n" in kept.stderr
    assert served_glovebox("exec", "demo", "--quiet", *other, "-c", "3").stderr == ""


def test_a_limit_that_can_change_is_not_a_reason_to_remove_a_session(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "--engine", "native", "-c", "kept = 41"))
    options = ["--engine", "native", "--memory", "1536m", "--cpus", "0.5", "--pids", "99", "--disk", "2g"]
    done = served_glovebox("exec", "demo", *options, "-c", "kept")
    assert good(done) == "41\n" and "session rm" not in done.stderr and "engine" not in done.stderr, done.stderr
    command = done.stderr.rsplit(": glovebox ", 1)[1].split()
    assert sorted(command) == sorted("session set demo --memory 1536m --cpus 0.5 --pids 99 --disk 2g".split())
    good(served_glovebox(*command))
    again = served_glovebox("exec", "demo", *options, "-c", "kept")
    assert good(again) == "41\n" and again.stderr == ""


def test_a_port_is_not_taken_for_served_when_a_daemon_runs_without_it(served_glovebox: Glovebox) -> None:
    def serve(*options: str) -> Completed:
        return served_glovebox("serve", "--background", "--pool", "0", "--preload", "", *options)

    assert good(served_glovebox("serve", "--new-key", "build")).startswith("gb_")
    twice = served_glovebox("serve", "--new-key", "build")
    assert twice.returncode == NOT_STARTED and "there is a key named build already" in twice.stderr
    assert twice.stdout == "" and "glovebox key rm build\n" in twice.stderr
    good(served_glovebox("key", "rm", "build"))
    assert good(served_glovebox("serve", "--new-key", "build")).startswith("gb_")
    assert good(serve()) == "" and read_json(served_glovebox("status", "--json"))["daemon"]["api"] is None
    refused = serve("--port", "0")
    assert refused.returncode == NOT_STARTED and "UNIX socket alone" in refused.stderr, refused
    assert "glovebox stop" in refused.stderr
    good(served_glovebox("stop"))
    started = serve("--port", "0")
    address = read_json(served_glovebox("status", "--json"))["daemon"]["api"]
    assert address.startswith("http://127.0.0.1:") and f"the API is at {address}," in started.stderr
    assert serve("--port", "0").returncode == 0
    assert serve("--port", "1").returncode == NOT_STARTED


# ---- sessions ----


def test_sessions_are_made_listed_shown_and_removed(served_glovebox: Glovebox) -> None:
    assert good(served_glovebox("session", "new", "demo", "--memory", "256m")) == "session demo is made\n"
    assert good(served_glovebox("session", "new", "demo")) == "session demo is there already\n"
    again = served_glovebox("session", "new", "demo", "--memory", "1g")
    assert again.returncode == 0 and "not changed: memory;" in again.stderr, again
    assert read_json(served_glovebox("session", "new", "two", "--json"))["name"] == "two"
    assert sorted(good(served_glovebox("session", "ls", "--names")).split()) == ["demo", "two"]
    table = [line.split() for line in good(served_glovebox("session", "ls")).splitlines()]
    assert table[0][:3] == ["NAME", "STATE", "IMAGE"] and sorted(row[0] for row in table[1:]) == ["demo", "two"]
    shown = read_json(served_glovebox("session", "show", "demo", "--json"))
    assert shown["name"] == "demo" and shown["limits"]["memory_bytes"] == 256 << 20
    table = good(served_glovebox("session", "show", "demo"))
    by = {"watched": "measured by the daemon while code runs", "quota": "enforced by the kernel (project quota)"}
    assert "256 MiB" in table and by[shown["isolation"]["disk"]["by"]] in table, table
    own = served_glovebox.place.make("own")
    good(served_glovebox("session", "new", "mine", "--workspace", own))
    assert "no limit (a directory of your own)" in good(served_glovebox("session", "show", "mine"))
    good(served_glovebox("session", "rm", "mine"))
    removed = served_glovebox("session", "rm", "nobody", "demo", "none")
    assert removed.returncode == NOT_STARTED
    assert [line.split('"')[1] for line in removed.stderr.splitlines()] == ["nobody", "none"]
    wait_for("demo is gone", lambda: good(served_glovebox("session", "ls", "--names")).split() == ["two"])


def test_session_words_that_are_wrong_are_explained(served_glovebox: Glovebox) -> None:
    for words, status, said in (
        (["session"], USAGE, "say what to do"),
        (["session", "lst"], USAGE, 'did you mean "ls"?'),
        (["session", "wake", "demo"], USAGE, "glovebox exec demo -c pass"),
        (["session", "show"], USAGE, "needs a session's name"),
        (["session", "ls", "demo"], USAGE, "takes no name"),
        (["session", "restart", "a", "b"], USAGE, "takes one name"),
        (["session", "show", "nobody"], NOT_STARTED, "nobody"),
        (["status", "now"], USAGE, "takes no operand"),
        (["stop", "demo"], USAGE, "to end the run of a session: glovebox kill demo"),
    ):
        done = served_glovebox(*words)
        assert done.returncode == status and said in done.stderr and done.stdout == "", (words, done)


def test_restart_forgets_variables_and_interrupt_says_whether_something_ran(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "-c", "x = 1"))
    assert good(served_glovebox("session", "interrupt", "demo")) == "nothing was running\n"
    good(served_glovebox("session", "restart", "demo"))
    assert "NameError" in served_glovebox("exec", "demo", "-c", "x").stderr


def test_log_lists_runs_and_prints_one_again(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "-c", "print('the first'); 5"))
    assert served_glovebox("exec", "demo", "-c", "import sys; print('no', file=sys.stderr); 1/0").returncode == 1
    runs = read_json(served_glovebox("session", "log", "demo", "--json"))["runs"]
    assert [run["status"] for run in runs] == ["error", "ok"]
    table = good(served_glovebox("session", "log", "demo")).splitlines()
    assert table[0].split()[:2] == ["RUN", "STATUS"] and table[1].split()[0] == runs[0]["run_id"]
    assert good(served_glovebox("session", "log", "demo", "--run", runs[1]["run_id"])) == "the first\n5\n"
    again = served_glovebox("session", "log", "demo", "--run", runs[0]["run_id"])
    assert again.returncode == 1 and again.stderr.startswith("no\n") and "ZeroDivisionError" in again.stderr
    assert len(good(served_glovebox("session", "log", "demo", "--limit", "1")).splitlines()) == 2


def test_hibernated_session_wakes_with_its_variables(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "-c", "x = list(range(3))"))
    assert read_json(served_glovebox("session", "hibernate", "demo", "--json"))["state"] == "asleep"
    assert good(served_glovebox("exec", "demo", "-c", "x")) == "[0, 1, 2]\n"


# ---- the daemon ----


def test_a_pip_that_refuses_inside_a_script_says_what_to_do(served_glovebox: Glovebox) -> None:
    script = "echo 'error: externally-managed-environment' >&2; exit 1"
    for words in (("-l", "sh", "-c", script), ("-c", f'import os; os.system("{script}")')):
        done = served_glovebox("exec", "demo", *words)
        assert "glovebox session install demo PACKAGE" in done.stderr.splitlines()[-1], done.stderr


def test_files_beside_the_code_of_a_session_are_copied_by_another_verb(served_glovebox: Glovebox) -> None:
    place = served_glovebox.place
    project = place.make("project")
    place.make("project/data")
    for name, text in (("helper.py", ""), ("data/sales.csv", ""), ("main.py", "open('data/sales.csv')")):
        place.write(f"project/{name}", text)
    done = served_glovebox("exec", "demo", project / "main.py")
    assert done.stderr.splitlines()[-1].endswith(f"to copy them: glovebox cp {project}/data demo:"), done.stderr
    done = served_glovebox("exec", "demo", "-c", "import helper", cwd=project)
    assert done.stderr.splitlines()[-1].endswith("to copy them: glovebox cp helper.py demo:"), done.stderr
    good(served_glovebox("cp", project / "data", "demo:"))
    good(served_glovebox("exec", "demo", project / "main.py"))
    assert "to copy them" not in served_glovebox("exec", "demo", "-c", "open('no-such-file')", cwd=project).stderr


def test_a_command_that_needs_the_network_gets_a_hint(served_glovebox: Glovebox) -> None:
    script = "echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6"
    done = served_glovebox("exec", "demo", "--", "sh", "-c", script)
    assert done.returncode == 6 and "session new NAME --allow-host HOST" in done.stderr, done.stderr


def test_hibernate_prints_what_holds_a_session_awake(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "before", "-c", "1"))
    good(served_glovebox("exec", "demo", "-c", "kept = 41; stream = (i for i in range(3)); next(stream)"))
    good(served_glovebox("exec", "behind", "-c", "1"))
    held = served_glovebox("session", "hibernate", "demo")
    lines = held.stdout.splitlines()
    assert held.returncode == NOT_STARTED and "demo is not hibernated: it stays in memory" in held.stderr, held
    assert "glovebox exec demo -c 'del stream'" in held.stderr
    assert lines[0].startswith("trimmed, ") and lines[1].startswith("held awake by stream: "), lines
    everyone = served_glovebox("session", "hibernate", "--all")
    assert everyone.returncode == NOT_STARTED, everyone
    for other in ("before", "behind"):  # the one that is held keeps none of the others awake
        assert f"{other}: asleep, " in everyone.stdout, everyone.stdout
        good(served_glovebox("session", "rm", other))
    assert served_glovebox("session", "hibernate", "demo", "--json").returncode == NOT_STARTED
    assert good(served_glovebox("session", "hibernate", "demo", "--trim")).startswith("trimmed, ")
    assert "generator" in lines[1] and len(lines) == 2, lines
    assert good(served_glovebox("exec", "demo", "-c", "kept + next(stream)")) == "42\n"
    good(served_glovebox("exec", "demo", "-c", "del stream"))
    assert good(served_glovebox("session", "hibernate", "--all")).startswith("demo: asleep, ")


def test_hibernate_names_no_variable_where_none_holds_a_session_awake(served_glovebox: Glovebox) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    good(served_glovebox("exec", "demo", "-c", code))
    held = served_glovebox("session", "hibernate", "demo")
    lines = held.stdout.splitlines()
    assert held.returncode == NOT_STARTED and "glovebox session restart demo" in held.stderr, held
    assert lines[1].startswith("held awake: threads are running") and len(lines) == 2, lines
    good(served_glovebox("session", "restart", "demo"))


def test_a_function_with_a_magic_works_after_a_sleep(served_glovebox: Glovebox) -> None:
    code = "def f():\n    !echo from f\n    place = %pwd\n    return place\nf()"
    before = good(served_glovebox("exec", "demo", "-c", code))
    assert before.startswith("from f\n")
    lines = good(served_glovebox("session", "hibernate", "demo")).splitlines()
    assert lines[0].startswith("asleep, ") and len(lines) == 1, lines
    assert good(served_glovebox("exec", "demo", "-c", "f()")) == before
    error = served_glovebox("exec", "demo", "-c", "%nosuch").stderr
    assert "\nMagicError: there is no %nosuch here" in error, error


def test_status_and_stop_without_a_daemon(idle_glovebox: Glovebox) -> None:
    absent = idle_glovebox("status")
    assert absent.returncode == 1 and "no daemon is running" in absent.stdout
    as_json = idle_glovebox("status", "--json")
    socket = str(idle_glovebox.place.data / "glovebox.sock")
    assert as_json.returncode == 1 and json.loads(as_json.stdout) == {"running": False, "socket": socket}
    assert "no daemon is running" in good(idle_glovebox("stop"))
    for words in (["session", "ls"], ["session", "show", "demo"]):
        done = idle_glovebox(*words)
        assert done.returncode == NOT_STARTED
        assert "glovebox serve --background (sessions come back with it)" in done.stderr
    assert good(idle_glovebox("run", "-c", IN_KERNEL)) == "False\n"
    assert idle_glovebox("status").returncode == 1, "run starts no daemon"


@pytest.mark.parametrize(
    "words",
    [
        ["cp", "FILE", "demo:again.txt"],
        ["cp", "demo:note.txt", "-"],
        ["session", "set", "demo", "--memory", "256m"],
        ["session", "rm", "demo"],
    ],
)
def test_verbs_that_work_on_a_session_that_stays_start_a_daemon(idle_glovebox: Glovebox, words: list[str]) -> None:
    note = idle_glovebox.place.make("files") / "note.txt"
    note.write_text("hello")
    options = {"env": {"GLOVEBOX_POOL": "0", "GLOVEBOX_PRELOAD": ""}}
    good(idle_glovebox("session", "new", "demo", **options))
    good(idle_glovebox("cp", note, "demo:note.txt"))
    good(idle_glovebox("stop", "--end-sessions", timeout=90))
    good(idle_glovebox(*(str(note) if word == "FILE" else word for word in words), **options))
    assert idle_glovebox("status").returncode == 0


def test_status_shows_the_daemon_and_stop_returns_when_it_has_ended(served_glovebox: Glovebox) -> None:
    status = read_json(served_glovebox("status", "--json"))
    pid = status["daemon"]["pid"]
    assert status["running"] is True and status["daemon"]["data_dir"] == str(served_glovebox.place.data)
    assert f"running, pid {pid}" in good(served_glovebox("status"))
    again = served_glovebox("serve", "--background")
    assert again.returncode == 0 and "already" in again.stderr
    good(served_glovebox("stop", "--end-sessions", timeout=90))
    assert served_glovebox("status").returncode == 1
    # the next one finds no lock of the last
    good(served_glovebox("serve", "--background", "--pool", "0", "--preload", ""))
    assert read_json(served_glovebox("status", "--json"))["daemon"]["pid"] != pid


def vaults(glovebox: Glovebox) -> list[str]:
    title = f"glovebox: vault {glovebox.place.data}"
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True, timeout=60)
    return [line for line in done.stdout.splitlines() if line.startswith(title)]


def test_stop_tells_what_stays_in_memory_and_ends_it_without_a_daemon(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "-c", "x = 1"))
    stopped = served_glovebox("stop")
    note = "glovebox: 1 session stays in memory for the next daemon; to end it: glovebox stop --end-sessions\n"
    assert stopped.returncode == 0 and stopped.stdout == "" and stopped.stderr == note
    assert len(vaults(served_glovebox)) == 1
    ended = good(served_glovebox("stop", "--end-sessions", timeout=90))
    assert "no daemon is running" in ended and "ending the sessions" in ended
    assert vaults(served_glovebox) == [] and served_glovebox("status").returncode == 1
    assert "ending" not in good(served_glovebox("stop", "--end-sessions"))
    assert "NameError" in served_glovebox("exec", "demo", "-c", "x", timeout=90).stderr


def test_stop_ends_a_vault_that_holds_nothing(served_glovebox: Glovebox) -> None:
    assert len(vaults(served_glovebox)) == 1
    stopped = served_glovebox("stop")
    assert stopped.returncode == 0 and stopped.stderr == ""
    assert vaults(served_glovebox) == []


def test_two_that_start_a_daemon_at_once_both_work(idle_glovebox: Glovebox) -> None:
    options = {"env": {"GLOVEBOX_POOL": "0", "GLOVEBOX_PRELOAD": "math"}}
    both = [idle_glovebox.popen("exec", name, "-c", f"print({name!r})", **options) for name in ("a", "b")]
    for process, name in zip(both, ("a", "b")):
        with process:
            stdout, stderr = process.communicate(timeout=90 * slowness())
        assert (process.returncode, stdout) == (0, f"{name}\n"), stderr
    assert sorted(good(idle_glovebox("session", "ls", "--names")).split()) == ["a", "b"]


def test_socket_that_is_left_over_is_replaced(served_glovebox: Glovebox) -> None:
    os.kill(read_json(served_glovebox("status", "--json"))["daemon"]["pid"], signal.SIGKILL)
    wait_for("nothing listens", lambda: "left over" in served_glovebox("status").stdout)
    options = {"GLOVEBOX_POOL": "0", "GLOVEBOX_PRELOAD": "math"}
    assert good(served_glovebox("exec", "demo", "-c", "1 + 1", env=options)) == "2\n"


def test_project_has_a_daemon_of_its_own(idle_glovebox: Glovebox) -> None:
    project = idle_glovebox.place.make("project")
    inner = project / "inner"
    inner.mkdir()
    idle_glovebox.place.give(inner)
    good(idle_glovebox("serve", "--background", "--pool", "0", "--preload", "", "--project", project))
    try:
        assert (project / ".sandbox/kernel.sock").is_socket()
        status = read_json(idle_glovebox("status", "--json", cwd=inner))
        assert status["daemon"]["socket"] == str(project / ".sandbox/kernel.sock")
        assert idle_glovebox("status").returncode == 1, "elsewhere it is not found"
    finally:
        good(idle_glovebox("stop", "--end-sessions", cwd=inner, timeout=90))


# ---- run, through the warm pool ----


@pytest.mark.parametrize(
    "code",
    [
        "print('out'); 5",
        "import sys; print('err', file=sys.stderr); sys.exit(3)",
        "import sys; sys.exit('bye')",
        "def f():\n    return 1 / 0\nf()\n",
        "import os; os._exit(4)",
        "import os; os.kill(os.getpid(), 11)",
        "print('no end",
        "print('x' * 100000)",
    ],
)
def test_warm_run_is_like_a_cold_one(served_glovebox: Glovebox, code: str) -> None:
    warm = served_glovebox("run", "-c", code)
    cold = served_glovebox("run", "--no-daemon", "-c", code)
    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout)
    # Python versions mark the failing part of a line with different signs
    unmarked = [[x for x in done.stderr.splitlines() if x.strip(" ~^")] for done in (warm, cold)]
    assert unmarked[0] == unmarked[1]


def test_warm_run_stops_at_its_limits_and_says_so_as_a_cold_one(served_glovebox: Glovebox) -> None:
    for words, code in (
        (["--timeout", "400ms"], "import time; time.sleep(600)"),
        (["--memory", "96m"], "b = bytearray(400 << 20)"),
    ):
        warm = served_glovebox("run", *words, "-c", code)
        cold = served_glovebox("run", *words, "--no-daemon", "-c", code)
        assert warm.returncode == cold.returncode and warm.stdout == cold.stdout == ""
        assert warm.stderr.split("(peak")[0] == cold.stderr.split("(peak")[0]


def test_interrupted_warm_run_ends(served_glovebox: Glovebox) -> None:
    code = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
    with served_glovebox.popen("run", "-c", code) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60 * slowness()) == INTERRUPTED


def test_output_without_a_reader_ends_the_client(served_glovebox: Glovebox) -> None:
    code = "for i in range(100000): print('x' * 1000)"
    with served_glovebox.popen("exec", "demo", "-c", code, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(timeout=60 * slowness()) == 128 + signal.SIGPIPE


def test_another_socket_for_a_data_directory_in_use_is_an_error_at_once(served_glovebox: Glovebox) -> None:
    began = time.monotonic()
    elsewhere = {"GLOVEBOX_SOCKET": str(served_glovebox.place.path / "nowhere/y")}
    refused = served_glovebox("exec", "demo", "-c", "1", env=elsewhere)
    assert refused.returncode == NOT_STARTED and time.monotonic() - began < 5 * slowness(), refused
    socket = served_glovebox.place.data / "glovebox.sock"
    assert f"and serves at {socket}: stop it first (glovebox stop --socket {socket})" in refused.stderr
    assert not (served_glovebox.place.path / "nowhere").exists()


def test_a_directory_that_was_made_for_a_socket_goes_with_its_daemon(idle_glovebox: Glovebox) -> None:
    directory = idle_glovebox.place.path / "mistyped"
    elsewhere = {"GLOVEBOX_SOCKET": str(directory / "y")}
    good(idle_glovebox("serve", "--background", "--pool", "0", "--preload", "", env=elsewhere))
    assert directory.is_dir()
    good(idle_glovebox("stop", env=elsewhere))
    assert not directory.exists()


@pytest.mark.parametrize("variable", ["/nonexistent/run", "/run/glovebox"])
def test_a_runtime_directory_of_another_user_is_named(user_glovebox: Glovebox, variable: str) -> None:
    """`su` without a dash keeps the variable of the caller."""
    env = {"GLOVEBOX_DATA_DIR": "", "XDG_RUNTIME_DIR": variable}
    done = user_glovebox("exec", "demo", "-c", "1", env=env)
    assert done.returncode == NOT_STARTED and "XDG_RUNTIME_DIR" in done.stderr and "unset" in done.stderr, done.stderr
