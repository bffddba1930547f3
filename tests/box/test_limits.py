"""Every resource of a box is bounded, and reaching a bound is reported for what it is."""

from __future__ import annotations

import json

import pytest
from support.glovebox import Glovebox
from support.host_count import count_host, left_behind

FILL = """
import os
def fill(path, size):
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(size >> 16):
                file.write(bytes(1 << 16))
    except OSError as problem:
        return problem.errno
"""


@pytest.mark.vm
def test_memory_limit_is_reported_on_stderr(glovebox: Glovebox) -> None:
    done = glovebox("run", "--memory", "64m", "-c", "print('begun'); x = b'x' * (1 << 28); print('not reached')")
    assert (done.returncode, done.stdout) == (137, "begun\n"), done
    assert "memory limit 64 MiB reached" in done.stderr and "raise --memory" in done.stderr


@pytest.mark.vm
def test_more_memory_than_the_host_has_is_noted(glovebox: Glovebox) -> None:
    done = glovebox("run", "--memory", "1000g", "-c", "print(1)")
    assert done.returncode == 0 and done.stdout == "1\n"
    assert done.stderr.startswith("glovebox: --memory 1000 GiB is more than this host has ("), done
    assert glovebox("run", "--quiet", "--memory", "1000g", "-c", "print(1)").stderr == ""


def test_memory_limit_counts_all_processes_together(glovebox: Glovebox) -> None:
    code = """if True:
        import os, time
        children = []
        for _ in range(4):
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                x = bytearray(os.urandom(1 << 16) * 480)  # 30 MiB
                os.write(w, b"x")
                time.sleep(600)
            children.append(r)
            os.close(w)
        held = sum(os.read(r, 1) == b"x" for r in children)  # a killed child closes its pipe
        print("held", held)
        raise SystemExit(held != 4)
    """
    result = glovebox.json("--memory", "80m", "-c", code)
    assert result["oom_killed"] and (result["status"], result["exit_code"]) == ("oom", 137), result


def test_killed_is_not_taken_for_out_of_memory(glovebox: Glovebox) -> None:
    result = glovebox.json("-c", "import os; os.kill(os.getpid(), 9)")
    assert (result["status"], result["oom_killed"], result["error"]) == ("killed", False, None)


@pytest.mark.vm
def test_fork_bomb_stops_at_the_pids_limit(glovebox: Glovebox) -> None:
    code = """if True:
        import os, time
        count = 1
        try:
            while True:
                if os.fork() == 0:
                    time.sleep(600)
                count += 1
        except OSError as problem:
            print(count, problem.errno)
    """
    before = count_host(glovebox)
    count, error = map(int, glovebox("run", "--pids", "20", "-c", code).stdout.split())
    assert 19 <= count <= 21 and error == 11
    bomb = glovebox("run", "--timeout", "2s", "--pids", "20", "-l", "bash", "-c", "b() { b | b & }; b; sleep 600")
    assert bomb.returncode != 0, bomb  # 124, or what bash says when it cannot fork any more
    assert left_behind(glovebox, before) == {}


@pytest.mark.vm
def test_threads_count_as_processes(glovebox: Glovebox) -> None:
    code = """if True:
        import os, threading, time
        count = 0
        try:
            while True:
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
                count += 1
        except RuntimeError:
            print(count, flush=True)
            os._exit(0)
    """
    assert 18 <= int(glovebox("run", "--pids", "20", "-c", code).stdout) <= 20


@pytest.mark.vm
def test_cpu_limit_holds_for_a_busy_loop(glovebox: Glovebox) -> None:
    code = """if True:
        import time
        end = time.monotonic() + 1.5
        start = time.process_time()
        while time.monotonic() < end:
            pass
        print(time.process_time() - start)
    """
    used = float(glovebox("run", "--cpus", "0.1", "-c", code).stdout)
    assert used < 0.75, f"{used} s of processor time in 1.5 s with a tenth of a processor"


@pytest.mark.vm
def test_time_limit_ends_what_ignores_the_request(glovebox: Glovebox) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(600)"
    before = count_host(glovebox)
    result = glovebox.json("--timeout", "500ms", "-c", code)
    assert (result["status"], result["exit_code"], result["timed_out"]) == ("timeout", 124, True), result
    assert "time limit 0.5 s reached" in result["error"]["message"]
    assert 500 <= result["duration_ms"] < 30_000
    assert left_behind(glovebox, before) == {}


