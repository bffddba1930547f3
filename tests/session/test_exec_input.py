"""Standard input, arguments, file names and encodings in `glovebox exec`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time

from support.daemon import wait_for
from support.glovebox import Completed, Glovebox


def good(done: Completed) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_code_and_commands_read_standard_input(served_glovebox: Glovebox) -> None:
    assert good(served_glovebox("exec", "demo", "-c", "x = input('name? ')\nx", input="earth\n")) == "name? 'earth'\n"
    lines = "".join(f"{number}\n" for number in range(100_000))
    code = "import sys\nprint(sum(map(int, sys.stdin)))"
    assert good(served_glovebox("exec", "demo", "-c", code, input=lines)) == "4999950000\n"
    assert good(served_glovebox("exec", "demo", "--", "wc", "-c", input="x" * 2_000_000)).split() == ["2000000"]
    assert good(served_glovebox("exec", "demo", "--", "cat", input="")) == ""
    assert "EOFError" in served_glovebox("exec", "demo", "-c", "input()", input="").stderr
    script = served_glovebox.place.write("script.py", "import sys\nprint(sys.stdin.read().upper())")
    assert good(served_glovebox("exec", "demo", script, input="abc")) == "ABC\n"


def test_streams_are_opened_by_name(served_glovebox: Glovebox) -> None:
    """As scripts do: echo problem > /dev/stderr."""
    shell = "echo one > /dev/stderr; echo two > /dev/stdout; cat /dev/stdin"
    done = served_glovebox("exec", "demo", "--", "sh", "-c", shell, input="three\n")
    assert (done.stdout, done.stderr) == ("two\nthree\n", "one\n")
    done = served_glovebox("exec", "demo", "-c", "!echo one > /dev/stderr\nopen('/dev/stdout', 'w').write('two\\n');")
    assert done.returncode == 0 and "one\n" in done.stdout + done.stderr and "two\n" in done.stdout, done


def test_input_is_not_seen_in_the_workspace(served_glovebox: Glovebox) -> None:
    names = "import os; print(input(), sorted(os.listdir()))"
    before = good(served_glovebox("exec", "demo", "-c", "import os; print(sorted(os.listdir()))"))
    assert good(served_glovebox("exec", "demo", "-c", names, input="a\n" * 500_000)) == f"a {before}"
    look = ["--", "sh", "-c", "sleep 0.5; ls -A; cat | wc -c"]
    listed = good(served_glovebox("exec", "demo", *look, input="x" * 900_000))
    assert listed.split() == [*eval(before), "900000"]
    kept = good(served_glovebox("exec", "demo", "-c", "import os; print(sorted(os.listdir('/run/session')))"))
    assert "input" not in kept


def test_input_that_no_code_reads_is_not_waited_for(served_glovebox: Glovebox) -> None:
    """A pipe that stays open, as programs that call us leave it."""
    good(served_glovebox("exec", "demo", "-c", "None"))
    for words in (["-c", "print(1)"], ["--", "echo", "1"]):
        with served_glovebox.popen("exec", "demo", *words, stdin=subprocess.PIPE) as process:
            began = time.monotonic()
            assert process.stdout and process.stdout.read() == "1\n"
            assert process.wait(30) == 0
            assert time.monotonic() - began < 20


def test_terminal_is_read_line_by_line(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "-c", "None"))
    ours, theirs = pty.openpty()
    code = "first = input('one? ')\nsecond = input('two? ')\n(first, second)"
    with served_glovebox.popen("exec", "demo", "-c", code, stdin=theirs) as process:
        os.close(theirs)
        os.write(ours, b"a\n")
        os.write(ours, b"b\n")
        assert process.stdout and process.stdout.read() == "one? two? ('a', 'b')\n"
        process.wait(30)
    os.close(ours)


def test_script_has_its_name_its_arguments_and_its_encoding(served_glovebox: Glovebox) -> None:
    place = served_glovebox.place
    script = place.write("analysis.py", "import sys\nprint(sys.argv[1:], __file__)\nif len(sys.argv) > 2:\n    1 / 0\n")
    assert good(served_glovebox("exec", "demo", script, "x")) == "['x'] /workspace/analysis.py\n"
    failed = served_glovebox("exec", "demo", script, "x", "--y=1")
    assert failed.returncode == 1 and 'File "analysis.py", line 4, in <module>' in failed.stderr
    assert good(served_glovebox("exec", "demo", "-c", "import sys; sys.argv", "a", "b")) == "['', 'a', 'b']\n"
    text = "# -*- coding: latin-1 -*-\nprint('été')\n"
    assert good(served_glovebox("exec", "demo", place.write("l.py", text.encode("latin-1")))) == "été\n"
    marked = place.write("bom.py", b"\xef\xbb\xbf" + "print('été')\n".encode())
    assert good(served_glovebox("exec", "demo", marked)) == "été\n"
    wrong = served_glovebox("exec", "demo", place.write("w.py", "# coding: martian\nprint('été')\n".encode("latin-1")))
    assert wrong.returncode == 2 and "martian" in wrong.stderr


def test_missing_file_is_wrong_usage(served_glovebox: Glovebox) -> None:
    for words in (["exec", "demo", "nowhere.py"], ["run", "nowhere.py"]):
        done = served_glovebox(*words)
        assert done.returncode == 2 and "there is no file nowhere.py" in done.stderr


def test_interrupt_reaches_code_that_waits_for_input(served_glovebox: Glovebox) -> None:
    good(served_glovebox("exec", "demo", "-c", "kept = 1"))
    with served_glovebox.popen("exec", "demo", "-c", "input('? ')", stdin=subprocess.PIPE) as process:
        assert process.stdout
        wait_for("the prompt", lambda: process.stdout and process.stdout.read(2) == "? ")
        good(served_glovebox("session", "interrupt", "demo"))
        assert process.wait(30) == 130
    assert good(served_glovebox("exec", "demo", "-c", "kept")) == "1\n"


def interrupt_twice(served_glovebox: Glovebox, code: str) -> str:
    """Ctrl-C and Ctrl-C again while the code runs; what was printed about it."""
    good(served_glovebox("exec", "demo", "-c", "kept = 1"))
    with served_glovebox.popen("exec", "demo", "-c", code) as process:
        assert process.stdout and process.stderr and process.stdout.readline() == "on\n"
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        return process.stderr.read()


def test_second_interrupt_says_what_happens_and_the_next_call_what_was_lost(served_glovebox: Glovebox) -> None:
    code = "import time\nprint('on', flush=True)\nwhile True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass"
    said = interrupt_twice(served_glovebox, code)
    assert "variables of session demo are lost" in said and "goes on" not in said
    state = ("session", "show", "demo", "--json")
    wait_for("its end", lambda: json.loads(good(served_glovebox(*state)))["state"] != "running")
    after = served_glovebox("exec", "demo", "-c", "'kept' in globals()")
    assert after.stdout == "False\n" and "variables are lost" in after.stderr
    assert "lost" not in served_glovebox("exec", "demo", "-c", "1").stderr


def test_second_interrupt_does_not_harm_code_that_reacts(served_glovebox: Glovebox) -> None:
    """It was given time to end by itself; then nothing is lost, and no call says so."""
    code = "import time\nprint('on', flush=True)\ntry: time.sleep(60)\nfinally: time.sleep(0.7); kept += 1"
    assert "if it has not reacted within 2 s" in interrupt_twice(served_glovebox, code)
    after = served_glovebox("exec", "demo", "-c", "kept")
    assert after.stdout == "2\n" and "lost" not in after.stderr, after
