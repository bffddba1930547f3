"""Which way a run takes, and what only one way could do: a daemon that dies, a caller that leaves, an upgrade."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon, make_daemons
from support.glovebox import Completed, Glovebox

WAYS = {"pool": "from the daemon's pool", "fork": "forked from its nursery", "here": "made here"}


@pytest.fixture(params=["root", "user"], scope="module")
def daemon(binary: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    for make in make_daemons(binary):
        yield make("--pool", "2", "--preload", "json", who=request.param)


@pytest.fixture
def start_daemon(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


def wait_for_pool(daemon: Daemon) -> None:
    client = daemon.client()

    def is_full() -> bool:
        pool = client.request("status")["pool"]
        return pool["ready"] == pool["wanted"] and pool["light_ready"] == pool["light_wanted"]

    wait_for("the pool", is_full)


def way_of(done: Completed) -> str:
    assert done.returncode == 0, done.stderr
    return next(name for name, words in WAYS.items() if words in done.stderr)


def test_every_option_has_a_warm_box(daemon: Daemon) -> None:
    directory = daemon.glovebox.place.path / "beside"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    script = directory / "script.py"
    script.write_text("print(1)")
    daemon.glovebox.place.give(directory)
    daemon.glovebox.place.give(script)
    code = ["-c", "print(1)"]
    expected: list[tuple[list[str], str]] = [
        (code, "pool"),
        (["--json", *code], "pool"),
        (["-e", "A=1", *code], "pool"),
        ([*code, "argument"], "pool"),
        (["-c", "import atexit, signal, sys, threading; sys.stdin.read() # input"], "pool"),
        (["-l", "bash", "-c", "echo 1"], "pool"),
        (["--", "echo", "1"], "pool"),
        (["-m", "platform"], "pool"),
        (["--workspace", str(directory), *code], "pool"),
        (["--data", str(directory), *code], "pool"),
        (["--mount", f"{directory}:/mnt/x", *code], "fork"),
        (["--memory", "300m", "--pids", "20", "--cpus", "0.5", *code], "pool"),
        (["--cpus", "2", *code], "fork"),
        (["--tmp-size", "20m", *code], "fork"),
        (["--timeout", "9s", *code], "pool"),
        ([str(script)], "pool"),
        (["--workspace", str(directory), "--data", str(directory), str(script)], "pool"),
        (["--alone", str(script)], "pool"),
        (["--no-daemon", *code], "here"),
    ]
    for words, way in expected:
        wait_for_pool(daemon)
        done = daemon.cli("run", "--verbose", *words)
        assert way_of(done) == way, words
        assert re.search(r"\d ms  run", done.stderr) and re.search(r"\d ms  in all", done.stderr)


LIMITED = """
import subprocess, time
children = []
try:
    while len(children) < 40:
        children.append(subprocess.Popen(["sleep", "60"]))
except BlockingIOError:
    pass
print(len(children) <= 20)
for child in children:
    child.kill()
begun = time.perf_counter()
while time.process_time() < 0.3:
    pass
print(time.perf_counter() - begun > 0.45)
try:
    bytearray(150 << 20)
except MemoryError:
    pass
