"""Files of a sandbox over HTTP: read, written, listed, removed, while hostile code owns the directory."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from support.daemon import memory_of, wait_for
from support.service import Answer, Service, ServiceClient, StartService


@pytest.fixture
def client(service: Service) -> ServiceClient:
    return service.client("ann")


def where(user_id: str, path: str, more: str = "") -> str:
    return f"/sandbox/{user_id}/file?path={quote(path, safe='')}{more}"


def put(client: ServiceClient, user_id: str, path: str, content: bytes) -> Answer:
    return client.request("POST", where(user_id, path), content, {"Content-Type": "application/octet-stream"})


def names(client: ServiceClient, user_id: str, path: str = ".") -> list[str]:
    answer = client.get(where(user_id, path))
    assert answer.status == 200, answer
    return [entry["name"] for entry in answer.json()["entries"]]


def form(*parts: tuple[str, str | None, bytes]) -> tuple[bytes, dict[str, str]]:
    """A multipart/form-data body and its headers, of (field, file name or None, content)."""
    body = b""
    for field, name, content in parts:
        file_name = b"" if name is None else b'; filename="' + name.encode() + b'"'
        body += b'--b0\r\nContent-Disposition: form-data; name="' + field.encode() + b'"' + file_name + b"\r\n\r\n"
        body += content + b"\r\n"
    return body + b"--b0--\r\n", {"Content-Type": "multipart/form-data; boundary=b0"}


def test_a_file_is_written_read_listed_moved_and_removed(service: Service, client: ServiceClient) -> None:
    content = bytes(range(256)) * 10
    made = put(client, "ways", "/workspace/in/a b.bin", content)  # the sandbox is made for it
    assert (made.status, made.json()) == (201, {"path": "/workspace/in/a b.bin", "size": 2560}), made
    assert client.execute("ways", "print(len(open('in/a b.bin', 'rb').read()))")["stdout"] == "2560\n"
    client.execute("ways", "open('in/a b.bin', 'ab').write(b'!')")  # it is the tenant's own
    read = client.get(where("ways", "in/a b.bin"))
    assert (read.status, read.body) == (200, content + b"!"), read
    assert put(client, "ways", "in/a b.bin", b"").status == 200  # replaced, and empty files are files
    assert client.request("PUT", where("ways", "c"), iter([b"in ", b"chunks"])).status == 201
    assert client.post(where("ways", "deep/er", "&mkdir=true")).status == 201
    assert client.post(where("ways", "c", "&move_to=deep/er/d")).status == 200
    listed = client.get(where("ways", "deep/er")).json()
    assert (listed["type"], listed["path"], listed["cut"]) == ("directory", "/workspace/deep/er", False), listed
    assert [(entry["name"], entry["type"], entry["size"]) for entry in listed["entries"]] == [("d", "file", 9)]
    assert client.delete(where("ways", "deep")).status == 400  # not empty
    assert client.delete(where("ways", "deep", "&recursive=true")).status == 200
    assert client.delete(where("ways", "in/a b.bin")).status == 200
    assert names(client, "ways") == ["artifacts", "in"], "the first was there from the start"
    for gone in (client.get(where("ways", "deep")), client.delete(where("ways", "c"))):
        assert gone.status == 404 and gone.headers["Content-Type"] == "application/problem+json", gone


def test_the_head_of_a_file_lets_no_browser_run_it(client: ServiceClient) -> None:
    name = 'evil";\t\r\nSet-Cookie: a=b; ü.html'
    client.execute("heads", f"open({name!r}, 'w').write('<script>')")
    answer = client.get(where("heads", name))
    assert (answer.status, answer.body) == (200, b"<script>"), answer
    assert answer.headers["Content-Type"] == "application/octet-stream" and "Set-Cookie" not in answer.headers, answer
    disposition = answer.headers["Content-Disposition"]
    assert disposition.startswith('attachment; filename="') and disposition.count('"') == 2, disposition
    assert disposition.endswith("filename*=UTF-8''" + quote(name, safe="")), disposition
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


def test_ranges_conditions_and_heads(client: ServiceClient) -> None:
    put(client, "ranges", "f.csv", b"0123456789")
    path = where("ranges", "f.csv")
    tag = wait_for("a tag: it is given once the clock has passed the change", lambda: client.get(path).headers["ETag"])
    for asked, status, content, content_range in (
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("bytes=4-2", 200, b"0123456789", None),
        ("bytes=10-", 416, None, "bytes */10"),
    ):
        answer = client.get(path, {"Range": asked})
        assert (answer.status, answer.headers["Content-Range"]) == (status, content_range), (asked, answer)
        assert content is None or answer.body == content, (asked, answer)
    assert client.get(path, {"Range": "bytes=2-4", "If-Range": tag}).status == 206
    assert client.get(path, {"Range": "bytes=2-4", "If-Range": '"other"'}).status == 200
    assert client.get(path, {"If-None-Match": f'"x", W/{tag}'}).status == 304
    head = client.request("HEAD", path)
    assert (head.status, head.headers["Content-Length"], head.headers["Content-Type"], head.body) == (
        200,
        "10",
        "text/csv",
        b"",
    ), head
    put(client, "ranges", "f.csv", b"9876543210")
    assert client.get(path, {"If-None-Match": tag}).body == b"9876543210"


def test_a_form_carries_several_files_and_all_appear_or_none(service: Service, client: ServiceClient) -> None:
    body, headers = form(("path", None, b"up/load"), ("a", "one.txt", b"1"), ("b", "sub/two ü.txt", b"\r\n--b\r\n2"))
    answer = client.request("POST", "/sandbox/forms/file", body, headers)
    assert answer.status == 201, answer
    assert answer.json()["files"] == [
        {"path": "/workspace/up/load/one.txt", "size": 1},
        {"path": "/workspace/up/load/sub/two ü.txt", "size": 8},
    ]
    assert client.get(where("forms", "up/load/sub/two ü.txt")).body == b"\r\n--b\r\n2"
    good = ("a", "good", b"x")
    for bad in (
        ("b", "../out", b"x"),
        ("b", "/etc/passwd", b"x"),
        ("b", "c:\\\\x", b"x"),
        ("b", "", b"x"),
        ("b", "up", b"x"),  # a directory is there
        ("path", None, b"../x"),
        ("path", None, b"x\0y"),
        ("other", None, b"x"),
    ):
        body, headers = form(good, bad)
        assert 400 <= client.request("POST", where("forms", "."), body, headers).status < 500, bad
    body, headers = form(good)
    assert client.request("POST", where("forms", "."), body[:-6], headers).status == 400  # not ended
    body, headers = form(*[("f", f"n{i}", b"") for i in range(40)])
    assert client.request("POST", where("forms", "."), body, headers).status == 413
    assert names(client, "forms") == ["up"]


TRAPS = """
import os, socket
os.makedirs('trap'); os.chdir('trap')
os.symlink('/etc', 'etc'); os.symlink('/etc/passwd', 'passwd'); os.symlink('../../../../etc/passwd', 'up')
os.symlink('loop', 'loop'); os.symlink('/proc/self/root/etc', 'magic'); os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket'); open('inside', 'w').write('fine'); os.symlink('inside', 'good')
os.link('inside', 'hard'); open('back' + chr(92) + 'slash', 'w').write('odd'); os.truncate('inside', 4)
open(b'not-utf8-' + bytes([255]), 'w').close(); os.chdir('/workspace')
"""
LEADING_OUT = (
    "../x",
    "/etc/passwd",
    "a/../../x",
    "/workspace/../etc/passwd",
    "/workspaces/x",
    "/",
    "trap/etc/passwd",
    "trap/magic/passwd",
    "trap/loop/x",
    "trap/fifo/x",
    "trap/inside/x",
)
SPECIAL = ("trap/passwd", "trap/up", "trap/loop", "trap/fifo", "trap/socket", "trap/device")


def test_nothing_leads_out_and_what_is_no_file_is_not_opened(service: Service, client: ServiceClient) -> None:
    client.execute("hostile", TRAPS)
    workspace = service.workspace(client, "hostile")
    os.mknod(workspace / "trap/device", 0o20666, os.makedev(1, 3))
    before = sorted(str(path) for path in workspace.rglob("*"))
    passwd = Path("/etc/passwd").read_bytes()
    for path in LEADING_OUT:
        for method, more in (("GET", ""), ("HEAD", ""), ("DELETE", ""), ("DELETE", "&recursive=true")):
            assert 400 <= client.request(method, where("hostile", path, more)).status < 500, (method, path)
        for more in ("", "&mkdir=true"):
            assert 400 <= client.request("POST", where("hostile", path, more)).status < 500, (more, path)
        moved = client.post(where("hostile", "trap/inside", f"&move_to={quote(path, safe='')}"))
        assert 400 <= moved.status < 500, path
    for path in SPECIAL:
        answer = client.get(where("hostile", path))
        assert 400 <= answer.status < 500 and b"root:" not in answer.body, (path, answer)
    for raw in ("a%00b", "a%0", "%ff", "x" * 300, "x/" * 3000, "a&path=b", "a&recursiv=true"):
        for method in ("GET", "POST", "DELETE"):
            answer = client.request(method, f"/sandbox/hostile/file?path={raw}")
            assert 400 <= answer.status < 500, (method, raw, answer)
    for raw in ("a%5Cb", "a%0Ab", "a/", "d/" * 200 + "x", ""):
        assert client.request("POST", f"/sandbox/hostile/file?path={raw}").status == 400, raw
    assert client.delete(where("hostile", ".", "&recursive=true")).status == 400
    assert sorted(str(path) for path in workspace.rglob("*")) == before
    assert Path("/etc/passwd").read_bytes() == passwd
    # What is harmless works: links that stay inside, hard links, odd names that are there.
    for path, content in (("trap/good", b"fine"), ("trap/hard", b"fine"), ("trap/back\\slash", b"odd")):
        assert client.get(where("hostile", path)).body == content, path
    # A link at the destination is replaced, not followed; a tree with all of this in it can be removed.
    assert put(client, "hostile", "trap/passwd", b"mine").status == 200
    assert (workspace / "trap/passwd").read_bytes() == b"mine" and not (workspace / "trap/passwd").is_symlink()
    assert client.delete(where("hostile", "trap", "&recursive=true")).status == 200
    assert os.listdir(workspace) == ["artifacts"] and Path("/etc/passwd").read_bytes() == passwd


def test_a_directory_of_very_many_is_listed_in_part_and_removed_whole(client: ServiceClient) -> None:
    code = "import os\nos.mkdir('m')\nopen('m/0', 'w').close()\n"  # links, as they are made faster than files
    client.execute("many", code + "for i in range(4500): os.link('m/0', 'm/' + chr(1) * 240 + str(i))")
    listed = client.get(where("many", "m"))  # six times as long in JSON
    assert listed.status == 200 and listed.json()["cut"] is True, listed
    assert 4000 < len(listed.json()["entries"]) < 4500
    assert client.delete(where("many", "m", "&recursive=true")).status == 200
    assert names(client, "many") == ["artifacts"]


def test_keys_do_not_see_each_others_files(service: Service, client: ServiceClient) -> None:
    bob = service.client("bob")
    put(client, "shared-name", "secret", b"ann's")
    assert bob.get(where("shared-name", "secret")).status == 404
    assert bob.delete(where("shared-name", "secret")).status == 404
    put(bob, "shared-name", "secret", b"bob's")
    assert client.get(where("shared-name", "secret")).body == b"ann's"
    identifier = client.get("/sandbox/shared-name").json()["id"]
    assert bob.get(where(identifier, "secret")).status == 404
    for path in ("file?path=secret", "artifacts", "artifacts/zip", "artifacts/download?path=artifacts/x"):
        assert service.stranger().get(f"/sandbox/shared-name/{path}").status == 401, path
        assert bob.get(f"/sandbox/nowhere/{path}").status == 404, path


def send_in_part(client: ServiceClient, path: str, *lines: str) -> socket.socket:
    """An upload that has begun: the service has seen some of it."""
    connection = client.socket()
    connection.sendall(client.head("POST", path, "Expect: 100-continue", *lines))
    assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
    connection.sendall(b"some of it, ")
    return connection


def held(service: Service, directory: Path) -> list[str]:
    """What the daemon has open in there."""
    found = []
    for entry in Path(f"/proc/{service.daemon.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(entry))
    return [path for path in found if path.startswith(str(directory))]


def test_an_upload_that_breaks_off_leaves_nothing(service: Service, client: ServiceClient) -> None:
    put(client, "broken", "whole", b"old")
    workspace = service.workspace(client, "broken")
    uploads = [send_in_part(client, where("broken", path), "Content-Length: 1000") for path in ("whole", "new/deep")]
    # Where the file system knows no nameless files, they have a hidden name meanwhile.
    seen = [name for name in names(client, "broken") if not name.startswith(".glovebox-")]
    assert seen == ["whole"] and client.get(where("broken", "whole")).body == b"old"
    assert held(service, workspace) != []
    for upload in uploads:
        upload.close()
    wait_for("the files to be let go", lambda: held(service, workspace) == [])
    assert os.listdir(workspace) == ["whole"] and (workspace / "whole").read_bytes() == b"old"
    # Destroyed in the middle: the client gets an error, and nothing comes back.
    upload = send_in_part(client, where("broken", "late"), "Content-Length: 16")
    assert client.delete("/sandbox/broken/destroy").status == 200
    upload.sendall(b"all.")
    assert upload.recv(20).startswith(b"HTTP/1.1 410 ")
    upload.close()
    assert client.get(where("broken", "late")).status == 404


def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(make_service: StartService) -> None:
    client = make_service("--upload", "64k").client()
    assert put(client, "big", "a", b"x" * (64 << 10)).status == 201
    early = client.connect()
    early.putrequest("POST", where("big", "b"))
    for name, value in client.headers({"Content-Length": str(1 << 40), "Expect": "100-continue"}).items():
        early.putheader(name, value)
    early.endheaders()
    assert early.getresponse().status == 413  # before any of it was sent
    early.close()
    untold = client.request("POST", where("big", "b"), iter([b"x" * 1000] * 66))
    assert untold.status == 413, untold
    body, headers = form(("f", "b", b"x" * ((64 << 10) + 1)))
    assert client.request("POST", where("big", "."), body, headers).status == 413
    client.post("/sandbox/small/create", {"limits": {"disk_bytes": 1 << 20}})
    assert put(client, "new-one", "b", b"x" * (65 << 10)).status == 413
    assert client.get("/sandbox/new-one").status == 404, "no sandbox is made for nothing"
    assert names(client, "big") == ["a"]


def test_a_full_disk_is_reported_and_leaves_nothing(make_service: StartService) -> None:
    service = make_service()
    client, sessions = service.client(), service.daemon.data / "sessions"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "small", str(sessions)], check=True)
    try:
        full = put(client, "full", "a", bytes(2 << 20))
        assert (full.status, full.json()["code"]) == (507, "no_space"), full
        assert names(client, "full") == []
        assert put(client, "full", "a", b"fits").status == 201
        assert client.delete("/sandbox/full/destroy").status == 200
    finally:
        subprocess.run(["umount", "-l", str(sessions)], check=True)


def test_a_hundred_megabytes_go_in_and_out_and_the_daemon_does_not_grow(service: Service) -> None:
    client = service.client()
    piece = os.urandom(1 << 20)
    before = memory_of(service.daemon.pid, "VmHWM")
    assert client.request("POST", where("large", "f"), iter([piece] * 100)).json()["size"] == 100 << 20
    connection = client.connect()
    connection.request("GET", where("large", "f"), headers=client.headers())
    response = connection.getresponse()
    for i in range(100):
        assert response.read(1 << 20) == piece, i
    assert response.read(1) == b""
    connection.close()
    assert memory_of(service.daemon.pid, "VmHWM") - before < 20 << 20
    # A file that shrinks while it is read does not look whole.
    connection.request("GET", where("large", "f"), headers=client.headers())
    response = connection.getresponse()
    client.execute("large", "import os\nos.truncate('f', 1000)")
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        response.read()
    connection.close()


def test_forms_that_come_together_make_no_more_sandboxes_than_a_key_may_have(make_service: StartService) -> None:
    service = make_service()
    keys = service.daemon.data / "keys"
    keys.write_text(keys.read_text().replace("\n", " sandboxes=1\n", 1))
    time.sleep(1.2)  # the file is looked at once in a second
    client = service.client("ann")
    body, headers = form(("file", "f.txt", b"x"))
    lines = [f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in headers.items())]
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(client.socket()) for _ in range(4)]
        for n, connection in enumerate(sockets):
            connection.sendall(client.head("POST", f"/sandbox/together{n}/file", *lines))
        time.sleep(0.3)  # each head was let in: there was room for one more
        for connection in sockets:
            connection.sendall(body)
        statuses = sorted(int(connection.recv(65536).split(b" ")[1]) for connection in sockets)
    assert statuses == [201, 429, 429, 429]
    assert len(client.get("/sandboxes").json()["sandboxes"]) == 1
