"""The registry and the data directory are damaged, locked, taken away: nothing is silently lost."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon
from support.glovebox import Glovebox


def truncated(path: Path) -> None:
    os.truncate(path, 100)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def zeroed_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def prepare(start_daemon: StartDaemon) -> Daemon:
    """A daemon with one session that lives and one that sleeps, killed."""
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 'alive'; open('file', 'w').write('stays')", "living", limits={"pids": 23})
    client.execute("x = 'asleep'", "sleeping")
    assert client.request("session.hibernate", session="sleeping")["state"] == "asleep"
    daemon.kill()
    # Records that are only in the log would repair the database, so the database itself must be damaged.
    with contextlib.closing(sqlite3.connect(daemon.data / "registry.db")) as registry:
        registry.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in ("-wal", "-shm"):
        (daemon.data / f"registry.db{suffix}").unlink(missing_ok=True)
    return daemon


@pytest.mark.parametrize("damage", [truncated, emptied, zeroed_page, garbage], ids=lambda value: value.__name__)
def test_l18_a_damaged_registry_is_put_aside_and_its_sessions_are_found_again(
    start_daemon: StartDaemon, damage: Callable[[Path], None]
) -> None:
    daemon = prepare(start_daemon)
    damage(daemon.data / "registry.db")
    client = daemon.start().client()
    assert "damaged" in daemon.words() and list(daemon.data.glob("registry.db.damaged-*")), daemon.words()
    sessions = {session["name"]: session for session in client.request("session.list")["sessions"]}
    assert sorted(sessions) == ["living", "sleeping"] and sessions["living"]["limits"]["pids"] == 23
    assert client.execute("(x, open('file').read())", "living")["result"] == {"text/plain": "('alive', 'stays')"}
    assert client.execute("x", "sleeping")["result"] == {"text/plain": "'asleep'"}
    client.request("session.remove", session="living")
    daemon.kill()
    names = [session["name"] for session in daemon.start().client().request("session.list")["sessions"]]
    assert names == ["sleeping"]


def test_a_session_that_cannot_be_entered_again_ends_the_start(start_daemon: StartDaemon) -> None:
    """Without its session the daemon would let go of the kernel: the variables would be lost."""
    daemon = start_daemon()
    client = daemon.client()
    for number in range(8):
        client.request("session.create", session=f"s{number}")
    client.execute("x = 'alive'", "living")
    daemon.kill()
    for suffix in ("", "-wal", "-shm"):
        (daemon.data / f"registry.db{suffix}").unlink(missing_ok=True)

    def bound() -> None:
        """The new registry has room for some of the sessions."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (96 << 10, resource.RLIM_INFINITY))

    process = daemon.launch(bound)
    wait_for("the daemon to serve or to refuse", daemon._serves_or_died)
    assert process.poll() == 125 and "cannot add the session" in daemon.words(), daemon.words()
    client = daemon.start().client()
    assert len(client.request("session.list")["sessions"]) == 9
    assert client.execute("x", "living")["result"] == {"text/plain": "'alive'"}


def test_l18_a_registry_of_a_newer_version_is_not_touched(start_daemon: StartDaemon) -> None:
    daemon = prepare(start_daemon)
    path = daemon.data / "registry.db"
    good = path.read_bytes()
    newer = good[:60] + (99).to_bytes(4, "big") + good[64:]
    path.write_bytes(newer)
    assert daemon.launch().wait(60) != 0
    assert "newer" in daemon.words() and path.read_bytes() == newer
    path.write_bytes(good)
    assert daemon.start().client().execute("x", "living")["result"] == {"text/plain": "'alive'"}


