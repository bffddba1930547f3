"""A disk that is full: what was acknowledged is written down, the daemon starts, and new runs are refused in words."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon

MIB = 1 << 20
SESSIONS = 6
RUNS = 18


@contextlib.contextmanager
def small_disk(path: Path, kind: str, mib: int) -> Iterator[None]:
    image = path.parent / "small.img"
    if kind == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "small", str(path)]
    else:
        with image.open("wb") as file:
            file.truncate(mib * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        mount = ["mount", "-o", "loop", str(image), str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("optional: no loop devices here")
    try:
        path.chmod(0o700)
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
        image.unlink(missing_ok=True)


def fill(path: Path) -> Path:
    """A file that takes all the room there is, to the last byte."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


@pytest.fixture(params=["tmpfs", "ext4"])
def daemon(request: pytest.FixtureRequest, start_daemon: StartDaemon) -> Iterator[Daemon]:
    made = start_daemon("--reserve-disk", "0", start=False)
    made.socket = str(made.glovebox.place.path / "d.sock")
    with small_disk(made.data, request.param, 48):
        yield made.start()
        made.stop()


def storage(client: Client) -> dict:
    return client.request("status")["storage"]


def submit_until_refused(client: Client) -> tuple[list[tuple[str, str]], list[str]]:
    """Runs that were acknowledged, as (session, run), and the codes of those that were not."""
    known, refused = [], []
    for number in range(RUNS):
        name = f"s{number % SESSIONS}"
        try:
            answer = client.request("execute", session=name, code=f"x = {number}\nx", detach=True)
            known.append((name, str(answer["run_id"])))
        except DaemonError as error:
            refused.append(error.code)
    return known, refused


def result_of(client: Client, name: str, run: str) -> dict | None:
    answer = client.request("run.show", session=name, run=run)
    return answer if answer["status"] not in ("running", "waiting") else None


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_acknowledged_runs_are_known_after_a_full_disk_and_a_restart(daemon: Daemon, end: str) -> None:
    client = daemon.client()
    for number in range(SESSIONS):
        client.execute("import time; y = 1", f"s{number}")
    slow = [
        (f"s{number}", str(client.request("execute", session=f"s{number}", code=code, detach=True)["run_id"]))
        for number, code in enumerate(["time.sleep(1); 'slow'", "time.sleep(1); print('z' * 3_000_000); 'large'"])
    ]
    fill(daemon.data / "filler")
    known, refused = submit_until_refused(client)
    assert set(refused) <= {"no_space"}, refused
    known += slow
    time.sleep(0.3)
    getattr(daemon, end)()
    client = daemon.start().client()  # the disk is still full
    assert "is full" in daemon.words() and storage(client)["reserve_in_use"] is True
    with pytest.raises(DaemonError) as caught:
        client.execute("1", "s0")
    assert caught.value.code == "no_space" and "reserve" in caught.value.message
    assert "full" in daemon.cli("status").stdout
    for name, run in known:
        done = wait_for(f"run {run}", lambda name=name, run=run: result_of(client, name, run))
        assert done["status"] == "ok", done
    assert len(known) >= 2
    (daemon.data / "filler").unlink()
    for number in range(SESSIONS):
        done = client.execute("y", f"s{number}")
        assert done["result"] == {"text/plain": "1"} and not done.get("variables_lost"), done
    assert storage(client)["reserve_in_use"] is False and storage(client)["reserve_bytes"] >= MIB


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_an_answer_that_the_disk_had_no_room_for_costs_no_variable_after_restarts(daemon: Daemon, end: str) -> None:
    """The inbox has its beginning; the rest was in memory. The next answer must not be taken for that rest."""
    client = daemon.client()
    runs = {}
    for number in range(SESSIONS):
        name = f"s{number}"
        client.execute(f"import time; y = {number}", name)
        code = "time.sleep(1)\nfor i in range(4): display('d' * 300_000)\n'r' * 700_000"
        runs[name] = str(client.request("execute", session=name, code=code, detach=True)["run_id"])
    fill(daemon.data / "filler")
    for name, run in runs.items():
        wait_for(f"run {run}", lambda name=name, run=run: result_of(client, name, run))
    for _ in range(3):
        getattr(daemon, end)()
        client = daemon.start().client()
    shortened = 0
    for name, run in runs.items():
        shown = client.request("run.show", session=name, run=run)
        assert shown["status"] == "ok" and shown["error"] is None, shown
        shortened += shown["result"] is None
        assert (shown["result"] is None) == ("the disk was full" in shown.get("warning", "")), shown
    assert shortened > 0
    (daemon.data / "filler").unlink()
    for number in range(SESSIONS):
        done = wait_for("space", lambda number=number: execute_if_room(client, f"s{number}"))
        assert done["result"] == {"text/plain": str(number)} and not done.get("variables_lost"), done