"""


def test_the_limits_of_a_run_hold_in_a_box_that_was_ready(daemon: Daemon) -> None:
    wait_for_pool(daemon)
    limits = ["--memory", "100m", "--pids", "20", "--cpus", "0.5"]
    done = daemon.cli("run", "--verbose", *limits, "-c", LIMITED)
    assert WAYS["pool"] in done.stderr and done.stdout == "True\nTrue\n", done
    assert done.returncode == 137 and "memory limit 100 MiB" in done.stderr, done.stderr
    wait_for_pool(daemon)
    larger = daemon.cli("run", "--verbose", "--memory", "900m", "-c", "b = bytearray(700 << 20); print(len(b) >> 20)")
    assert WAYS["pool"] in larger.stderr and larger.stdout == "700\n", larger.stderr


def test_a_script_in_a_place_that_is_never_shown_has_a_warm_box(daemon: Daemon) -> None:
    """Only its text goes to the box, as without a daemon: beside keys, in a directory that everybody writes to."""
    place = daemon.glovebox.place
    if not (place.home / ".config").exists():
        place.make("home/.config")
    hidden, shared = place.make("home/.config/tool"), place.make("shared")
    shared.chmod(0o1777)
    for directory in (hidden, shared):
        script = directory / "main.py"
        script.write_text("import os\nprint(__file__, os.listdir('/run/code'), open(__file__).read()[:9])")
        (directory / "beside.txt").write_text("secret")
        place.give(script)
        outputs = []
        for more in ([], ["--no-daemon"]):
            wait_for_pool(daemon)
            done = daemon.cli("run", "--verbose", *more, str(script))
            assert done.returncode == 0, done.stderr
            assert WAYS["here" if more else "pool"] in done.stderr, done.stderr
            outputs.append(done.stdout)
        assert outputs[0] == outputs[1] == "/run/code/main.py ['main.py'] import os\n"


def test_a_script_above_a_gloveboxs_own_files_is_alone_on_every_way(daemon: Daemon) -> None:
    place = daemon.glovebox.place
    project = place.make("project")
    place.make("project/deep")
    private = place.make("project/deep/data")
    script, marker = project / "main.py", private / ".glovebox-private"
    script.write_text("import os\nprint(os.listdir('/run/code'))\nopen('/run/code/other.txt')")
    marker.write_text("")
    (project / "other.txt").write_text("x")
    for path in (script, marker, project / "other.txt"):
        place.give(path)
    for more in ([], ["--no-daemon"]):
        done = daemon.cli("run", *more, str(script))
        assert (done.returncode, done.stdout) == (1, "['main.py']\n"), done
    shutil.rmtree(project)


def test_output_goes_on_when_the_daemon_dies(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--pool", "1", "--preload", "json")
    wait_for_pool(daemon)
    code = "import sys, time\nprint('begun', flush=True)\nsys.stdin.readline()\nprint('x' * 200000)\nsys.exit(3)"
    with daemon.glovebox.popen("run", "--socket", daemon.socket, "-c", code, stdin=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "begun\n"
        daemon.kill()
        daemon.start()  # which removes what has no owner, and not this
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.read() == "x" * 200000 + "\n"
        assert process.wait(30) == 3


def test_a_command_goes_on_when_the_daemon_dies(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--pool", "1", "--preload", "json")
    wait_for_pool(daemon)
    words = ["-l", "bash", "-c", "echo begun; read line; echo $line; exit 4"]
    with daemon.glovebox.popen("run", "--socket", daemon.socket, *words, stdin=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "begun\n"
        daemon.kill()
        assert process.communicate("go\n", 30)[0] == "go\n"
        assert process.returncode == 4
    daemon.start()


def test_a_program_goes_on_when_the_daemon_stops(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--pool", "1", "--preload", "json")
    wait_for_pool(daemon)
    code = "print('begun', flush=True)\nprint(input())"
    with daemon.glovebox.popen("run", "--socket", daemon.socket, "-c", code, stdin=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "begun\n"
        assert daemon.terminate() == 0
        assert process.communicate("go\n", 30)[0] == "go\n"
        assert process.returncode == 0
    daemon.start()


def test_the_box_ends_with_its_caller(daemon: Daemon) -> None:
    wait_for_pool(daemon)
    seconds = f"{random.randrange(10**6, 10**7)}"
    code = f"import subprocess\nsubprocess.Popen(['sleep', '{seconds}'])\nprint('begun', flush=True)\ninput()"
    with daemon.glovebox.popen(
        "run", "--socket", daemon.socket, "-c", code, stdin=subprocess.PIPE
    ) as process:  # fmt: skip
        assert process.stdout and process.stdout.readline() == "begun\n"
        wait_for("its child", lambda: _find_sleeper(seconds))
        process.kill()
    wait_for("the box to end", lambda: not _find_sleeper(seconds))


def _find_sleeper(seconds: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == b"sleep\0%s\0" % seconds.encode():
                return True
    return False


def test_a_box_does_not_wait_for_a_caller_that_reads_nothing(daemon: Daemon) -> None:
    """The daemon lets the caller leave first, for a moment only; the exit status and the output are not lost."""
    wait_for_pool(daemon)
    seconds = f"{random.randrange(10**6, 10**7)}"
    words = ["-l", "bash", "-c", f"sleep {seconds} >/dev/null 2>&1 & echo begun; sleep 1; echo ended; exit 3"]
    with daemon.glovebox.popen("run", "--socket", daemon.socket, *words) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        try:
            wait_for("the shell's child to be the sleeper", lambda: _find_sleeper(seconds))
            wait_for("the box to end", lambda: not _find_sleeper(seconds))
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=30)[0] == "ended\n"
        assert process.returncode == 3


SEARCHED = """
mkdir -p one two/tool three
printf '#!/bin/sh\\necho "three $0"\\n' > three/tool
printf 'no program' > one/tool
chmod +x three/tool
"""


@pytest.mark.parametrize(
    ("path", "status"),
    [("one:two:three", 0), ("none:three", 0), ("/dev/null:three", 0), ("one:none", 126), ("two", 126), ("none", 127)],
)
def test_commands_are_searched_alike_on_every_way(daemon: Daemon, path: str, status: int) -> None:
    """A forked kernel executes a command itself, in C; without a daemon the agent does."""
    directory = daemon.glovebox.place.path / "searched"
    if not directory.exists():
        directory.mkdir()
        subprocess.run(["bash", "-c", SEARCHED], cwd=directory, check=True)
        daemon.glovebox.place.give(directory)
    full = ":".join(str(Path("/workspace", part)) for part in path.split(":"))
    answers = []
    for more in ([], ["--no-daemon"]):
        wait_for_pool(daemon)
        done = daemon.cli("run", *more, "--workspace", str(directory), "-e", f"PATH={full}", "--", "tool", "a")
        answers.append((done.returncode, done.stdout, done.stderr))
    assert answers[0] == answers[1]
    assert answers[0][0] == status, answers


@pytest.mark.parametrize("more", [[], ["--no-daemon"]], ids=["warm", "cold"])
def test_ctrl_c_is_a_keyboard_interrupt(daemon: Daemon, more: list[str]) -> None:
    code = (
        "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n    raise"
    )
    words = ["run", "--socket", daemon.socket, *more, "-c", code]
    with daemon.glovebox.popen(*words) as process:
        assert process.stdout and process.stderr and process.stdout.readline() == "begun\n"
        time.sleep(0.3)  # a signal that comes between two steps of Python does not end the sleep that follows
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == ("interrupted\n", 130)
    assert err.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("words", [["-c", "while True: pass"], ["-l", "bash", "-c", "while :; do :; done"]])
def test_ctrl_c_works_at_every_moment_of_a_start(daemon: Daemon, words: list[str]) -> None:
    """Also before the interpreter has read what it is to run. The escalation would come after two seconds."""
    late = []
    for delay_ms in [step / 2 for step in range(2, 44)]:
        wait_for_pool(daemon)
        with daemon.glovebox.popen("run", "--quiet", "--socket", daemon.socket, *words) as process:
            time.sleep(delay_ms / 1000)
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
            took = time.monotonic() - begun
        assert process.returncode in (130, -signal.SIGINT)  # the latter: before it had asked for a box
        if took > 1.5:
            late.append((delay_ms, took))
    assert late == []


@pytest.mark.parametrize("more", [[], ["--no-daemon"]], ids=["warm", "cold"])
def test_ctrl_c_reaches_the_children_and_programs_that_ignore_it_are_killed(daemon: Daemon, more: list[str]) -> None:
    code = (
        "import signal, subprocess\nsignal.signal(signal.SIGINT, lambda *_: print('heard', flush=True))\n"
        "print('begun', flush=True)\nprint(subprocess.call(['sleep', '60']), flush=True)\n"
        "while True:\n    signal.pause()"
    )
    with daemon.glovebox.popen("run", "--socket", daemon.socket, *more, "-c", code) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == ("heard\n-2\n", 130)


@pytest.mark.parametrize("more", [[], ["--no-daemon"]], ids=["warm", "cold"])
def test_limits_are_reported_in_the_same_words(daemon: Daemon, more: list[str]) -> None:
    glovebox = daemon.glovebox
    slow = glovebox("run", "--socket", daemon.socket, *more, "--timeout", "300ms", "-c", "import time; time.sleep(60)")
    assert slow.returncode == 124 and "time limit 0.3 s" in slow.stderr, slow
    large = glovebox(
        "run", "--socket", daemon.socket, *more, "--memory", "96m", "-c", "b = bytearray(400 << 20)"
    )  # fmt: skip
    assert large.returncode == 137 and "memory limit 96 MiB" in large.stderr, large
    missing = glovebox("run", "--socket", daemon.socket, *more, "--", "no-such-command")
    assert missing.returncode == 127 and "there is no such command" in missing.stderr, missing


def test_a_daemon_of_another_build_is_not_used_in_silence(daemon: Daemon, tmp_path: Path) -> None:
    """The same sources, another build id: as after an upgrade while the daemon runs."""
    if daemon.glovebox.who != "root":
        pytest.skip("optional: one user is enough")
    other = _with_other_build_id(daemon.glovebox.binary, tmp_path)
    kernel = str(Path(__file__).resolve().parents[2] / "guest/kernel")
    done = subprocess.run(
        [str(other), "run", "--socket", daemon.socket, "-c", "print(5)"],
        env=daemon.glovebox.environment({"GLOVEBOX_KERNEL_DIR": kernel}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert "another build" in done.stderr and "glovebox stop" in done.stderr


def _with_other_build_id(binary: Path, tmp_path: Path) -> Path:
    data = bytearray(binary.read_bytes())
    note = b"\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00"
    at = data.find(note)
    assert at > 0, "the linker leaves a build id"
    data[at + len(note)] ^= 0xFF
    other = tmp_path / "glovebox"
    other.write_bytes(bytes(data))
    other.chmod(0o755)
    return other


def test_warm_starts_a_daemon(glovebox: Glovebox) -> None:
    glovebox = glovebox.own_socket()
    try:
        first = glovebox("run", "--verbose", "--warm", "-c", "print(1)")
        assert first.returncode == 0 and "made by the daemon" in first.stderr, first.stderr
        assert glovebox("status").returncode == 0
    finally:
        glovebox("stop")


def test_much_output_arrives_whole(daemon: Daemon) -> None:
    code = "import os\nfor i in range(300):\n    os.write(1, b'%07d\\n' % i * 8192)"
    for more in ([], ["--no-daemon"]):
        path = daemon.glovebox.place.path / "out"
        with path.open("wb") as out:
            process = daemon.glovebox.popen("run", "--socket", daemon.socket, *more, "-c", code, stdout=out)
            assert process.wait(60) == 0
        assert path.stat().st_size == 300 * 65536
        done = subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = daemon.glovebox.popen("run", "--socket", daemon.socket, *more, "-c", code, stdout=done.stdin)
        assert process.wait(60) == 0
        assert done.communicate()[0].strip() == b"%d" % (300 * 65536)


@pytest.mark.parametrize("option", ["--workspace", "--data", "--mount"])
def test_a_missing_directory_gives_the_same_message(daemon: Daemon, option: str) -> None:
    missing = "/nowhere:/mnt/x" if option == "--mount" else "/nowhere"
    for more in ([], ["--no-daemon"]):
        done = daemon.cli("run", *more, option, missing, "-c", "print(1)")
        assert done.returncode == 125
        assert done.stderr == 'glovebox: cannot mount "/nowhere": it does not exist; create it first\n'


def test_an_output_directory_that_cannot_be_made_is_refused_before_the_run(daemon: Daemon) -> None:
    for more in ([], ["--no-daemon"]):
        done = daemon.cli("run", *more, "--output-dir", "/nowhere/x", "-c", "print('ran')")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "/nowhere does not exist" in done.stderr


def test_a_request_that_daemon_and_command_refuse_gives_one_message(daemon: Daemon) -> None:
    done = daemon.cli("run", "--mount", "/etc:/x", "-c", "print(1)")
    assert done.returncode == 125 and done.stderr.startswith("glovebox: cannot mount /etc (the host's settings")
    assert done.stderr.count("\n") == 1, done.stderr
