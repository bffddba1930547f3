"""A power cut after the answer: what was acknowledged as durable was given to the disk before.

The power is not cut here. What the daemon asks of the kernel is looked at instead: whether the calls that put a file
and its name on the disk come before the answer, and in which order."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import DaemonError
from support.daemon import Daemon
from support.daemons import StartDaemon
from support.inject import FDATASYNC, FSYNC, RENAMEAT, Inject

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="optional: knows the calls of x86-64 only")


@pytest.fixture
def watched(start_daemon: StartDaemon) -> Iterator[tuple[Inject, Daemon]]:
    daemon = start_daemon(start=False)
    injected = Inject(daemon.glovebox.place.path / "control")
    daemon.wrapper = injected.wrapper
    yield injected, daemon.start()
    injected.disarm()


def test_l19_a_session_is_on_the_disk_before_its_creation_or_removal_is_answered(
    watched: tuple[Inject, Daemon],
) -> None:
    injected, daemon = watched
    client = daemon.client()
    client.request("session.create", session="first")
    for op in ("session.create", "session.remove"):
        injected.arm("glovebox")
        client.request(op, session="s")  # whatever is counted came before its answer, or right after
        calls = injected.calls()
        injected.disarm()
        assert {FSYNC, FDATASYNC} & set(calls), (op, calls)


def test_l19_a_file_that_is_to_be_durable_is_on_the_disk_with_its_name_before_the_answer(
    watched: tuple[Inject, Daemon],
) -> None:
    injected, daemon = watched
    client = daemon.client()
    client.request("session.create", session="s")
    workspace = Path(client.request("session.show", session="s")["workspace"])
    for name in ("glovebox", "glovebox-job"):
        injected.arm(name)
        assert client.request("file.write", b"quick", session="s", path="quick")["size"] == 5
        assert not {FSYNC, FDATASYNC} & set(injected.calls())  # not requested, and it costs
    injected.arm("glovebox-job")
    assert client.request("file.write", b"slow", session="s", path="a/b/file", sync=True)["size"] == 4
    order = [call for call in injected.calls() if call in (FSYNC, RENAMEAT)]
    injected.disarm()
    assert order == [FSYNC, RENAMEAT, FSYNC, FSYNC, FSYNC], order  # the file; its name; a/b, a, the workspace
    assert (workspace / "a/b/file").read_bytes() == b"slow"


def test_l19_a_disk_that_fails_is_reported(watched: tuple[Inject, Daemon]) -> None:
    injected, daemon = watched
    client = daemon.client()
    client.request("session.create", session="s")
    workspace = Path(client.request("session.show", session="s")["workspace"])
    injected.arm("glovebox-job")
    client.request("file.write", b"x", session="s", path="file", sync=True)
    place = 1 + injected.calls().index(FSYNC)
    injected.arm("glovebox-job", 1, place, 5)  # EIO
    with pytest.raises(DaemonError):
        client.request("file.write", b"lost", session="s", path="file", sync=True)
    assert injected.failed() == FSYNC
    injected.disarm()
    assert (workspace / "file").read_bytes() == b"x" and [path.name for path in workspace.glob(".*")] == []


def flip_byte(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def test_a_flipped_bit_in_a_journal_is_reported_and_costs_only_its_run(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    runs = [
        client.execute(f"x = {number}\nprint('out-{number}' * 30)\n'result-{number}' * 30", "s") for number in range(3)
    ]
    journal = daemon.data / "state" / client.request("session.show", session="s")["id"] / "journal"
    daemon.terminate()
    events, out = (journal / "events").read_bytes(), (journal / "out.0").read_bytes()
    flip_byte(journal / "events", events.index(b"result-1" * 10) + 40)
    flip_byte(journal / "out.0", out.index(b"out-2" * 10) + 40)
    client = daemon.start().client()
    shown = client.request("run.show", session="s", run=runs[0]["run_id"])
    assert (shown["stdout"], shown["result"]) == (runs[0]["stdout"], runs[0]["result"])
    for number, what in ((1, "result"), (2, "output")):
        for operation in ("run.show", "run.read"):
            with pytest.raises(DaemonError) as caught:
                client.request(operation, session="s", run=runs[number]["run_id"])
            assert caught.value.code == "damaged" and what in caught.value.message, caught.value
    assert client.execute("x", "s")["result"] == {"text/plain": "2"}


def test_a_damaged_record_in_the_middle_costs_no_later_run(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    runs = [client.execute(f"x = {number}\nprint({number})\nx", "s") for number in range(3)]
    journal = daemon.data / "state" / client.request("session.show", session="s")["id"] / "journal"
    daemon.terminate()
    events = (journal / "events").read_bytes()
    flip_byte(journal / "events", events.index(runs[1]["run_id"].encode()) + 3)  # in its request
    client = daemon.start().client()
    for number in (0, 2):
        shown = client.request("run.show", session="s", run=runs[number]["run_id"])
        assert (shown["stdout"], shown["result"]) == (runs[number]["stdout"], runs[number]["result"])
    with pytest.raises(DaemonError) as caught:
        client.request("run.show", session="s", run=runs[1]["run_id"])
    assert caught.value.code in ("not_found", "damaged")
    assert "damaged" in daemon.words()
    assert client.execute("x", "s")["result"] == {"text/plain": "2"}
