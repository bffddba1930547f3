"""Nothing is left behind after any end of a run: no process, mount, control group, directory or descriptor."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from support.beside import together
from support.glovebox import Glovebox, slowness
from support.host_count import count_host, left_behind

LINGER = "import time; print('on', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]; print('on'); time.sleep(600)"
)


@contextlib.contextmanager
def running(glovebox: Glovebox, code: str = LINGER) -> Iterator[subprocess.Popen[str]]:
    """A run whose program has said that it is there. Whatever happens, it does not outlive the test."""
    with glovebox.popen("run", "-c", code) as process:
        try:
            assert process.stdout and process.stdout.readline() == "on\n"
            yield process
            process.wait(60 * slowness())
        finally:
            process.kill()


def end_by_signal(glovebox: Glovebox, number: int, code: str = LINGER) -> int:
    """Sends it once the program runs, as Ctrl-C does: to the whole process group."""
    with running(glovebox, code) as process:
        os.killpg(process.pid, number)
        return process.wait(60 * slowness())


@pytest.mark.vm
def test_interrupt_ends_with_130_and_leaves_nothing(glovebox: Glovebox) -> None:
    before = count_host(glovebox)
    assert end_by_signal(glovebox, signal.SIGINT) == 130
    assert end_by_signal(glovebox, signal.SIGINT, STUBBORN) == 130
    assert left_behind(glovebox, before) == {}


def test_termination_and_hangup_leave_nothing(glovebox: Glovebox) -> None:
    before = count_host(glovebox)
    assert end_by_signal(glovebox, signal.SIGTERM) == 128 + signal.SIGTERM
    assert end_by_signal(glovebox, signal.SIGHUP) == 128 + signal.SIGHUP
    assert left_behind(glovebox, before) == {}


def test_program_gets_the_interrupt_and_may_answer(glovebox: Glovebox) -> None:
    code = """if True:
        import time
        try:
            print("on", flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            print("saved", flush=True)
    """
    with running(glovebox, code) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout and process.stdout.read() == "saved\n"
        assert process.wait(60 * slowness()) == 130


@pytest.mark.vm
def test_kill_9_of_glovebox_leaves_nothing(glovebox: Glovebox) -> None:
    before = count_host(glovebox)
    family = "import os, time\nfor _ in range(4): os.fork() or time.sleep(600)\n"
    for code in (LINGER, STUBBORN, family + LINGER):
        with running(glovebox, code) as process:
            process.kill()
            assert process.wait(60 * slowness()) == -signal.SIGKILL
    assert left_behind(glovebox, before) == {}


@pytest.mark.vm
def test_kill_9_at_any_moment_of_the_start_leaves_nothing(glovebox: Glovebox) -> None:
    before = count_host(glovebox)
    for step in range(25):
        with glovebox.popen("run", "-c", LINGER) as process:
            time.sleep(step * 0.001 * slowness())
            process.kill()
            process.wait(60 * slowness())
    assert left_behind(glovebox, before) == {}


def failing(glovebox: Glovebox, *words: str, expect: int) -> None:
    done = glovebox("run", *words)
    assert done.returncode == expect, done


def broken_pipe(glovebox: Glovebox) -> None:
    with glovebox.popen("run", "-c", "while True: print('x' * 1000)") as process:
        assert process.stdout
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60 * slowness()) == 141


def killed(glovebox: Glovebox) -> None:
    with running(glovebox) as process:
        process.kill()


def interrupted(glovebox: Glovebox) -> None:
    assert end_by_signal(glovebox, signal.SIGINT) == 130


ENDS: list[Callable[[Glovebox], None]] = [
    lambda g: failing(g, "-c", "pass", expect=0),
    lambda g: failing(g, "-c", "raise SystemExit(3)", expect=3),
    lambda g: failing(g, "-c", "import os; os.abort()", expect=134),
    lambda g: failing(g, "--memory", "32m", "-c", "x = b'x' * (1 << 28)", expect=137),
    lambda g: failing(g, "--timeout", "50ms", "-c", "while True: pass", expect=124),
    lambda g: failing(g, "-l", "bash", "-c", "setsid sleep 600 & (setsid sleep 600 &) & exit 0", expect=0),
    lambda g: failing(g, "--", "no-such-command", expect=127),
    lambda g: failing(g, "--mount", "/etc:/mnt/x", "-c", "pass", expect=125),
    lambda g: failing(g, "--memory", "0", "-c", "pass", expect=2),
    lambda g: failing(g, "--pids", "5", "-c", "import os\nwhile True: os.fork()", expect=1),
    broken_pipe,
    killed,
    interrupted,
]
ROUNDS = 16


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_hundreds_of_runs_with_every_kind_of_end_leave_nothing(glovebox: Glovebox) -> None:
    """Two at a time, so that ends and starts meet."""
    for end in ENDS:
        end(glovebox)
    before = count_host(glovebox)

    def forwards() -> None:
        for end in ENDS * (ROUNDS // 2):
            end(glovebox)

    def backwards() -> None:
        for end in reversed(ENDS * (ROUNDS // 2)):
            end(glovebox)

    together(forwards, backwards)
    assert len(ENDS) * ROUNDS >= 200
    assert left_behind(glovebox, before) == {}


@pytest.mark.vm
def test_boxes_side_by_side_do_not_disturb_each_other(glovebox: Glovebox) -> None:
    before = count_host(glovebox)
    code = "import os; open('f', 'w').write('{0}'); print('{0}', open('f').read(), len(os.listdir('/workspace')))"
    processes = [glovebox.popen("run", "-c", code.format(n)) for n in range(12)]
    outputs = [process.communicate(timeout=60 * slowness())[0] for process in processes]
    assert outputs == [f"{n} {n} 2\n" for n in range(12)]
    assert left_behind(glovebox, before) == {}


def test_box_that_cannot_be_made_leaves_nothing(glovebox: Glovebox) -> None:
    """The image is fine, the mounts are not: the box is half made when it is found out."""
    workspace = glovebox.place.make("workspace")
    (workspace / "here").symlink_to("/tmp")
    before = count_host(glovebox)
    done = glovebox(
        "run", "--workspace", workspace, "--mount", f"{glovebox.place.temporary}:/workspace/here/x", "-c", "1"
    )
    assert done.returncode == 125, done
    assert left_behind(glovebox, before) == {} and os.listdir(workspace) == ["here"]


def test_counting_sees_what_is_left(glovebox: Glovebox) -> None:
    """The tests above are worth something only if a leak would be seen."""
    before = count_host(glovebox)
    with running(glovebox) as process:
        (glovebox.place.temporary / "left").write_text("")
        new = count_host(glovebox).new_since(before)
        process.send_signal(signal.SIGTERM)
    assert {"processes", "groups", "files"} <= set(new), new
    with contextlib.suppress(FileNotFoundError):
        (glovebox.place.temporary / "left").unlink()
