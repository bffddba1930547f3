"""The disk limit of a session: bytes and files of its whole workspace; and the reserve that the host keeps."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon
from support.glovebox import slowness

MIB = 1 << 20

FILL = """
import time
for n in range(1000):
    with open(f"part{n}", "wb") as file:
        file.write(b"x" * (1 << 20))
    time.sleep(0.01)
"""


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "small", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@contextlib.contextmanager
def real_disk(path: Path, size: str) -> Iterator[None]:
    """For a process, Linux counts what it writes to a block device, and not to memory."""
    image = path.parent / "disk.img"
    with image.open("wb") as file:
        file.truncate(int(size.removesuffix("m")) * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(path)], check=True)
    try:
        path.chmod(0o700)
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def used(path: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


def workspace(daemon: Daemon, name: str) -> Path:
    return Path(daemon.client().request("session.show", session=name)["workspace"])


@pytest.mark.parametrize("who", ["root", "user"])
def test_a_run_that_fills_its_workspace_is_ended_and_the_session_stays(start_daemon: StartDaemon, who: str) -> None:
    daemon = start_daemon(who=who)
    client = daemon.client()
    client.request("session.create", session="s", limits={"disk": "32m"})
    client.execute("x = 41", "s")
    began = time.monotonic()
    done = client.execute(FILL, "s")
    took = time.monotonic() - began
    assert (done["status"], done["error"]["name"], done["exit_code"]) == ("disk", "disk_limit", 153), done
    assert "disk limit 32 MiB reached" in done["error"]["message"] and "--disk" in done["error"]["message"], done
    assert took < 8 * slowness() and used(workspace(daemon, "s")) < 400 * MIB
    still = client.execute("x + 1", "s")
    assert (still["status"], still["result"]) == ("ok", {"text/plain": "42"}), "variables are kept"
    assert "disk limit 32 MiB reached" in still["warning"], "and the run says that it is still above"
    client.request("session.set", session="s", limits={"disk": "1g"})
    roomy = client.execute("1", "s")
    assert "warning" not in roomy, "a larger limit counts at once"
    client.request("session.set", session="s", limits={"disk": "32m"})
    assert "warning" in client.execute("import time; time.sleep(1)", "s"), "and so does a smaller one"
    more = client.execute(FILL.replace("part", "more"), "s")
    assert more["status"] == "disk", "what is above may not grow"
    with pytest.raises(DaemonError, match="disk limit") as caught:
        client.write_file("s", "upload", b"x" * MIB)
    assert caught.value.code == "no_space"
    removed = client.execute("import glob, os\nfor name in glob.glob('*[0-9]'): os.remove(name)", "s")
    assert removed["status"] == "ok" and "warning" not in removed, "below it again"
    assert client.execute("open('small', 'w').write('y')", "s")["status"] == "ok"
    assert client.write_file("s", "upload", b"x" * MIB)["size"] == MIB
    assert client.request("session.show", session="s")["isolation"]["disk"]["by"] in ("watched", "quota")


def test_a_file_that_is_sent_again_takes_its_space_once(start_daemon: StartDaemon) -> None:
    client = start_daemon().client()
    client.request("session.create", session="s", limits={"disk": 40 * MIB})
    for _ in range(6):
        client.request("file.write", b"x" * (16 * MIB), session="s", path="large")
    with pytest.raises(DaemonError, match="disk"):
        for number in range(3):
            client.request("file.write", b"x" * (16 * MIB), session="s", path=f"other{number}")


def test_files_removed_from_outside_make_room(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.request("session.create", session="s", limits={"disk": "8m"})
    assert client.execute(FILL, "s")["status"] == "disk"
    for entry in client.request("file.list", session="s", path=".")["entries"]:
        client.request("file.remove", session="s", path=entry["path"], recursive=True)
    done = client.execute("1", "s")
    assert done["status"] == "ok" and "warning" not in done, done


def test_small_files_holes_and_links_count_as_what_they_take(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.request("session.create", session="s", limits={"disk": "16m"})
    honest = """
import os, time
with open("hole", "wb") as file:
    file.truncate(10 << 20)
with open("data", "wb") as file:
    file.write(b"x" * (9 << 20))
for n in range(50):
    os.link("data", f"link{n}")
os.symlink("/usr", "away")
time.sleep(1.5)
"""
    done = client.execute(honest, "s")
    assert done["status"] == "ok" and "warning" not in done, done


def test_files_without_a_name_count_while_they_are_open(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.request("session.create", session="s", limits={"disk": "16m"})
    hidden = """
import os, time
held = []
for n in range(400):
    file = open("f", "wb")
    os.unlink("f")
    file.write(b"x" * (1 << 20))
    file.flush()
    held.append(file)
    time.sleep(0.02)
"""
    assert client.execute(hidden, "s")["status"] == "disk"


def test_too_many_files_end_a_run(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.request("session.create", session="s", limits={"disk_files": 2000})
    many = """
import os
for n in range(1000):
    os.mkdir(f"d{n}")
    for m in range(100):
        os.mknod(f"d{n}/{m}")
