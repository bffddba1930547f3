"""Files of sessions that another Glovebox has, through this one's REST and MCP: the same answers as for files that are
here, at the pace of the slower side, and nothing of them kept here."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import wait_for
from support.daemons import StartDaemon, make_daemons
from support.mcp import LEGACY, MODERN, HttpPeer
from support.remote import Remote, serve_remote
from support.service import Service, ServiceClient, start_service


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


@pytest.fixture
def remote(start: StartDaemon, tmp_path: Path) -> Iterator[Remote]:
    with serve_remote(start, tmp_path) as made:
        yield made


@pytest.fixture
def service(start: StartDaemon, remote: Remote) -> Service:
    return start_service(start(*remote.options, env=remote.env, start=False))


@pytest.fixture
def ann(service: Service) -> ServiceClient:
    return service.client("ann")


def resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * (os.sysconf("SC_PAGESIZE") >> 10)


def test_files_are_written_read_listed_moved_and_removed(ann: ServiceClient, remote: Remote) -> None:
    put = ann.request("PUT", "/sandbox/s/file?path=in/a.txt", b"0123456789")  # which makes the sandbox
    assert (put.status, put.json()) == (201, {"path": "/workspace/in/a.txt", "size": 10})
    assert len(remote.sessions()) == 1
    assert ann.request("PUT", "/sandbox/s/file?path=in/a.txt", b"0123456789").status == 200, "it was there"
    assert ann.execute("s", "open('/workspace/in/a.txt').read()")["result"] == {"text/plain": "'0123456789'"}
    got = ann.get("/sandbox/s/file?path=in/a.txt")
    assert (got.status, got.body, got.headers["Accept-Ranges"]) == (200, b"0123456789", "bytes")
    assert got.headers["Content-Disposition"].startswith('attachment; filename="a.txt"')
    part = ann.get("/sandbox/s/file?path=in/a.txt", {"Range": "bytes=3-5"})
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"345", "bytes 3-5/10")
    assert ann.get("/sandbox/s/file?path=in/a.txt", {"Range": "bytes=30-"}).status == 416
    same = ann.get("/sandbox/s/file?path=in/a.txt", {"If-None-Match": got.headers["ETag"]})
    assert (same.status, same.body) == (304, b"")
    head = ann.request("HEAD", "/sandbox/s/file?path=in/a.txt")
    assert (head.status, head.headers["Content-Length"]) == (200, "10")
    assert ann.request("PUT", "/sandbox/s/file?path=d/e&mkdir=true").json() == {"path": "/workspace/d/e"}
    moved = ann.request("PUT", "/sandbox/s/file?path=in/a.txt&move_to=d/b.txt")
    assert (moved.status, moved.json()) == (200, {"path": "/workspace/d/b.txt"})
    listed = ann.get("/sandbox/s/file?path=d").json()
    assert (listed["path"], listed["type"], listed["cut"]) == ("/workspace/d", "directory", False)
    assert [(entry["name"], entry["type"]) for entry in listed["entries"]] == [("b.txt", "file"), ("e", "directory")]
    assert ann.get("/sandbox/s/file?path=d/b.txt&stat=true").json()["size"] == 10
    assert ann.delete("/sandbox/s/file?path=d/b.txt").status == 200
    gone = ann.get("/sandbox/s/file?path=d/b.txt")
    assert (gone.status, gone.json()["code"]) == (404, "not_found")


def test_a_form_artifacts_and_links(ann: ServiceClient) -> None:
    parts = b"".join(
        f'--b\r\nContent-Disposition: form-data; name="f"; filename="{name}"\r\n\r\n'.encode() + content + b"\r\n"
        for name, content in (("one.bin", b"1" * 300_000), ("two.txt", b"2"), ("empty", b""))
    )
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    sent = ann.request("PUT", "/sandbox/f/file?path=up", parts + b"--b--\r\n", form)
    assert sent.status == 201, sent
    assert [(file["path"], file["size"]) for file in sent.json()["files"]] == [
        ("/workspace/up/one.bin", 300_000),
        ("/workspace/up/two.txt", 1),
        ("/workspace/up/empty", 0),
    ]
    code = "import os; os.makedirs('artifacts', exist_ok=True); open('artifacts/r é.csv', 'w').write('1,2')"
    ann.execute("f", code + "; os.symlink('/etc/passwd', 'artifacts/out'); os.symlink('up/two.txt', 'near')")
    (artifact,) = ann.get("/sandbox/f/artifacts").json()["artifacts"]
    assert (artifact["path"], artifact["size"]) == ("/workspace/artifacts/r é.csv", 3)
    assert "host_path" not in artifact
    assert ann.get(artifact["url"]).body == b"1,2"
    assert ann.get("/sandbox/f/file?path=near").body == b"2", "a link within the workspace"
    assert ann.get("/sandbox/f/file?path=artifacts/out").status == 403
    assert ann.get("/sandbox/f/artifacts/download?path=up/two.txt").status == 403
    assert ann.get("/sandbox/f/artifacts/download?path=artifacts").status in (400, 403)


def test_a_large_file_passes_through_and_is_not_kept(service: Service, ann: ServiceClient) -> None:
    piece = os.urandom(1 << 20)
    size = 96
    ann.execute("big", "1")
    before = resident_kib(service.daemon.pid)
    sent = ann.request("PUT", "/sandbox/big/file?path=big", (piece for _ in range(size)))
    assert sent.status == 201 and sent.json()["size"] == size << 20, sent
    got = hashlib.sha256()
    connection = ann.connect()
    connection.request("GET", "/sandbox/big/file?path=big", headers=ann.headers())
    answer = connection.getresponse()
    while block := answer.read(1 << 18):
        got.update(block)
    assert got.digest() == hashlib.sha256(piece * size).digest()
    assert resident_kib(service.daemon.pid) - before < 32 << 10


def test_a_client_that_does_not_read_makes_the_remote_wait(service: Service, ann: ServiceClient) -> None:
    ann.execute("slow", "open('big', 'wb').write(b'x' * (48 << 20))")
    before = resident_kib(service.daemon.pid)
    with ann.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        lazy.sendall(ann.head("GET", "/sandbox/slow/file?path=big"))
        time.sleep(2)
        assert resident_kib(service.daemon.pid) - before < 24 << 10, "it is not held here"
        assert ann.execute("slow", "1 + 1")["result"] == {"text/plain": "2"}
        received = 0
        while received < 48 << 20:
            block = lazy.recv(1 << 20)
            assert block
            received += len(block)


MADE = """
import os, sys
os.makedirs('artifacts/sub', exist_ok=True)
for name, content in (('r é.csv', b'1,2'), ('sub/a\\nb', b'x'), ('empty', b''), ('large', b'z' * 200_001)):
    open('artifacts/' + name, 'wb').write(content)
