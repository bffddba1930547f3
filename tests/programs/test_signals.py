"""Signals that reach `glovebox run`: what a program makes of them, and those that its caller ignores."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.daemons import make_daemons

CATCHES = """
import signal, sys, time
def tidy(number, frame):
    print('tidy', signal.Signals(number).name, flush=True)
    sys.exit(7)
for name in ('SIGTERM', 'SIGHUP', 'SIGUSR1'):
    signal.signal(getattr(signal, name), tidy)
try:
    print('begun', flush=True)
    for _ in range(600):  # a signal between two steps of Python does not end the sleep that follows
        time.sleep(0.1)
except KeyboardInterrupt:
    print('caught', flush=True)
"""


@pytest.fixture(scope="module")
def daemon(binary: Path) -> Iterator[Daemon]:
    for make in make_daemons(binary):
        yield make("--pool", "1", "--preload", "json")


@pytest.fixture(params=["warm", "cold"])
def words(daemon: Daemon, request: pytest.FixtureRequest) -> list[str]:
    return ["run", "--socket", daemon.socket, *([] if request.param == "warm" else ["--no-daemon"])]


def start(daemon: Daemon, words: list[str], ignored: int | None = None, **options: int) -> subprocess.Popen[str]:
    """`ignored` is what the caller ignores, as nohup does, and a shell's & in a script."""
    before = signal.signal(ignored, signal.SIG_IGN) if ignored else None
    try:
        return daemon.glovebox.popen(*words, **options)
    finally:
        if ignored:
            signal.signal(ignored, before)


@pytest.mark.parametrize(
    ("number", "said", "status"),
    [
        (signal.SIGTERM, "tidy SIGTERM\n", 7),
        (signal.SIGHUP, "tidy SIGHUP\n", 7),
        (signal.SIGUSR1, "tidy SIGUSR1\n", 7),
        (signal.SIGINT, "caught\n", 130),  # never 0: it was interrupted
    ],
)
def test_the_status_is_the_programs_after_a_signal_that_it_caught(
    daemon: Daemon, words: list[str], number: int, said: str, status: int
) -> None:
    with start(daemon, [*words, "-c", CATCHES]) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == (said, status), err


def test_a_caught_signal_is_in_the_json(daemon: Daemon, words: list[str]) -> None:
    marker = daemon.glovebox.place.make(f"marker-{len(words)}")
    code = CATCHES.replace("print('begun', flush=True)", "open('begun', 'w')")
    with start(daemon, [*words, "--json", "--workspace", str(marker), "-c", code]) as process:
        while not (marker / "begun").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    result = json.loads(out)
    assert (result["status"], result["exit_code"], process.returncode) == ("interrupted", 7, 7), err


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_the_caller_ignores_stays_ignored(daemon: Daemon, words: list[str], number: int) -> None:
    with start(
        daemon, [*words, "-c", "print('begun', flush=True)\nprint(input())"], number, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(number)
        out, err = process.communicate("goes on\n", timeout=30)
    assert (out, process.returncode) == ("goes on\n", 0), err


def test_twenty_thousand_arguments_are_passed(daemon: Daemon, words: list[str]) -> None:
    numbers = [str(number) for number in range(20_000)]
    for program in (["-c", "import sys; print(len(sys.argv))"], ["-l", "bash", "-c", "echo $(($# + 1))"]):
        done = daemon.glovebox(*words, *program, *numbers)
        assert (done.returncode, done.stdout) == (0, "20001\n"), done.stderr


def first_id(daemon: Daemon) -> str:
    return daemon.glovebox("ps", "--socket", daemon.socket, "-q").stdout.split()[0]


def kill(daemon: Daemon, *words: str) -> float:
    begin = time.monotonic()
    done = daemon.glovebox("kill", "--socket", daemon.socket, *words)
    assert done.returncode == 0 and ": ended" in done.stdout, done
    return time.monotonic() - begin


def test_kill_is_a_sigterm_with_a_daemon_and_without(daemon: Daemon, words: list[str]) -> None:
    with start(daemon, [*words, "-c", CATCHES]) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        kill(daemon, first_id(daemon))
        out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == ("tidy SIGTERM\n", 7), err


STUBBORN = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('begun', flush=True)\ntime.sleep(60)"


def test_kill_ends_a_program_that_ignores_it_and_minus_nine_at_once(daemon: Daemon, words: list[str]) -> None:
    for options, least, most in (((), 1.5, 7.0), (("-9",), 0.0, 1.5)):
        with start(daemon, [*words, "-c", STUBBORN]) as process:
            assert process.stdout and process.stdout.readline() == "begun\n"
            begin = time.monotonic()
            kill(daemon, *options, first_id(daemon))
            process.communicate(timeout=30)
            took = time.monotonic() - begin
        assert process.returncode != 0 and least <= took <= most, (options, took)


def test_a_run_that_was_ended_says_why(daemon: Daemon, words: list[str]) -> None:
    for options, said in (((), 'ended from outside, by "glovebox kill"'), (("-9",), "")):
        with start(daemon, [*words, "-c", "print('begun', flush=True); import time; time.sleep(60)"]) as process:
            assert process.stdout and process.stdout.readline() == "begun\n"
            kill(daemon, *options, first_id(daemon))
            assert said in process.communicate(timeout=30)[1]
    fault = daemon.glovebox(*words, "-c", "import ctypes; ctypes.string_at(0)")
    assert fault.returncode == 139 and "ended by signal 11 (Segmentation fault)" in fault.stderr, fault
    assert daemon.glovebox(*words, "--quiet", "-c", "import os; os.abort()").stderr == ""
    assert daemon.glovebox(*words, "-c", "import os; os.kill(os.getpid(), 13)").stderr == ""


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_output_without_a_reader_is_no_error(daemon: Daemon, words: list[str], options: tuple[str, ...]) -> None:
    with start(daemon, [*words, *options, "-c", "print('x' * 200_000)"]) as process:
        assert process.stdout
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE
        assert process.stderr and process.stderr.read() == ""


def test_kill_reaches_a_caller_that_is_stopped(daemon: Daemon) -> None:
    with start(daemon, ["run", "--socket", daemon.socket, "-c", STUBBORN]) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        try:
            assert kill(daemon, first_id(daemon)) < 8
        finally:
            process.send_signal(signal.SIGCONT)
        process.communicate(timeout=30)
    assert process.returncode != 0


@pytest.mark.parametrize("options", [[], ["-9"]])
def test_kill_finds_a_program_whose_daemon_was_replaced(binary: Path, options: list[str]) -> None:
    for make in make_daemons(binary):
        daemon = make("--pool", "1", "--preload", "json")
        with start(daemon, ["run", "--socket", daemon.socket, "-c", CATCHES]) as process:
            assert process.stdout and process.stdout.readline() == "begun\n"
            name = first_id(daemon)
            daemon.terminate()
            daemon.start()
            assert first_id(daemon) == name
            kill(daemon, *options, name)
            out, err = process.communicate(timeout=30)
        expected = ("", -signal.SIGKILL) if options else ("tidy SIGTERM\n", 7)
        assert (out, process.returncode) == expected, err
        assert not (daemon.glovebox.place.data / "runs").exists() or options