"""
    done = client.execute(many, "s", timeout_ms=50000)
    assert done["status"] == "disk" and "2000 files" in done["error"]["message"], done
    client.request("session.remove", session="s")


def test_a_process_that_a_run_left_writing_is_ended_too(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.request("session.create", session="s", limits={"disk": "16m"})
    kept = "import threading\nthreading.Thread(target=lambda: exec(code), daemon=True).start()"
    client.execute(f"code = {FILL.replace('1000', '3000')!r}\n{kept}", "s")
    wait_for("the box to be ended", lambda: client.request("session.show", session="s")["state"] == "lost", 20)
    assert client.execute("1", "s")["variables_lost"] is True


def test_below_the_reserve_no_run_writes(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--reserve-disk", "64m", start=False)
    daemon.socket = str(daemon.glovebox.place.path / "d.sock")
    with small_disk(daemon.data, "200m"):
        client = daemon.start().client()
        client.execute("x = 1", "greedy")
        client.execute("y = 2", "quiet")
        done = client.execute(FILL, "greedy")
        assert done["status"] == "disk" and "64 MiB" in done["error"]["message"], done
        assert "reserve" in done["error"]["message"]
        left = os.statvfs(daemon.data)
        assert left.f_bavail * left.f_frsize > 16 * MIB, "the reserve bounds what is written before it is noticed"
        assert client.execute("y", "quiet")["result"] == {"text/plain": "2"}, "who does not write runs on"
        for attempt in (
            lambda: client.write_file("quiet", "f", b"x"),
            lambda: client.request("session.create", session="new"),
        ):
            with pytest.raises(DaemonError, match="reserve") as caught:
                attempt()
            assert caught.value.code == "no_space", caught.value
        client.request("session.remove", session="greedy")
        wait_for("room", lambda: os.statvfs(daemon.data).f_bavail * left.f_frsize > 100 * MIB)
        assert client.write_file("quiet", "f", b"x")["size"] == 1
        daemon.stop()


def test_below_the_reserve_no_output_is_kept_but_its_beginning(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--reserve-disk", "100m", start=False)
    daemon.socket = str(daemon.glovebox.place.path / "d.sock")
    with small_disk(daemon.data, "200m"):
        client = daemon.start().client()
        client.execute("import os", "s")
        left = os.statvfs(daemon.data)
        with (daemon.data / "filler").open("wb") as filler:
            filler.write(bytes(left.f_bavail * left.f_frsize - 60 * MIB))
        wait_for("the daemon to see it", lambda: "less than the reserve" in daemon.words())
        before = os.statvfs(daemon.data).f_bavail
        done = client.execute("for _ in range(8): os.write(1, b'x' * (1 << 20))", "s")
        assert done["status"] == "ok", done
        assert len(done["stdout"]) == 64 << 10, {key: done[key] for key in done if key != "stdout"}
        assert (before - os.statvfs(daemon.data).f_bavail) * left.f_frsize < MIB
        (daemon.data / "filler").unlink()
        wait_for("room", lambda: "free on the disk again" in daemon.words())
        assert len(client.execute("_ = os.write(1, b'x' * (1 << 20))", "s")["stdout"]) == 1 << 20
        daemon.stop()


SIZE = 220 * MIB
NOISE = f"import os; x = os.urandom({SIZE})"  # a sleep file of this has its size


@pytest.mark.parametrize("room", [190, 170], ids=["before it is reached", "after it"])
def test_no_kernel_ends_for_what_the_daemon_had_it_write_below_the_reserve(
    start_daemon: StartDaemon, room: int
) -> None:
    """A sleep may take the last space above the reserve; below it none begins. Either way no variable is lost. Only who
    has written before is judged."""
    daemon = start_daemon("--reserve-disk", "180m", "--memory", "1g", start=False)
    daemon.socket = str(daemon.glovebox.place.path / "d.sock")
    with real_disk(daemon.data, "500m"):
        client = daemon.start().client()
        client.execute(NOISE + "; y = 41; open('f', 'wb').write(bytes(1 << 20))", "s")
        time.sleep(0.7 * slowness())  # it is measured: what is written from now on is more
        left = os.statvfs(daemon.data)
        with (daemon.data / "filler").open("wb") as filler:
            filler.write(bytes(left.f_bavail * left.f_frsize - room * MIB))
        try:
            client.request("session.hibernate", session="s")
        except DaemonError as error:
            assert error.code == "no_space" and "stays awake" in error.message, error
        time.sleep(1.5 * slowness())  # several measurements, each of which could end the box
        (daemon.data / "filler").unlink()
        done = client.execute("(y, len(x))", "s")
        assert done["result"] == {"text/plain": f"(41, {SIZE})"} and "variables_lost" not in done, done
        daemon.stop()


def test_a_reserve_larger_than_the_disk_is_refused(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--reserve-disk", "1000000g", start=False)
    process = daemon.launch()
    assert process.wait(60) != 0
    assert "--reserve-disk" in daemon.words()


def test_a_dead_meter_is_replaced_and_no_run_waits_for_it(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.request("session.create", session="s", limits={"disk": "8m"})
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    meters = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "glovebox-meter\n"]
    assert len(meters) == 1
    os.kill(int(meters[0]), 9)
    assert client.execute(FILL, "s")["status"] == "disk"
