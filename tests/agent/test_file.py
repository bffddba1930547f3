"""Files, watches, and the agent's manners towards a host that is slow, rude or gone."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from pathlib import Path

import pytest
from support.agent import (
    ABANDON,
    BEGIN,
    CHANGED,
    CLOSED,
    COMMIT,
    CREATED,
    DONE,
    EXITED,
    FAILED,
    GONE,
    INPUT,
    LIST,
    MKDIR,
    MOVE,
    MOVED_AWAY,
    MOVED_HERE,
    QUIT,
    READ,
    REMOVE,
    REMOVED,
    START,
    STAT,
    STREAMS,
    UNWATCH,
    WATCH,
    WRITE,
    WRITTEN,
    Agent,
    Failure,
    text,
    u32,
    u64,
)


def put(path: Path, content: bytes, mode: int = 0) -> bytes:
    """A whole file in one WRITE."""
    return u32(BEGIN | COMMIT) + text(path) + u32(mode) + text(content)


def names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def code_of(agent: Agent, kind: int, payload: bytes) -> int:
    with pytest.raises(Failure) as failure:
        agent.ask(kind, payload)
    return failure.value.code


def test_a_file_is_written_in_one_frame_and_read_back(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "file \u00e4"
    content = bytes(range(256)) * 10
    assert agent.ask(WRITE, put(path, content, 0o640)).u64() == len(content)
    assert path.read_bytes() == content and names(tmp_path) == {path.name}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    answer = agent.ask(READ, text(path) + u64(100) + u32(50))
    assert (answer.u64(), answer.bytes()) == (len(content), content[100:150])
    answer = agent.ask(READ, text(path) + u64(len(content) + 1) + u32(50))
    assert (answer.u64(), answer.bytes()) == (len(content), b"")
    agent.ask(WRITE, put(path, b"new"))
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o640, "0 keeps the mode"


def test_a_large_file_appears_whole_or_not_at_all(agent: Agent, tmp_path: Path) -> None:
    path, part = tmp_path / "large", os.urandom(1 << 19)
    path.write_bytes(b"old")
    agent.send(WRITE, 5, u32(BEGIN) + text(path) + u32(0) + text(part))
    agent.send(WRITE, 5, u32(0) + text(part))
    agent.ask(STAT, text(path) + u32(0))
    assert path.read_bytes() == b"old"
    assert agent.ask(WRITE, u32(COMMIT) + text(part), id=5).u64() == 3 * len(part)
    assert path.read_bytes() == 3 * part
    answer = agent.ask(READ, text(path) + u64(0) + u32(2**32 - 1))
    assert answer.u64() == 3 * len(part)
    most = answer.bytes()
    assert len(most) > 1_000_000 and most == (3 * part)[: len(most)], "as much as one frame holds"
    agent.send(WRITE, 6, u32(BEGIN) + text(path) + u32(0) + text(b"half"))
    agent.ask(WRITE, u32(ABANDON) + text(b""), id=6)
    assert path.read_bytes() == 3 * part and names(tmp_path) == {"large"}


def test_a_write_has_one_answer_even_when_it_fails_early(agent: Agent, tmp_path: Path) -> None:
    agent.send(WRITE, 5, u32(BEGIN) + text(tmp_path / "no/such") + u32(0) + text(b"1"))
    agent.send(WRITE, 5, u32(0) + text(b"2"))
    agent.send(WRITE, 5, u32(COMMIT) + text(b"3"))
    with pytest.raises(Failure, match="directory") as failure:
        agent.answer()
    assert failure.value.code == errno.ENOENT
    (tmp_path / "taken").mkdir()
    assert code_of(agent, WRITE, put(tmp_path / "taken", b"x")) == errno.EISDIR
    assert code_of(agent, WRITE, put(tmp_path / "taken/..", b"x")) == errno.EINVAL
    assert code_of(agent, WRITE, u32(COMMIT) + text(b"x")) == errno.EBADF
    for id in range(17):
        agent.send(WRITE, id, u32(BEGIN) + text(tmp_path / str(id)) + u32(0) + text(b"x"))
    for id in range(16):
        agent.ask(WRITE, u32(COMMIT) + text(b""), id=id)
    assert code_of(agent, WRITE, u32(COMMIT) + text(b"")) == errno.EBADF
    assert names(tmp_path) == {"taken", *(str(id) for id in range(16))}


def test_status_of_files_and_links(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    for name, follow, kind, size, target in (
        ("file", 0, stat.S_IFREG, 5, ""),
        ("link", 1, stat.S_IFREG, 5, ""),
        ("link", 0, stat.S_IFLNK, 4, "file"),
    ):
        answer = agent.ask(STAT, text(tmp_path / name) + u32(follow))
        status = os.stat(tmp_path / name, follow_symlinks=bool(follow))
        assert (stat.S_IFMT(answer.u32()), answer.u64(), answer.u64()) == (kind, size, status.st_mtime_ns)
        assert (answer.u32(), answer.u32(), answer.text()) == (status.st_uid, status.st_gid, target)
    assert code_of(agent, STAT, text(tmp_path / "none") + u32(0)) == errno.ENOENT
    assert code_of(agent, STAT, text("relative") + u32(0)) == errno.EINVAL


def test_a_directory_is_listed_in_pages(agent: Agent, tmp_path: Path) -> None:
    expected = {f"{number:04}" for number in range(2100)}
    for name in expected:
        (tmp_path / name).touch()
    seen: list[str] = []
    pages, position = 0, 0
    while pages == 0 or position:
        answer = agent.ask(LIST, text(tmp_path) + u64(position))
        position = answer.u64()
        for _ in range(answer.u32()):
            seen.append(answer.text())
            assert stat.S_ISREG(answer.u32()) and answer.u64() == 0 and answer.u64() > 0
        pages += 1
    assert len(seen) == len(expected) and set(seen) == expected and pages >= 3


def test_directories_are_made_and_files_moved(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "a/b/c"
    assert code_of(agent, MKDIR, text(path) + u32(0o700, 0)) == errno.ENOENT
    agent.ask(MKDIR, text(path) + u32(0o700, 1))
    agent.ask(MKDIR, text(path) + u32(0o700, 1))
    assert code_of(agent, MKDIR, text(path) + u32(0o700, 0)) == errno.EEXIST
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (path / "file").write_bytes(b"x")
    agent.ask(MOVE, text(path / "file") + text(tmp_path / "moved"))
    assert (tmp_path / "moved").read_bytes() == b"x" and names(path) == set()
    assert code_of(agent, MOVE, text(path / "file") + text(tmp_path / "moved")) == errno.ENOENT


def test_removal_takes_everything_below_and_nothing_beside(agent: Agent, tmp_path: Path) -> None:
    tree, beside = tmp_path / "tree", tmp_path / "beside"
    beside.mkdir()
    (beside / "file").touch()
    for top in ("one", "two"):
        # Deeper than any path can name, and wider than one turn of the agent.
        level = tree / top
        level.mkdir(parents=True)
        for number in range(400):
            (level / str(number)).touch()
        descriptor = os.open(level, os.O_RDONLY)
        for _ in range(600):
            os.mkdir("deeper-than-that", dir_fd=descriptor)
            below = os.open("deeper-than-that", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        os.symlink(beside, "link", dir_fd=descriptor)
        os.close(descriptor)
    assert code_of(agent, REMOVE, text(tree) + u32(0)) == errno.ENOTEMPTY
    agent.ask(REMOVE, text(tree) + u32(1))
    assert names(tmp_path) == {"beside"} and names(beside) == {"file"}
    (tmp_path / "link").symlink_to(beside)
    agent.ask(REMOVE, text(tmp_path / "link") + u32(1))
    agent.ask(REMOVE, text(beside / "file") + u32(0))
    agent.ask(REMOVE, text(beside) + u32(0))
    assert names(tmp_path) == set()
    assert code_of(agent, REMOVE, text(beside) + u32(1)) == errno.ENOENT


def test_reading_waits_for_nothing_and_shows_nothing_of_the_agent(agent: Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "self").symlink_to("/proc/self")
    assert code_of(agent, READ, text(tmp_path / "fifo") + u64(0) + u32(1)) == errno.EINVAL
    assert code_of(agent, READ, text(tmp_path) + u64(0) + u32(1)) == errno.EISDIR
    assert code_of(agent, READ, text("/dev/zero") + u64(0) + u32(1)) == errno.EINVAL
    assert code_of(agent, READ, text(tmp_path / "self/environ") + u64(0) + u32(1)) == errno.EACCES
    assert code_of(agent, READ, text(tmp_path / "self/mem") + u64(0) + u32(1)) == errno.EACCES
    assert code_of(agent, LIST, text(tmp_path / "self/fd") + u64(0)) == errno.EACCES


def changes(agent: Agent, count: int) -> list[tuple[int, str, int]]:
    found = []
    for _ in range(count):
        frame = agent.answer()
        assert frame.kind == CHANGED
        name, what = frame.text(), frame.u32()
        found.append((frame.id, name, what))
    return found


def test_changes_of_a_watched_directory_are_reported(agent: Agent, tmp_path: Path) -> None:
    place = tmp_path / "watched"
    place.mkdir()
    agent.ask(WATCH, text(place), id=3)
    assert code_of(agent, WATCH, text(tmp_path / "none")) == errno.ENOENT
    (place / "file").write_bytes(b"x")
    assert changes(agent, 3) == [(3, "file", CREATED), (3, "file", WRITTEN), (3, "file", CLOSED)]
    (place / "file").rename(place / "other")
    assert changes(agent, 2) == [(3, "file", MOVED_AWAY), (3, "other", MOVED_HERE)]
    agent.ask(WATCH, text(place / "."), id=4)  # the same directory again, on its own
    (place / "other").unlink()
    assert sorted(changes(agent, 2)) == [(3, "other", REMOVED), (4, "other", REMOVED)]
    agent.ask(UNWATCH, b"", id=4)
    agent.send(WRITE, 9, put(place / "ours", b"x"))
    frames = [agent.answer(), agent.answer()]
    assert sorted((frame.kind, frame.id) for frame in frames) == [(DONE, 9), (CHANGED, 3)]
    assert [frame.text() for frame in frames if frame.kind == CHANGED] == ["ours"], "the temporary file is not reported"
    place.rename(tmp_path / "away")
    assert changes(agent, 1) == [(3, "", GONE)]
    assert code_of(agent, UNWATCH, b"") == errno.ENOENT


def test_watches_are_bounded(agent: Agent, tmp_path: Path) -> None:
    for id in range(64):
        agent.ask(WATCH, text(tmp_path), id=id)
    assert code_of(agent, WATCH, text(tmp_path)) == errno.ENOSPC
    agent.ask(UNWATCH, b"", id=63)
    agent.ask(WATCH, text(tmp_path), id=64)


def test_a_host_that_does_not_read_is_waited_for(agent: Agent, tmp_path: Path) -> None:
    path, content = tmp_path / "file", os.urandom(1_000_000)
    path.write_bytes(content)
    for id in range(20):
        agent.send(READ, id, text(path) + u64(0) + u32(1_000_000))
    with (Path("/proc") / str(agent.process.pid) / "status").open() as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    assert peak < 12 << 10, "20 MB were asked for, and only some are held"
    for id in range(20):
        answer = agent.answer()
        assert (answer.kind, answer.id, answer.u64(), answer.bytes()) == (DONE, id, len(content), content)


def test_half_a_frame_does_not_stop_the_agent(agent: Agent) -> None:
    agent.send(START, 1, text("/") + u32(1) + text("true") + u32(1) + text("PATH=/usr/bin:/bin") + u32(STREAMS))
    frame = struct.pack("<IHHI", 9, STAT, 0, 2) + text("/") + u32(1)
    agent.socket.sendall(frame[:15])
    assert agent.answer().id == 1
    assert agent.answer().kind == EXITED
    agent.socket.sendall(frame[15:])
    answer = agent.answer()
    assert (answer.kind, answer.id) == (DONE, 2)


def test_fields_that_do_not_fit_are_refused_and_nothing_else(agent: Agent) -> None:
    for kind in (START, INPUT, STAT, LIST, READ, WRITE, MOVE, REMOVE, MKDIR, WATCH):
        for payload in (b"", u32(2**32 - 1), text("/")[:-1], text(b"/\0")):
            agent.send(kind, 9, payload)
            agent.send(STAT, 10, text("/") + u32(1))
            while (frame := agent.receive()).id != 10:
                assert (frame.kind, frame.u32()) == (FAILED, errno.EPROTO)
            assert frame.kind == DONE


@pytest.mark.parametrize("last", [(QUIT, 0), (999, 0), (STAT, 1), (STAT, 1 << 21)])
def test_quit_and_nonsense_end_the_box(agent: Agent, tmp_path: Path, last: tuple[int, int]) -> None:
    kind, wrong = last
    agent.send(WRITE, 1, u32(BEGIN) + text(tmp_path / "file") + u32(0) + text(b"half"))
    agent.ask(STAT, text("/") + u32(1))
    assert len(names(tmp_path)) == 1
    with contextlib.suppress(BrokenPipeError):
        agent.socket.sendall(struct.pack("<IHHI", wrong & ~1, kind, wrong & 1, 0))
    assert agent.process.wait(60) == 0
    assert names(tmp_path) == set(), "nothing is left of what was not committed"