def execute_if_room(client: Client, name: str) -> dict | None:
    try:
        return client.execute("y", name)
    except DaemonError as error:
        assert error.code == "no_space", error
        return None


def test_a_session_is_removed_on_a_full_disk_and_stays_removed(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("x = 1", "gone")
    client.execute("x = 1", "kept")
    fill(daemon.data / "filler")
    client.request("session.remove", session="gone")
    daemon.kill()
    client = daemon.start().client()
    assert [session["name"] for session in client.request("session.list")["sessions"]] == ["kept"]
    assert client.request("session.show", session="kept")["state"] == "idle"


def test_a_run_that_fills_the_disk_itself_ends_with_its_result(daemon: Daemon) -> None:
    client = daemon.client()
    code = (
        "import contextlib\nf = open('big', 'wb', 0)\n"
        "for size in (1 << 20, 1 << 12, 1):\n"
        "    with contextlib.suppress(OSError):\n        while True: f.write(bytes(size))\n"
        "print('full'); 'ended'"
    )
    done = client.execute(code, "filler")
    assert (done["status"], done["result"]) == ("ok", {"text/plain": "'ended'"}), done
    daemon.kill()
    client = daemon.start().client()
    shown = client.request("run.show", session="filler", run=done["run_id"])
    assert shown["status"] == "ok", shown
    client.request("session.remove", session="filler")
    wait_for("space", lambda: storage(client)["free_bytes"] > 8 * MIB)
    assert client.execute("6 * 7", "next")["result"] == {"text/plain": "42"}


def test_hibernation_on_a_full_disk_is_refused_and_nothing_is_lost(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("x = 'x' * 5_000_000", "awake")
    filler = fill(daemon.data / "filler")
    for depth in ("sleep",):
        with pytest.raises(DaemonError) as caught:
            client.request("session.hibernate", session="awake", depth=depth)
        assert caught.value.code == "no_space" and "stays awake" in caught.value.message, caught.value
    assert client.request("session.show", session="awake")["state"] == "idle"
    filler.unlink()
    assert client.execute("len(x)", "awake")["result"] == {"text/plain": "5000000"}
    assert client.request("session.hibernate", session="awake")["state"] == "asleep"


def test_a_session_whose_directory_is_gone_is_taken_over_on_a_full_disk(daemon: Daemon) -> None:
    client = daemon.client()
    client.execute("y = 41", "kept")
    (kept,) = client.request("session.list")["sessions"]
    daemon.kill()
    shutil.rmtree(daemon.data / "sessions" / kept["id"])
    fill(daemon.data / "filler")
    client = daemon.start().client()
    assert [one["name"] for one in client.request("session.list")["sessions"]] == ["kept"], daemon.words()
    (daemon.data / "filler").unlink()
    wait_for("the kernel to answer", lambda: execute_if_room(client, "kept"))
    assert client.execute("y + 1", "kept")["result"] == {"text/plain": "42"}


def test_the_reserve_is_there_from_the_start(daemon: Daemon) -> None:
    state = storage(daemon.client())
    assert state["reserve_in_use"] is False and state["reserve_bytes"] >= MIB
    assert os.stat(daemon.data / "reserve").st_mode & 0o777 == 0o600