os.utime('artifacts/large', (1_600_000_000, 1_600_000_000))
os.symlink('/etc/passwd', 'artifacts/out')
os.mkfifo('artifacts/fifo')
"""


def test_an_archive_of_all_artifacts_is_as_one_of_a_sandbox_here(ann: ServiceClient) -> None:
    ann.execute("z", MADE)
    answer = ann.get("/sandbox/z/artifacts/zip")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/zip"), answer
    assert 'filename="z-artifacts.zip"' in answer.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.testzip() is None
        assert {entry.filename: archive.read(entry) for entry in archive.infolist()} == {
            "artifacts/r é.csv": b"1,2",
            "artifacts/sub/a%0Ab": b"x",
            "artifacts/empty": b"",
            "artifacts/large": b"z" * 200_001,
        }
        assert archive.getinfo("artifacts/large").date_time == (2020, 9, 13, 12, 26, 40)
    head = ann.request("HEAD", "/sandbox/z/artifacts/zip")
    assert (head.status, head.body) == (200, b"")
    assert ann.get("/sandbox/nobody/artifacts/zip").status == 404
    ann.execute("none", "pass")
    assert zipfile.ZipFile(io.BytesIO(ann.get("/sandbox/none/artifacts/zip").body)).namelist() == []


def test_an_archive_goes_at_the_pace_of_its_reader_and_is_not_kept(service: Service, ann: ServiceClient) -> None:
    """Files change and go while it is read; a break of the connection is not seen."""
    ann.execute(
        "big",
        "import os\nfor name in 'abcdef': open('artifacts/' + name, 'wb').write(name.encode() * (24 << 20))",
    )
    before = resident_kib(service.daemon.pid)
    connection = ann.connect()
    connection.request("GET", "/sandbox/big/artifacts/zip", headers=ann.headers())
    answer = connection.getresponse()
    time.sleep(1)
    assert resident_kib(service.daemon.pid) - before < 24 << 10, "it is not held here"
    assert ann.execute("big", "os.remove('artifacts/d'); os.truncate('artifacts/e', 5)")["status"] == "ok"
    whole = answer.read()
    assert resident_kib(service.daemon.pid) - before < 32 << 10
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None
        sizes = {entry.filename.removeprefix("artifacts/"): entry.file_size for entry in archive.infolist()}
    assert sizes == {"a": 24 << 20, "b": 24 << 20, "c": 24 << 20, "e": 5, "f": 24 << 20}


def test_an_archive_that_cannot_be_whole_does_not_look_whole(ann: ServiceClient, remote: Remote) -> None:
    ann.execute("part", "for n in 'ab': open('artifacts/' + n, 'wb').truncate(9 << 20)")
    remote.relay.limit = 5_000_001
    with zipfile.ZipFile(io.BytesIO(ann.get("/sandbox/part/artifacts/zip").body)) as archive:
        assert archive.testzip() is None, "a connection that broke is continued"
    connection = ann.connect()
    connection.request("GET", "/sandbox/part/artifacts/zip", headers=ann.headers())
    answer = connection.getresponse()
    assert ann.delete("/sandbox/part/destroy").status == 200
    with pytest.raises(http.client.IncompleteRead):
        answer.read()


def test_a_break_is_joined_when_reading_and_reported_when_writing(ann: ServiceClient, remote: Remote) -> None:
    ann.execute("cut", "open('big', 'wb').write(bytes(range(256)) * (128 << 10))")
    remote.relay.limit = 3_000_001
    got = ann.get("/sandbox/cut/file?path=big")
    assert got.body == bytes(range(256)) * (128 << 10)

    def broken() -> Iterator[bytes]:
        for i in range(64):
            if i == 20:
                assert remote.relay.cut() > 0
            yield b"y" * (1 << 20)
            time.sleep(0.02)

    try:
        status = ann.request("PUT", "/sandbox/cut/file?path=half", broken()).status
    except (ConnectionError, OSError):
        status = 410  # refused while it was still being sent
    assert status in (410, 502, 503)
    assert ann.get("/sandbox/cut/file?path=half").status == 404


def test_bounds_and_refusals_hold(start: StartDaemon, remote: Remote) -> None:
    daemon = start(*remote.options, "--upload", "1m", env=remote.env, start=False)
    ann = start_service(daemon).client("ann")
    assert ann.request("PUT", "/sandbox/s/file?path=a", b"x" * (2 << 20)).status == 413
    assert ann.request("PUT", "/sandbox/s/file?path=a", (b"x" * (1 << 19) for _ in range(4))).status == 413
    assert ann.request("PUT", "/sandbox/s/file?path=../a", b"x").status in (400, 403)
    assert ann.request("PUT", "/sandbox/s/file?path=ok", b"x").status == 201
    assert ann.get("/sandbox/s/file?path=a").status == 404
    remote.relay.is_open = False
    remote.relay.cut()
    refused = ann.request("PUT", "/sandbox/s/file?path=b", b"x")
    assert refused.status in (410, 502, 503), refused


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_mcp_reads_writes_and_lists(service: Service, era: str) -> None:
    peer = HttpPeer(service, era, "ann")
    assert peer.text("write_file", path="notes/a.txt", content="one\ntwo\nthree\n") == "wrote 14 bytes to notes/a.txt"
    assert peer.text("read_file", path="notes/a.txt", line=2, lines=1) == "two\n"
    assert peer.text("list_files", path="notes") == "a.txt  14\n"
    assert "use list_files" in peer.refusal("read_file", path="notes")
    assert "use read_file" in peer.refusal("list_files", path="notes/a.txt")
    assert "not_found" in peer.refusal("read_file", path="nothing")
    read = peer.result("resources/read", {"uri": "glovebox://default/notes/a.txt"})
    assert read["contents"][0]["text"] == "one\ntwo\nthree\n"
    peer.text("run_shell", command="head -c 6000000 /dev/zero | tr '\\0' 'z' > big; printf '\\211PNG' > p.png")
    assert "more follows" in peer.text("read_file", path="big")
    refused = peer.request("resources/read", {"uri": "glovebox://default/big"})["error"]
    assert "6000000 bytes" in refused["message"]
    image = peer.call("read_file", path="p.png")["content"][0]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    peer.close()


def test_a_client_of_mcp_that_leaves_ends_what_was_asked(service: Service, remote: Remote) -> None:
    peer = HttpPeer(service, LEGACY, "ann")
    peer.text("write_file", path="a", content="1")
    remote.relay.is_open = False
    remote.relay.cut()
    gone = service.client("ann")
    connection = gone.connect()
    message = peer.message("tools/call", {"name": "read_file", "arguments": {"path": "a"}}, None)
    connection.request("POST", "/mcp", json.dumps(message).encode(), {**gone.headers(), **peer.headers(message)})
    time.sleep(0.3)
    connection.close()
    remote.relay.is_open = True
    wait_for("the next one", lambda: peer.text("read_file", path="a") == "1")
