"""The shortest proof that a box works: also run with the sanitized program and on a pure cgroup v2 kernel."""

from __future__ import annotations

import pytest
from support.glovebox import Glovebox
from support.host_count import count_host, left_behind

pytestmark = [pytest.mark.smoke, pytest.mark.vm]


def test_python_code_prints(glovebox: Glovebox) -> None:
    done = glovebox("run", "-c", "print(6 * 7)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


def test_exit_status_and_both_streams_pass_through(glovebox: Glovebox) -> None:
    done = glovebox("run", "-l", "bash", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_code_from_standard_input_with_no_arguments(glovebox: Glovebox) -> None:
    done = glovebox("run", "-", input="import os\nprint(os.getcwd())\n")
    assert (done.returncode, done.stdout) == (0, "/workspace\n"), done.stderr


def test_timeout_ends_a_run_with_124(glovebox: Glovebox) -> None:
    done = glovebox("run", "--timeout", "500ms", "-c", "while True: pass")
    assert done.returncode == 124, done.stderr


def test_memory_limit_ends_a_run_with_137_and_a_message(glovebox: Glovebox) -> None:
    result = glovebox.json("--memory", "64m", "-c", "x = bytearray(1 << 28)\nprint(len(x))")
    assert (result["status"], result["exit_code"], result["oom_killed"]) == ("oom", 137, True), result


def test_artifact_is_listed_and_belongs_to_the_caller(glovebox: Glovebox) -> None:
    workspace = glovebox.place.make("workspace")
    code = "import os; os.makedirs('artifacts', exist_ok=True); open('artifacts/a', 'w').write('hi')"
    result = glovebox.json("--workspace", workspace, "-c", code)
    assert [item["path"] for item in result["artifacts"]] == ["/workspace/artifacts/a"], result
    made = workspace / "artifacts/a"
    assert (made.read_text(), made.stat().st_uid) == ("hi", glovebox.place.uid)


def test_nothing_is_left_after_a_few_runs(glovebox: Glovebox) -> None:
    assert glovebox("run", "-c", "pass").returncode == 0
    before = count_host(glovebox)
    for code in ("pass", "import os; os.kill(os.getpid(), 9)", "import os; os.fork(); os.fork()"):
        glovebox("run", "-c", code)
    assert left_behind(glovebox, before) == {}
