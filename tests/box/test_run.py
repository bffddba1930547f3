"""What `glovebox run` does with code, arguments, standard input and exit statuses."""

from __future__ import annotations

import json
import os
import resource
import subprocess

import pytest
from support.glovebox import Glovebox

RESULT_KEYS = """run_id status exit_code timed_out oom_killed duration_ms stdout stdout_cut_bytes stderr
    stderr_cut_bytes result displays error artifacts artifacts_cut usage isolation""".split()

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS")


@pytest.mark.vm
def test_exit_status_is_the_programs(glovebox: Glovebox) -> None:
    for status in (0, 3, 255):
        assert glovebox("run", "-c", f"raise SystemExit({status})").returncode == status


@pytest.mark.vm
def test_death_by_signal_is_128_plus_its_number(glovebox: Glovebox) -> None:
    for number in (6, 9, 11, 15):
        result = glovebox.json("-c", f"import os; os.kill(os.getpid(), {number})")
        assert (result["exit_code"], result["status"]) == (128 + number, "killed"), result
        assert not result["oom_killed"] and not result["timed_out"]


def test_missing_command_is_127_and_unrunnable_126(glovebox: Glovebox) -> None:
    missing = glovebox("run", "--", "no-such-command")
    assert missing.returncode == 127 and 'cannot run "no-such-command"' in missing.stderr, missing.stderr
    for what in ("/etc/passwd", "/usr"):
        unrunnable = glovebox("run", "--", what)
        assert unrunnable.returncode == 126 and "Permission denied" in unrunnable.stderr, unrunnable.stderr


def test_file_runs_with_its_arguments(glovebox: Glovebox) -> None:
    script = glovebox.place.write("script.py", "import sys; print(sys.argv[1:], __file__)")
    done = glovebox("run", script, "one", "--two", "", "three four")
    assert done.stdout == "['one', '--two', '', 'three four'] /run/code/script.py\n", done.stderr


def test_code_comes_from_a_pipe_or_a_dash(glovebox: Glovebox) -> None:
    assert glovebox("run", input="print('piped')").stdout == "piped\n"
    assert glovebox("run", "-", "a", input="import sys; print(sys.argv[1])").stdout == "a\n"


def test_bash_by_flag_and_by_name_of_the_file(glovebox: Glovebox) -> None:
    script = glovebox.place.write("script.sh", 'echo "$BASH_VERSION" "$1" | grep -c "[0-9].* x"')
    assert glovebox("run", script, "x").stdout == "1\n"
    assert glovebox("run", "-l", "bash", "-c", 'echo "$0 $1"', "x").stdout == "bash x\n"


def test_command_of_the_image_gets_its_words_as_they_are(glovebox: Glovebox) -> None:
    done = glovebox("run", "--", "printf", "[%s]", "a b", "", "*", "$HOME", "--json")
    assert (done.returncode, done.stdout) == (0, "[a b][][*][$HOME][--json]"), done.stderr


def test_standard_input_reaches_the_program(glovebox: Glovebox) -> None:
    text = "".join(f"line {i}\n" for i in range(20000))
    done = glovebox("run", "-c", "import sys; print(len(sys.stdin.read()))", input=text)
    assert done.stdout == f"{len(text)}\n", done.stderr
    assert glovebox("run", "--", "head", "-n", "1", input=text).stdout == "line 0\n"