def test_time_limit_holds_for_code_that_reads_its_own_output_back(user_glovebox: Glovebox) -> None:
    """Rootless, the pipes belong to the box's user: it may take away the byte that the relay was promised."""
    code = """if True:
        import os, threading
        mine = os.open("/proc/self/fd/1", os.O_RDONLY)

        def take_back():
            while True:
                os.read(mine, 1)

        threading.Thread(target=take_back, daemon=True).start()
        while True:
            os.write(1, b".")
    """
    done = user_glovebox("run", "--timeout", "1", "-c", code, timeout=60)
    assert done.returncode == 124, done.stderr


def test_program_can_end_by_itself_when_time_is_up(glovebox: Glovebox) -> None:
    code = """if True:
        import signal, sys, time
        signal.signal(15, lambda *_: sys.exit(print("saved")))
        print("on")
        time.sleep(600)
    """
    done = glovebox("run", "--timeout", "2s", "-c", code)
    assert done.returncode == 124 and done.stdout in ("on\nsaved\n", "on\n"), done
    assert "time limit 2 s reached" in done.stderr


@pytest.mark.vm
def test_temporary_places_are_bounded(glovebox: Glovebox) -> None:
    code = FILL + "print([fill(p, 1 << 27) for p in ('/tmp/f', os.path.expanduser('~/f'), '/dev/shm/f')])"
    assert glovebox("run", "--tmp-size", "4m", "-c", code).stdout == "[28, 28, 28]\n"


@pytest.mark.vm
def test_empty_workspace_is_bounded_in_bytes_and_files(glovebox: Glovebox) -> None:
    code = (
        FILL
        + """
print(fill("f", 1 << 24), sum(os.path.getsize(f) for f in os.listdir() if os.path.isfile(f)) <= 4 << 20)
os.unlink("f")
made = 0
try:
    for made in range(100):
        open(f"file{made}", "w").close()
except OSError as problem:
    print(problem.errno, made < 20)
"""
    )
    done = glovebox("run", "--disk", "4m", "--disk-files", "20", "-c", code)
    assert done.stdout == "28 True\n28 True\n" or done.stdout == "27 True\n28 True\n", done


def test_largest_file_is_bounded_in_a_workspace_of_the_host(glovebox: Glovebox) -> None:
    workspace = glovebox.place.make("workspace")
    code = FILL + "print(fill('f', 1 << 24)); os.truncate('f', 1 << 20); os.truncate('f', 1 << 40)"
    done = glovebox("run", "--disk", "4m", "--workspace", workspace, "-c", code)
    assert done.stdout == "27\n" and "File too large" in done.stderr, done
    assert (workspace / "f").stat().st_size == 1 << 20


def test_descriptors_cores_and_queues_are_bounded(glovebox: Glovebox) -> None:
    code = """if True:
        import json, resource
        names = ["NOFILE", "CORE", "MEMLOCK", "MSGQUEUE", "SIGPENDING", "RTPRIO", "NICE"]
        print(json.dumps([resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1] for name in names]))
    """
    hard = json.loads(glovebox("run", "-c", code).stdout)
    most = [4096, 1, 8 << 20, 819200, 1024, 0, 0]
    assert all(0 <= value <= bound for value, bound in zip(hard, most)), hard


@pytest.mark.vm
def test_daemonised_grandchild_neither_holds_up_nor_outlives_the_run(glovebox: Glovebox) -> None:
    """It holds the pipe of standard output, in a session of its own, with every signal ignored."""
    code = """if True:
        import os, signal, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in set(signal.Signals) - {9, 19}:
                    signal.signal(number, signal.SIG_IGN)
                os.write(1, b"daemon\\n")
                time.sleep(600)
            os._exit(0)
        os.wait()
        raise SystemExit(5)
    """
    before = count_host(glovebox)
    done = glovebox("run", "-c", code)
    assert done.returncode == 5 and done.stdout in ("", "daemon\n")
    assert left_behind(glovebox, before) == {}