def test_l18_a_registry_that_another_process_locks_is_an_error_and_not_a_loss(start_daemon: StartDaemon) -> None:
    daemon = prepare(start_daemon)
    with contextlib.closing(sqlite3.connect(daemon.data / "registry.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert daemon.launch().wait(90) != 0
        assert "lock" in daemon.words(), daemon.words()
        other.execute("ROLLBACK")
    assert daemon.start().client().execute("x", "living")["result"] == {"text/plain": "'alive'"}


def refusal(client: Client, op: str, **fields: object) -> str:
    with pytest.raises(DaemonError) as caught:
        client.request(op, **fields)
    return caught.value.message


def test_l21_a_removed_state_directory_is_reported_clearly(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("x = 1", "s")
    moved = daemon.data / "moved"
    (daemon.data / "state").rename(moved)
    assert "state" in refusal(client, "execute", session="new", code="1")
    assert client.execute("x", "s")["result"] == {"text/plain": "1"}  # a living session does not need it
    assert not (daemon.data / "state").exists()  # none was made in its place
    moved.rename(daemon.data / "state")
    assert client.execute("6 * 7", "new")["result"] == {"text/plain": "42"}


def test_l21_a_removed_sessions_directory_is_reported_clearly(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.request("session.create", session="s")
    moved = daemon.data / "moved"
    (daemon.data / "sessions").rename(moved)
    assert "sessions" in refusal(client, "session.create", session="new")
    assert refusal(client, "execute", session="s", code="1")
    assert refusal(client, "file.list", session="s", path=".")
    moved.rename(daemon.data / "sessions")
    assert client.execute("6 * 7", "s")["result"] == {"text/plain": "42"}
    assert client.execute("6 * 7", "new")["result"] == {"text/plain": "42"}


@pytest.mark.parametrize("name", ["state", "sessions"])
@pytest.mark.parametrize("kind", ["fifo", "file", "dangling"])
def test_anything_else_in_place_of_a_directory_ends_the_start(start_daemon: StartDaemon, name: str, kind: str) -> None:
    """The daemon would serve without its sessions, and end their kernels."""
    daemon = start_daemon()
    daemon.client().execute("x = 'alive'", "living")
    daemon.kill()
    path = daemon.data / name
    moved = path.rename(daemon.data / "moved")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "file":
        path.touch()
    else:
        path.symlink_to("nowhere")
    process = daemon.launch()
    wait_for("the daemon to serve or to refuse", daemon._serves_or_died, 15)
    assert process.poll() == 125 and str(path) in daemon.words(), daemon.words()
    path.unlink()
    moved.rename(path)
    assert daemon.start().client().execute("x", "living")["result"] == {"text/plain": "'alive'"}


def test_a_journal_that_cannot_be_opened_is_not_a_session_that_has_not_run(start_daemon: StartDaemon) -> None:
    """Its variables are asleep if there is a file of them, else lost."""
    daemon = prepare(start_daemon)
    moved = {path: path.rename(f"{path}.was") for path in daemon.data.glob("state/*/journal")}
    for path in moved:
        path.touch()
    client = daemon.start().client()
    states = {one["name"]: one["state"] for one in client.request("session.list")["sessions"]}
    assert states == {"living": "lost", "sleeping": "asleep"} and "cannot open the journal" in daemon.words()
    daemon.kill()
    for path, was in moved.items():
        path.unlink()
        was.rename(path)
    assert daemon.start().client().execute("x", "sleeping")["result"] == {"text/plain": "'asleep'"}


def test_a_damaged_id_of_the_data_directory_is_mended(start_daemon: StartDaemon) -> None:
    """Boxes are known by it: with another one, the next daemon would take none of those that are left for its own."""
    daemon = start_daemon()
    place = daemon.data / "id"
    whole = place.read_bytes()
    for at in (3, 20, len(whole) // 2 - 1, len(whole) // 2 + 1, len(whole) - 2):
        daemon.terminate()
        damaged = bytearray(whole)
        damaged[at] ^= 1
        place.write_bytes(damaged)
        daemon.start()
        assert place.read_bytes() == whole, at
    daemon.terminate()
    place.write_bytes(whole.split(b"\n")[0].rpartition(b" ")[0] + b"\n")  # as older versions wrote it
    daemon.start()
    assert place.read_bytes() == whole


SERVES = ""
FIFOS = {
    ".glovebox-private": SERVES,
    "id": SERVES,
    "id id.new": "an id: No such device",
    "keys": "keys is not a file",
    "registry.db": "registry.db is not a file: move it away",
    "registry.db-wal": "registry.db-wal is not a file: move it away",
    "registry.db-shm": "registry.db-shm is not a file: move it away",
    "registry.db-journal": "registry.db-journal is not a file: move it away",
    "registry.lock": SERVES,
    "reserve": SERVES,
    "vault.sock.lock": SERVES,
    "audit.log": SERVES,
    "state/*/session.json": SERVES,
    "state/*/journal/events": SERVES,
    "state/*/journal/inbox": SERVES,
    "state/*/journal/out.0": SERVES,
    "state/*/kernel/sleep": SERVES,
    "state/*/waiting/*": SERVES,
}


def put_fifos(data: Path, names: str) -> dict[Path, Path | None]:
    """In the place of these files; where the files are now."""
    moved: dict[Path, Path | None] = {}
    for name in names.split():
        for path in list(data.glob(name)) or [data / name]:
            moved[path] = path.rename(f"{path}.was") if path.exists() else None
            os.mkfifo(path)
    return moved


@pytest.mark.parametrize("names", FIFOS)
def test_a_fifo_in_the_place_of_a_file_holds_up_no_start(start_daemon: StartDaemon, names: str) -> None:
    """Opening one waits for the other end, unless told otherwise."""
    daemon = start_daemon("--port", "0", "--new-key", "ann")
    daemon.options = daemon.options[:-2]
    client = daemon.client()
    client.execute("x = 'alive'", "living")
    client.execute("x = 'asleep'", "sleeping")
    assert client.request("session.hibernate", session="sleeping")["state"] == "asleep"
    for _ in range(2):  # they wait while the kernel is made
        client.request("execute", session="busy", code="import time; time.sleep(1)", detach=True)
    daemon.kill()
    moved = put_fifos(daemon.data, names)
    process = daemon.launch()
    try:
        wait_for("the daemon to serve or to refuse", daemon._serves_or_died, 15)
    except AssertionError:
        process.kill()
        raise
    if FIFOS[names]:
        assert process.poll() is not None and FIFOS[names] in daemon.words(), daemon.words()
    else:
        client = daemon.client(timeout=15)
        assert client.request("session.list")["ok"]
        for name in ("living", "sleeping", "busy"):
            with contextlib.suppress(DaemonError):  # it may be lost; no answer hangs
                client.request("session.log", session=name)
                client.execute("x", name)
        daemon.kill()
    for path, was in moved.items():
        if was:
            was.rename(path)
        elif path.is_fifo():
            path.unlink()
    sessions = daemon.start().client().request("session.list")["sessions"]
    assert sorted(session["name"] for session in sessions) == ["busy", "living", "sleeping"]


def test_a_fifo_in_the_place_of_the_log_holds_up_no_start(root_glovebox: Glovebox) -> None:
    os.mkfifo(root_glovebox.place.data / "daemon.log")
    refused = root_glovebox("serve", "--background", timeout=30)
    assert refused.returncode != 0 and "opening the log" in refused.stderr, refused


def test_a_fifo_beside_the_files_of_runs_holds_up_no_list_of_them(root_glovebox: Glovebox) -> None:
    runs = root_glovebox.place.data / "runs"
    runs.mkdir(0o700, parents=True, exist_ok=True)
    os.mkfifo(runs / ("a" * 26))
    assert "no daemon" in root_glovebox("ps", timeout=30).stderr


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["directory", "device", "unreadable"])
def test_anything_else_in_place_of_a_registry_file_ends_the_start(
    start_daemon: StartDaemon, kind: str, suffix: str
) -> None:
    """SQLite takes some of it for an empty file: the daemon would serve without its sessions, and end their kernels."""
    daemon = start_daemon()
    daemon.client().execute("x = 'alive'", "living")
    daemon.kill()
    path = daemon.data / f"registry.db{suffix}"
    was = path.rename(f"{path}.was") if path.exists() else None

    def cover() -> None:
        """For the daemon alone. This file's mode is that of a plain one, and reading it is an error of input."""
        libc = ctypes.CDLL(None, use_errno=True)
        path.touch()
        assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 0x44000, None) == 0
        assert libc.mount(b"/proc/self/mem", bytes(path), None, 0x1000, None) == 0

    if kind == "directory":
        path.mkdir()
    elif kind == "device":
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, which has no end
    process = daemon.launch(cover if kind == "unreadable" else None)
    wait_for("the daemon to serve or to refuse", daemon._serves_or_died, 15)
    assert process.poll() == 125, daemon.words()
    expected = f"registry.db{suffix}, a file of the registry" if kind == "unreadable" else "is not a file: move it away"
    assert expected in daemon.words(), daemon.words()
    path.rmdir() if kind == "directory" else path.unlink()
    if was:
        was.rename(path)
    assert daemon.start().client().execute("x", "living")["result"] == {"text/plain": "'alive'"}
