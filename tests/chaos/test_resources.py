"""Disks that are full, descriptors that run out, output without end."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, cpu_seconds, memory_of, wait_for
from support.daemons import StartDaemon

MIB = 1 << 20


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """A file system of that size at this place, in the tests' own mount namespace's view: mounted and unmounted."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "small", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> Path:
    """A file that takes all the room there is."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x")
    return path


def test_l09_a_full_workspace_is_the_codes_error_and_the_uploads_and_no_others(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    client = daemon.client()
    workspace = daemon.glovebox.place.make("small", 0o755)
    with small_disk(workspace, "4m"):
        client.execute("x = 1", "full", workspace=str(workspace), operator=True)
        client.execute("y = 1", "other")
        done = client.execute("open('big', 'wb').write(bytes(8 << 20))", "full")
        assert (done["status"], done["error"]["name"]) == ("error", "OSError") and "space" in done["error"]["value"], (
            done
        )
        client.execute("import os; os.remove('big')", "full")
        with pytest.raises(DaemonError) as caught:
            client.write_file("full", "upload", bytes(8 * MIB))
        assert caught.value.code == "no_space", caught.value
        assert [name for name in os.listdir(workspace) if name != "artifacts"] == []
        assert client.write_file("full", "upload", b"fits")["size"] == 4
        assert client.execute("x", "full")["result"] == {"text/plain": "1"}
        assert client.execute("open('f', 'wb').write(bytes(8 << 20)); y", "other")["result"] == {"text/plain": "1"}
        client.request("session.remove", session="full")
        wait_for("the box to be gone", lambda: len(daemon.kernels()) <= 2)


def test_l10_a_full_state_disk_stops_new_sessions_and_no_running_one(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(start=False)
    daemon.socket = str(daemon.glovebox.place.path / "d.sock")
    with small_disk(daemon.data, "8m"):
        daemon.data.chmod(0o700)
        daemon.start()
        client = daemon.client()
        client.execute("x = 1", "living")
        filler = fill(daemon.data / "filler")
        with pytest.raises(DaemonError) as caught:
            client.execute("1", "new")
        assert caught.value.code == "no_space", caught.value
        done = client.execute("print('y' * 100000)\nx", "living")
        assert (done["status"], done["result"]) == ("ok", {"text/plain": "1"}), done
        assert len(done["stdout"]) + done["stdout_cut_bytes"] == 100001, done["stdout_cut_bytes"]
        filler.unlink()
        assert client.execute("6 * 7", "new")["result"] == {"text/plain": "42"}
        fill(daemon.data / "filler")
        client.request("session.remove", session="living")
        (daemon.data / "filler").unlink()
        daemon.kill()
        client = daemon.start().client()
        assert [session["name"] for session in client.request("session.list")["sessions"]] == ["new"]
        daemon.stop()


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (192, 192))


def test_l11_out_of_descriptors_some_are_refused_nothing_spins_and_it_recovers(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(start=False)
    daemon.start(few_descriptors)
    first = daemon.client()
    first.execute("x = 1", "s")
    crowd: list[Client] = []
    for _ in range(300):
        with contextlib.suppress(OSError):
            crowd.append(Client(daemon.socket, 5))
    # Accepted connections are served; the others were closed.
    served = 0
    for member in crowd:
        with contextlib.suppress(OSError):
            served += member.request("ping")["ok"]
    assert 0 < served < 300
    with contextlib.suppress(DaemonError, OSError):
        first.execute("1", "another")  # has no descriptors for a box: refused or served, never stuck
    assert first.execute("x", "s")["result"] == {"text/plain": "1"}
    before = cpu_seconds(daemon.pid)
    time.sleep(1)  # the measure itself: a daemon that spins burns all of it
    assert cpu_seconds(daemon.pid) - before < 0.5
    for member in crowd:
        member.close()
    after = wait_for("descriptors", lambda: works(daemon))
    assert after.execute("6 * 7", "another")["result"] == {"text/plain": "42"}
    # What it had no descriptors to clear up, the next one clears up.
    daemon.kill()
    assert daemon.start().client().execute("x", "s")["result"] == {"text/plain": "1"}


@pytest.mark.parametrize("limit", [24, 40, 56, 64, 80, 100, 128, 200])
def test_l11_a_small_limit_of_open_files_is_named_for_what_it_is(start_daemon: StartDaemon, limit: int) -> None:
    """With few descriptors a run is done or refused, and the refusal names the limit, never an invalid argument."""
    daemon = start_daemon(start=False)
    daemon.start(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    client = daemon.client()
    answered = []
    for number in range(3):
        try:
            assert client.execute("6 * 7", f"s{number}")["result"] == {"text/plain": "42"}
        except DaemonError as error:
            answered.append(error.message)
    for message in answered:
        assert "open files" in message or "descriptors" in message, message
    assert "Invalid argument" not in daemon.words() + " ".join(answered)
    assert limit < 128 or not answered, answered
    client.close()


@pytest.mark.parametrize("who", ["root", "user"])
def test_a_start_with_too_few_open_files_for_its_sessions_is_refused_and_loses_none(
    start_daemon: StartDaemon, who: str
) -> None:
    """Also with less than the last daemon had: what it cannot open is not lost, and stays in the vault."""
    daemon = start_daemon(who=who)
    client = daemon.client()
    names = [f"s{number}" for number in range(6)]
    for name in names:
        client.execute(f"x = {name!r}; seen = []; import time", name)
    assert client.request("session.hibernate", session="s0")["state"] == "asleep"
    client.request("execute", session="s1", code="time.sleep(600)", detach=True, timeout_ms=3_600_000)
    waiting = client.request("execute", session="s1", code="seen.append(1); seen", detach=True)["run_id"]
    daemon.kill()
    refused = 0
    for limit in [*range(16, 200, 12), 0]:
        daemon.launch(partial(resource.setrlimit, resource.RLIMIT_NOFILE, (limit, limit)) if limit else None)
        wait_for("it to serve, or to refuse", daemon._serves_or_died)
        assert daemon.process is not None
        if daemon.process.poll() is None:
            daemon.terminate()
        else:
            assert daemon.process.returncode == 125, daemon.words()
            refused += 1
    assert 0 < refused < 16, daemon.words()
    client = daemon.start().client()
    client.request("session.interrupt", session="s1")
    assert wait_for("the run", lambda: result_of(client, "s1", waiting)) == {"text/plain": "[1]"}
    for name in names:
        done = client.execute("x", name)
        assert done["result"] == {"text/plain": repr(name)} and "variables_lost" not in done, (name, done)


def result_of(client: Client, session: str, run: str) -> object:
    return client.request("run.show", session=session, run=run).get("result")


@pytest.mark.parametrize("limit", [64, 128, 512, 1024])
def test_a_program_runs_in_a_box_of_few_open_files(start_daemon: StartDaemon, limit: int) -> None:
    """It is forked from the nursery and inherits the limit; its channel moves to a high number, but not too high."""
    daemon = start_daemon("--pool", "1", start=False)
    daemon.start(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    done = daemon.cli("run", "-c", "print(6 * 7)")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "Invalid argument" not in daemon.words() + done.stderr


PIN = """
import resource, socket
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
file, pairs = open("/dev/null"), []
try:
    while True:
        pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        pairs[-1][0].setblocking(False)
        try:
            while True:
                socket.send_fds(pairs[-1][0], [b"x"], [file.fileno()] * 253)
        except BlockingIOError:
            pass
