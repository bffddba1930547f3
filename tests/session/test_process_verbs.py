"""ps, top, kill, logs, cp and session set: the verbs that people know from Docker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import wait_for
from support.glovebox import Completed, Glovebox
from support.screen import Screen

SLEEP = "import time\ntime.sleep(1000)"


def good(done: Completed) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def processes(glovebox: Glovebox) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(good(glovebox("ps", "--json")))["processes"]
    return listed


def running(glovebox: Glovebox) -> int:
    return sum(run["status"] == "running" for process in processes(glovebox) for run in process["runs"])


@pytest.fixture
def busy(served_glovebox: Glovebox) -> Iterator[Glovebox]:
    """A session and an ephemeral run, both asleep in Python."""
    good(served_glovebox("exec", "demo", "-c", "kept = 41"))
    started = [
        served_glovebox.popen("exec", "demo", "-c", SLEEP),
        served_glovebox.popen("run", "-c", SLEEP),
    ]
    wait_for("both to run", lambda: running(served_glovebox) == 2)
    yield served_glovebox
    for process in started:
        process.kill()
        process.communicate()


def test_ps_lists_sessions_and_ephemeral_runs_and_kill_ends_them(busy: Glovebox) -> None:
    lines = good(busy("ps")).splitlines()
    assert lines[0].split()[:4] == ["ID", "NAME", "STATE", "IMAGE"] and len(lines) == 3
    assert any(" demo " in line and "import time" in line for line in lines)
    assert any(" (run) " in line and "import time" in line for line in lines)
    assert len(good(busy("ps", "-q")).split()) == 2
    assert good(busy("top", "--once")).splitlines()[0].split()[:4] == lines[0].split()[:4]
    assert good(busy("kill", "demo")) == "demo: interrupted; the session's variables stay\n"
    assert good(busy("exec", "demo", "-c", "kept")) == "41\n"
    run = next(process for process in processes(busy) if process["ephemeral"])
    name = run["runs"][0]["run_id"][:8]
    assert good(busy("kill", name)) == f"{name}: ended\n"
    assert [process["name"] for process in processes(busy)] == ["demo"]
    refused = busy("kill", "demo")
    assert refused.returncode == 125 and "runs nothing now" in refused.stderr
    assert busy("kill", "nobody").returncode == 125


def cpu_shown(table: bytes, name: bytes) -> int:
    """Per cent of a processor, in the row of this session; -1 without a number."""
    row = next(line for line in table.splitlines() if b" " + name + b" " in line)
    found = re.search(rb"(\d+) %", row)
    return int(found[1]) if found else -1


def test_top_repeats_its_table_on_a_terminal_until_enter(served_glovebox: Glovebox) -> None:
    good(served_glovebox("session", "new", "quiet"))
    good(served_glovebox("exec", "quiet", "-c", "1"))
    with served_glovebox.popen("exec", "busy", "-c", "while True: pass") as process:
        wait_for("it to run", lambda: running(served_glovebox) == 1)
        screen = Screen(served_glovebox, "top", "--interval", "300ms")
        for _ in range(3):
            screen.expect(b"glovebox top: every 0.3 s, Enter ends it")
        table = screen.expect(b"glovebox top")
        assert cpu_shown(table, b"busy") > cpu_shown(table, b"quiet") >= 0, table
        screen.type(b"x\n")
        assert screen.process.wait(30) == 0
        screen.close()
        for key, status in ((b"q", 0), (None, -signal.SIGINT)):
            screen = Screen(served_glovebox, "top", "--interval", "300ms")
            screen.expect(b"Enter ends it (or q)")
            assert not termios.tcgetattr(screen.fd)[3] & (termios.ICANON | termios.ECHO)
            screen.type(key) if key else screen.process.send_signal(signal.SIGINT)
            assert screen.process.wait(30) == status
            assert termios.tcgetattr(screen.fd)[3] & termios.ICANON, "the terminal is as it was"
            screen.close()
        good(served_glovebox("kill", "-9", "busy"))
        process.communicate()


def test_an_exec_that_waits_for_another_run_says_so_on_a_terminal_only(served_glovebox: Glovebox) -> None:
    wait = "import time; time.sleep(3)"
    with served_glovebox.popen("exec", "demo", "-c", wait) as first:
        wait_for("it to run", lambda: running(served_glovebox) == 1)
        piped = served_glovebox.popen("exec", "demo", "-c", "1")
        wait_for("the next to wait", lambda: len(processes(served_glovebox)[0]["runs"]) == 2)
        screen = Screen(served_glovebox, "exec", "demo", "-c", "6 * 7")
        screen.expect(f"waiting for 2 runs of session demo ({wait}); Ctrl-C stops waiting".encode())
        screen.expect(b"42")
        screen.close()
        assert piped.communicate() == ("1\n", "")
        first.communicate()


def test_an_exec_that_is_slow_by_itself_says_nothing_meanwhile(served_glovebox: Glovebox) -> None:
    screen = Screen(served_glovebox, "exec", "demo", "-c", "import time; time.sleep(2); 6 * 7")
    assert b"waiting" not in screen.expect(b"42")
    screen.close()


def test_top_shows_its_table_when_standard_input_has_ended(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "-c", "1"))
    with open(os.devnull) as nothing:
        screen = Screen(served_glovebox, "top", "-d", "200ms", stdin=nothing.fileno())
    screen.expect(b" demo ")
    screen.expect(b" demo ")
    screen.process.send_signal(signal.SIGINT)
    assert screen.process.wait(30) == -signal.SIGINT
    screen.close()


def test_kill_ends_code_that_ignores_the_interrupt(served_glovebox: Glovebox) -> None:
    stubborn = "import time\nwhile True:\n  try:\n    time.sleep(1000)\n  except KeyboardInterrupt:\n    pass"
    with served_glovebox.popen("exec", "demo", "-c", stubborn) as process:
        wait_for("it to run", lambda: running(served_glovebox) == 1)
        assert "variables are lost" in good(served_glovebox("kill", "demo"))
        process.communicate()
    good(served_glovebox("exec", "demo", "-c", "kept = 41"))
    with served_glovebox.popen("exec", "demo", "-c", SLEEP) as process:
        wait_for("it to run", lambda: running(served_glovebox) == 1)
        assert "variables are lost" in good(served_glovebox("kill", "-9", "demo"))
        said = process.communicate()[1]
        assert "killed, or its session restarted" in said and "removed" not in said, said
    with served_glovebox.popen("exec", "gone", "-c", SLEEP) as process:
        wait_for("it to run", lambda: running(served_glovebox) == 1)
        good(served_glovebox("session", "rm", "gone"))
        assert process.communicate()[1] == "glovebox: the session was removed while the run was on\n"
    assert "NameError" in served_glovebox("exec", "demo", "-c", "kept").stderr


def test_logs_print_what_the_last_runs_printed(served_glovebox: Glovebox) -> None:
    for word in ("one", "two", "three"):
        good(served_glovebox("exec", "demo", "-c", f"print('{word}')"))
    assert good(served_glovebox("logs", "demo")) == "one\ntwo\nthree\n"
    assert good(served_glovebox("logs", "-f", "-n", "2", "demo")) == "two\nthree\n"
    assert served_glovebox("logs").returncode == 2
    screen = Screen(served_glovebox, "logs", "-n", "2", "demo")
    before = screen.expect(b"two\r\n")
    assert re.fullmatch(rb"-- \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, run \w+\r\n", before), before
    assert screen.expect(b"three").startswith(b"-- ")
    screen.close()


def test_an_interrupted_command_is_quiet(served_glovebox: Glovebox) -> None:
    with served_glovebox.popen("exec", "demo", "--", "sleep", "1000") as process:
        wait_for("it to run", lambda: running(served_glovebox) == 1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert (process.returncode, stdout, stderr) == (130, "", "")
    late = served_glovebox("exec", "demo", "--timeout", "300ms", "--", "sleep", "1000")
    assert late.returncode == 124 and "Traceback" not in late.stderr and "time limit" in late.stderr, late


def test_cp_copies_files_and_directories_both_ways(served_glovebox: Glovebox) -> None:
    place = served_glovebox.place
    good(served_glovebox("session", "new", "demo"))
    source = place.make("source")
    place.give(Path(place.write("source/a", b"\0binary\xff")))
    place.make("source/inner")
    place.write("source/inner/b", "b")
    good(served_glovebox("cp", source, "demo:"))
    good(served_glovebox("cp", source / "a", "demo:renamed"))
    good(served_glovebox("cp", source / "a", "demo:/workspace/source/inner/"))
    found = good(served_glovebox("exec", "demo", "-l", "sh", "-c", "find source renamed -type f | sort"))
    assert found.split() == ["renamed", "source/a", "source/inner/a", "source/inner/b"]
    good(served_glovebox("cp", "demo:source", place.home / "back"))
    assert (place.home / "back/a").read_bytes() == b"\0binary\xff"
    assert (place.home / "back/inner/b").read_text() == "b"
    good(served_glovebox("cp", "demo:renamed", place.home))
    assert (place.home / "renamed").read_bytes() == b"\0binary\xff"
    good(served_glovebox("cp", "-", "demo:typed", input="typed"))
    assert good(served_glovebox("cp", "demo:typed", "-")) == "typed"


def test_cp_follows_no_link_of_a_session(served_glovebox: Glovebox) -> None:
    place = served_glovebox.place
    target = place.home / "out"
    good(served_glovebox("exec", "demo", "-c", "import os; os.mkdir('d'); os.symlink('/etc/passwd', 'd/link')"))
    good(served_glovebox("cp", "demo:d", target))
    assert list(target.iterdir()) == []
    assert served_glovebox("cp", "demo:d/link", place.home / "x").returncode == 125


def test_cp_says_what_it_needs(served_glovebox: Glovebox) -> None:
    for words in ([], ["a"], ["a", "b"], ["demo:a", "other:b"], ["nowhere", "demo:x"]):
        done = served_glovebox("cp", *words)
        assert done.returncode == 2 and done.stderr.startswith("glovebox: "), words
    assert served_glovebox("cp", "nobody:x", "-").returncode == 125


def test_cp_of_a_missing_file_is_a_usage_error_and_leaves_nothing(served_glovebox: Glovebox) -> None:
    place = served_glovebox.place
    good(served_glovebox("session", "new", "demo"))
    for words in (("demo:missing", place.home / "kept"), ("demo:missing", "-"), (place.home / "missing", "demo:")):
        done = served_glovebox("cp", *words)
        assert done.returncode == 2 and "there is no file" in done.stderr, (words, done)
    assert not (place.home / "kept").exists()
    absent = served_glovebox("cp", "absent:file", place.home)
    assert absent.returncode == 125 and "absent" in absent.stderr, absent


def test_limits_are_raised_while_a_session_lives(served_glovebox: Glovebox) -> None:
    good(served_glovebox("session", "new", "demo", "--memory", "100m"))
    good(served_glovebox("exec", "demo", "-c", "kept = 41"))
    good(served_glovebox("session", "set", "demo", "--memory", "400m", "--timeout", "7s", "--cpus", "0.5"))
    assert good(served_glovebox("exec", "demo", "-c", "large = bytearray(200 << 20)\nkept")) == "41\n"
    limits = json.loads(good(served_glovebox("session", "show", "demo", "--json")))["limits"]
    assert (limits["memory_bytes"], limits["timeout_ms"], limits["cpus"]) == (400 << 20, 7000, 0.5)
    refused = served_glovebox("session", "set", "demo", "--memory", "50m")
    assert refused.returncode != 0 and "uses 20" in refused.stderr
    assert served_glovebox("session", "set", "demo").returncode == 2
    # and the next daemon knows
    good(served_glovebox("stop"))
    good(served_glovebox("serve", "--background", "--pool", "0", "--preload", ""))
    limits = json.loads(good(served_glovebox("session", "show", "demo", "--json")))["limits"]
    assert limits["memory_bytes"] == 400 << 20


def test_memory_shown_is_without_what_the_kernel_keeps_of_files(root_glovebox: Glovebox) -> None:
    place = root_glovebox.place
    good(root_glovebox("serve", "--background", "--pool", "0", "--preload", ""))
    try:
        workspace = place.make("workspace")
        good(root_glovebox("session", "new", "demo", "--workspace", workspace))
        good(root_glovebox("exec", "demo", "-c", "open('big', 'wb').write(bytes(200 << 20)); None"))
        subprocess.run(["sync", "-f", str(workspace)], check=True, timeout=60)
        wait_for("the pages to be clean", lambda: processes(root_glovebox)[0]["memory_bytes"] < 60 << 20, 30)
    finally:
        good(root_glovebox("stop", "--end-sessions", timeout=90))


def test_image_that_a_session_uses_is_not_removed_unasked(served_glovebox: Glovebox) -> None:
    archive = served_glovebox.place.path / "image.tar"
    subprocess.run(["tar", "-C", "/usr/share", "-cf", archive, "zoneinfo/UTC"], check=True, timeout=60)
    archive.chmod(0o644)
    good(served_glovebox("image", "import", "small", archive))
    good(served_glovebox("session", "new", "demo", "--image", "small"))
    refused = served_glovebox("image", "rm", "small")
    assert refused.returncode == 125 and "in use by 1 session (demo)" in refused.stderr
    good(served_glovebox("image", "rm", "--force", "small"))


def test_the_layer_of_the_host_is_not_removed_unasked(served_glovebox: Glovebox) -> None:
    (served_glovebox.place.data / "images/host/python").mkdir(parents=True, exist_ok=True)
    for path in ("images", "images/host", "images/host/python"):
        served_glovebox.place.give(served_glovebox.place.data / path)
    good(served_glovebox("session", "new", "demo"))
    refused = served_glovebox("image", "rm", "host")
    assert refused.returncode == 125 and "in use by 1 session (demo), which would miss its packages" in refused.stderr
    good(served_glovebox("image", "rm", "--force", "host"))


def test_a_part_of_a_verb_is_named_with_its_verb(glovebox: Glovebox) -> None:
    refused = glovebox("hibernate", "demo")
    assert refused.returncode == 2 and 'did you mean "glovebox session hibernate"?' in refused.stderr


def test_words_of_other_programs_are_understood(served_glovebox: Glovebox) -> None:
    good(served_glovebox("session", "create", "demo"))
    assert good(served_glovebox("session", "list", "--names")) == "demo\n"
    good(served_glovebox("session", "delete", "demo"))
    assert good(served_glovebox("image", "ls", "--names")) == "host\n"
    good(served_glovebox("key", "create", "build"))
    assert good(served_glovebox("key", "list", "--names")) == "build\n"
    good(served_glovebox("key", "remove", "build"))
    assert good(served_glovebox("key", "ls", "--names")) == ""


def test_runs_without_a_daemon_are_listed_and_ended(glovebox: Glovebox) -> None:
    def listed() -> list[str]:
        answer = json.loads(glovebox("ps", "--json").stdout or "{}")
        return [item["runs"][0]["what"] for item in answer.get("processes", [])]

    runs = glovebox.place.data / "runs"
    with glovebox.popen("run", "--no-daemon", "--", "sleep", "60") as process:
        wait_for("the run in the list", lambda: listed() == ["sleep 60"])
        assert "(run)" in glovebox("top", "--once").stdout
        (short,) = glovebox("ps", "--quiet").stdout.split()
        assert glovebox("kill", short).stdout == f"{short}: ended\n"
        assert process.wait(30) == 128 + signal.SIGTERM
    assert not runs.exists()
    assert glovebox("ps").returncode == 125  # no daemon, and nothing runs
    with glovebox.popen("run", "--no-daemon", "-c", "\nwhile True: pass  # \N{SNOWMAN}") as process:
        wait_for("the run in the list", lambda: listed() == ["while True: pass  # \N{SNOWMAN}"])
        process.kill()
        process.wait(30)
    wait_for("an empty list", lambda: listed() == [])
    wait_for("its file to go", lambda: not runs.exists())  # its watchdog removes it