def test_output_arrives_while_the_program_still_runs(glovebox: Glovebox) -> None:
    code = "import sys\nprint('first')\nprint('second', file=sys.stderr)\nprint('heard', sys.stdin.readline())"
    with glovebox.popen("run", "-c", code, stdin=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        assert process.stdout.readline() == "first\n"
        assert process.stderr.readline() == "second\n"
        process.stdin.write("me\n")
        process.stdin.close()
        assert process.stdout.readline() == "heard me\n"
        assert process.wait(60) == 0


def test_json_is_one_object_with_everything(glovebox: Glovebox) -> None:
    done = glovebox("run", "--json", "-c", "import sys; print('o'); print('e', file=sys.stderr); sys.exit(4)")
    assert done.stdout.count("\n") == 1 and done.stderr == "" and done.returncode == 4
    result = json.loads(done.stdout)
    assert set(RESULT_KEYS) <= set(result), sorted(result)
    seen = {name: result[name] for name in ("status", "exit_code", "stdout", "stderr", "timed_out", "oom_killed")}
    assert seen == {
        "status": "error",
        "exit_code": 4,
        "stdout": "o\n",
        "stderr": "e\n",
        "timed_out": False,
        "oom_killed": False,
    }
    assert result["usage"]["memory_peak_bytes"] > 1 << 20 and result["usage"]["cpu_ms"] > 0
    assert 0 < result["duration_ms"] < 60_000 and result["artifacts"] == []


@pytest.mark.vm
def test_defaults_are_the_promised_ones(glovebox: Glovebox) -> None:
    code = """if True:
        import json, os
        size = {path: os.statvfs(path) for path in ("/workspace", "/tmp")}
        print(json.dumps({path: [s.f_blocks * s.f_frsize, s.f_files] for path, s in size.items()}))
    """
    result = glovebox.json("-c", code)
    limits = result["isolation"]["cgroup"]
    assert (limits["memory_bytes"], limits["cpus"], limits["pids"]) == (512 << 20, 1.0, 50)
    sizes = json.loads(result["stdout"])
    assert sizes["/workspace"] == [1 << 30, 100_000] and sizes["/tmp"][0] == 100 << 20
    assert "(default 60s" in glovebox("run", "--help").stdout


@pytest.mark.vm
def test_limits_come_from_flags_before_variables(glovebox: Glovebox) -> None:
    variables = {"GLOVEBOX_MEMORY": "100m", "GLOVEBOX_PIDS": "20", "GLOVEBOX_CPUS": "2", "GLOVEBOX_TIMEOUT": "300ms"}
    result = glovebox.json("--pids", "30", "-c", "while True: pass", env=variables)
    limits = result["isolation"]["cgroup"]
    assert (limits["memory_bytes"], limits["cpus"], limits["pids"]) == (100 << 20, 2.0, 30)
    assert result["timed_out"]


def test_thread_pools_follow_the_cpu_limit(glovebox: Glovebox) -> None:
    code = f"""if True:
        import os
        online = open("/sys/devices/system/cpu/online").read().strip()
        print({{os.environ[name] for name in {THREAD_VARIABLES}}}, online)
    """
    host = len(os.sched_getaffinity(0))
    both = {1: "{'1'} 0\n", 2: "{'2'} 0-1\n", 3: "{'3'} 0-2\n"}
    assert glovebox("run", "--cpus", "3", "-c", code).stdout == both[min(3, host)]
    assert glovebox("run", "--cpus", "0.5", "-c", code).stdout == both[1]
    for words in (["--cpus", "1000"], ["--cpus", "1000", "--pids", "5"]):
        seen = glovebox("run", *words, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])").stdout
        assert int(seen) == min(host, 2 if "--pids" in words else 25)


def test_only_the_named_variables_reach_the_program(glovebox: Glovebox) -> None:
    code = "import os; print(os.environ.get('GIVEN'), os.environ.get('PASSED'), os.environ.get('SECRET'))"
    words = ["run", "-e", "GIVEN=a b", "-e", "PASSED", "-c", code]
    done = glovebox(*words, env={"PASSED": "on", "SECRET": "s3cr3t"})
    assert done.stdout == "a b on None\n", done.stderr


def test_a_caller_with_many_open_files_gets_its_box(glovebox: Glovebox) -> None:
    """A box may have 1,024 descriptors; the process that makes it may have more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("optional: the host allows too few descriptors to have many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    many = [os.open("/dev/null", os.O_RDONLY) for _ in range(1200)]
    try:
        with glovebox.popen("run", "-c", "print(42)", pass_fds=many) as process:
            stdout, stderr = process.communicate(timeout=60)
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (process.returncode, stdout) == (0, "42\n"), stderr


def test_all_names_of_the_workspace_are_one_place(glovebox: Glovebox) -> None:
    code = "echo x >f; cat /session/f /sandbox/f /work/f; pwd; touch ~/g && ls -d artifacts"
    assert glovebox("run", "-l", "bash", "-c", code).stdout == "x\nx\nx\n/workspace\nartifacts\n"


def test_python_without_a_number_is_there_too(glovebox: Glovebox) -> None:
    done = glovebox("run", "-l", "bash", "-c", "python -c 'import sys; print(sys.executable)' && python --version")
    assert done.returncode == 0, done.stderr
    assert "Python 3." in done.stdout


def test_a_program_of_this_directory_that_the_box_does_not_show_is_explained(glovebox: Glovebox) -> None:
    here = glovebox.place.make("here")
    (here / "hello.sh").write_text("#!/bin/sh\necho hello\n")
    (here / "hello.sh").chmod(0o755)
    hidden = glovebox("run", "--", "./hello.sh", cwd=here)
    assert hidden.returncode == 127 and "glovebox run hello.sh, or add --workspace ." in hidden.stderr, hidden.stderr
    assert glovebox("run", "hello.sh", cwd=here).stdout == "hello\n"
    assert glovebox("run", "--workspace", ".", "--", "./hello.sh", cwd=here).stdout == "hello\n"
    absent = glovebox("run", "--", "./nothing.sh", cwd=here)
    assert absent.returncode == 127 and "there is no such command in image host" in absent.stderr