except OSError as error:
    print(error.errno, flush=True)
"""


@pytest.mark.parametrize("limit", [1024, 4096])
def test_descriptors_that_a_box_has_in_flight_stop_no_other(start_daemon: StartDaemon, limit: int) -> None:
    """Linux counts them by user, and without root all boxes and the daemon are one."""
    daemon = start_daemon("--pool", "1", who="user", start=False)
    daemon.start(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    client = daemon.client()
    assert client.execute(PIN, "greedy")["stdout"] == f"{errno.ETOOMANYREFS}\n"
    assert client.execute("6 * 7", "modest")["result"] == {"text/plain": "42"}
    assert daemon.cli("run", "-c", "print(6 * 7)").stdout == "42\n"
    assert "references" not in daemon.words()


def works(daemon: Daemon) -> Client | None:
    try:
        client = daemon.client(5)
        return client if client.request("ping")["ok"] else None
    except OSError:
        return None


def test_l17_ten_floods_at_once_leave_the_daemon_small_and_all_others_served(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--cpus", "0.5")
    client = daemon.client()
    code = "import os\nblock = b'x' * 65536\nfor _ in range(512): os.write(1, block); os.write(2, block)"
    for i in range(10):
        client.execute("pass", f"flood{i}")
    before = memory_of(daemon.pid)
    numbers = [client.begin("execute", session=f"flood{i}", code=code) for i in range(10)]
    other = daemon.client()
    assert other.execute("6 * 7", "calm")["result"] == {"text/plain": "42"}
    for number in numbers:
        done = client.finish(number)
        assert done["status"] == "ok", done
        for stream in ("stdout", "stderr"):
            assert len(done[stream]) + done[f"{stream}_cut_bytes"] == 32 * MIB
    assert memory_of(daemon.pid, "VmHWM") < before + 96 * MIB


def full_pipe() -> tuple[int, int]:
    """Reading end and writing end; there is no room for one byte more."""
    return os.pipe()


def full_socket() -> tuple[int, int]:
    """As systemd gives to its services, with a journal that has stopped reading."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def stuff(fd: int) -> None:
    os.set_blocking(fd, False)
    for block in (bytes(65536), b"x"):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(fd, block)
    os.set_blocking(fd, True)


def read_all(fd: int) -> bytes:
    os.set_blocking(fd, False)
    read = b""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(fd, 65536):
            read += piece
    return read


@pytest.mark.parametrize("target", [full_pipe, full_socket], ids=lambda value: value.__name__)
def test_l31_a_log_that_is_not_read_stops_nothing_and_lost_lines_are_counted(
    start_daemon: StartDaemon, target: Callable[[], tuple[int, int]]
) -> None:
    daemon = start_daemon(start=False)
    reader, daemon.output = target()
    try:
        stuff(daemon.output)
        client = daemon.start().client()

        def lose_a_maker() -> None:
            """Worth a line in the log."""
            maker = daemon.maker()
            os.kill(maker, signal.SIGKILL)
            wait_for("another maker", lambda: daemon.maker() != maker)

        for _ in range(3):
            lose_a_maker()
        assert client.execute("6 * 7", "s")["result"] == {"text/plain": "42"}
        dropped = client.request("status")["daemon"]["log_dropped"]
        assert dropped == 5  # its engine, that it serves, and three makers
        assert b"maker" not in read_all(reader)
        lose_a_maker()
        wait_for("the line", lambda: client.request("ping"))  # the daemon is past it
        log = read_all(reader).decode()
        assert f"{dropped} lines of this log were dropped" in log and "the maker has died" in log, log
        assert client.request("status")["daemon"]["log_dropped"] == dropped
    finally:
        os.close(reader)
        os.close(daemon.output)
