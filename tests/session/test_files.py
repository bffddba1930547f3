"""Files of a session, put and got by its owner while hostile code owns the directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.client import DATA, END, HEADER, Client, DaemonError
from support.daemon import Daemon, memory_of


@pytest.fixture
def client(daemon: Daemon) -> Client:
    client = daemon.client()
    client.request("session.create", session="files")
    return client


def refusal(client: Client, op: str, content: bytes | None = None, **fields: object) -> str:
    with pytest.raises(DaemonError) as caught:
        client.request(op, content, **fields)
    return caught.value.code


def test_a_file_is_written_read_listed_moved_and_removed(client: Client) -> None:
    assert client.write_file("files", "/workspace/in/a.bin", bytes(range(256)))["size"] == 256
    assert (
        client.execute("open('in/a.bin', 'rb').read() == bytes(range(256))", "files")["result"]["text/plain"] == "True"
    )
    assert client.execute("open('in/a.bin', 'ab').write(b'!')", "files")["status"] == "ok"  # it is the tenant's own
    assert client.read_file("files", "/session/in/a.bin", offset=250, size=3) == bytes([250, 251, 252])
    stat = client.request("file.stat", session="files", path="/sandbox/in/a.bin")
    assert (stat["type"], stat["size"]) == ("file", 257), stat
    client.request("file.mkdir", session="files", path="/work/out")
    client.request("file.move", session="files", path="in/a.bin", to="out/b.bin")
    entries = client.request("file.list", session="files", path="out")["entries"]
    assert [(entry["path"], entry["type"], entry["size"]) for entry in entries] == [("b.bin", "file", 257)]
    assert refusal(client, "file.remove", session="files", path="out") == "usage"
    client.request("file.remove", session="files", path="out", recursive=True)
    assert refusal(client, "file.stat", session="files", path="out") == "not_found"


def test_paths_that_lead_out_are_refused(client: Client) -> None:
    for path in ("../x", "/etc/passwd", "a/../../x", "/workspace/../etc/passwd", "/workspaces/x", "/"):
        for op in ("file.read", "file.stat", "file.list", "file.mkdir", "file.remove"):
            assert refusal(client, op, session="files", path=path) == "refused", (op, path)
        assert refusal(client, "file.write", b"x", session="files", path=path) == "refused", path
        assert refusal(client, "file.move", session="files", path="x", to=path) in ("refused", "not_found"), path
    assert refusal(client, "file.write", b"x", session="files", path="/workspace") == "usage"
    assert refusal(client, "file.read", session="files", path="a" * 300) == "usage"


def test_links_of_the_tenant_that_lead_out_fifos_sockets_and_devices_are_refused(
    daemon: Daemon, client: Client
) -> None:
    code = """
import os, socket
os.makedirs('trap', exist_ok=True); os.chdir('trap')
os.symlink('/etc', 'etc'); os.symlink('/etc/passwd', 'passwd'); os.symlink('../../../../etc/passwd', 'up')
os.symlink('loop', 'loop'); os.symlink('/proc/self/root/etc', 'magic'); os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket'); open('inside', 'w').write('fine'); os.symlink('inside', 'good')
os.chdir('/workspace')
"""
    assert client.execute(code, "files")["status"] == "ok"
    for path in ("trap/etc/passwd", "trap/passwd", "trap/up", "trap/loop", "trap/magic/passwd"):
        assert refusal(client, "file.read", session="files", path=path) in ("refused", "not_found"), path
    for path in ("trap/fifo", "trap/socket"):
        assert refusal(client, "file.read", session="files", path=path) in ("refused", "system"), path
    for path in ("trap/etc/x", "trap/magic/x"):
        assert refusal(client, "file.write", b"x", session="files", path=path) in ("refused", "not_found"), path
        assert refusal(client, "file.mkdir", session="files", path=path) in ("refused", "not_found"), path
    assert client.read_file("files", "trap/good") == b"fine"
    # A link at the destination is replaced, not followed.
    client.write_file("files", "trap/passwd", b"mine")
    workspace = Path(client.request("session.show", session="files")["workspace"])
    assert (workspace / "trap/passwd").read_bytes() == b"mine" and not (workspace / "trap/passwd").is_symlink()
    client.request("file.remove", session="files", path="trap", recursive=True)
    assert Path("/etc/passwd").stat().st_size > 0


def test_a_file_appears_whole_or_not_at_all(daemon: Daemon, client: Client) -> None:
    client.write_file("files", "whole", b"old")
    writer = daemon.client()
    number = writer.begin("file.write", session="files", path="whole")
    writer.send(DATA, b"new, but not yet all of it", number)
    assert writer.request("ping")["ok"]
    assert client.read_file("files", "whole") == b"old"
    writer.close()  # it dies in the middle
    workspace = Path(client.request("session.show", session="files")["workspace"])
    deadline = [client.request("ping") for _ in range(3)]
    assert deadline and client.read_file("files", "whole") == b"old"
    assert [name for name in os.listdir(workspace) if name.startswith(".glovebox")] == []
    writer = daemon.client()
    number = writer.begin("file.write", session="files", path="whole")
    writer.send(DATA, b"new", number)
    writer.send(END, b"", number)
    assert writer.finish(number)["size"] == 3 and client.read_file("files", "whole") == b"new"


def test_two_files_on_one_connection_in_whatever_pieces(daemon: Daemon, client: Client) -> None:
    writer = daemon.client()
    contents = [os.urandom(700_000), os.urandom(900_001)]
    numbers = [writer.begin("file.write", session="files", path=f"both{which}") for which in (0, 1)]
    stream = b""
    for at in range(0, 1_000_000, 250_000):
        for number, content in zip(numbers, contents, strict=True):
            piece = content[at : at + 250_000]
            stream += HEADER.pack(len(piece), DATA, 0, number) + piece
    stream += b"".join(HEADER.pack(0, END, 0, number) for number in numbers)
    cuts = [0, 3, 8, 9, 250_010, 250_020, 600_000, 1_200_000, len(stream) - 4, len(stream)]
    for start, end in zip(cuts, cuts[1:], strict=False):
        writer.socket.sendall(stream[start:end])
        assert client.request("ping")["ok"]  # so that the daemon has seen what was sent so far
    for which, number in enumerate(numbers):
        assert writer.finish(number)["size"] == len(contents[which])
        assert client.read_file("files", f"both{which}") == contents[which]


def test_a_hundred_megabytes_go_in_and_out_and_the_daemon_does_not_grow(daemon: Daemon, client: Client) -> None:
    content = os.urandom(1 << 20) * 100
    client.write_file("files", "large", content)
    assert client.read_file("files", "large") == content
    assert memory_of(daemon.pid, "VmHWM") < 100 << 20
    client.request("file.remove", session="files", path="large")


def test_more_than_the_disk_limit_is_refused_and_nothing_stays(client: Client) -> None:
    client.request("session.create", session="small", limits={"disk_bytes": 1 << 20})
    assert refusal(client, "file.write", b"x" * (3 << 20), session="small", path="big") in ("limit", "no_space")
    assert client.request("file.list", session="small", path=".")["entries"] == []
    assert client.write_file("small", "fits", b"x")["size"] == 1


def test_an_asleep_session_still_gives_its_files(client: Client) -> None:
    client.execute("x = 1; open('kept', 'w').write('still here')", "sleeper")
    assert client.request("session.hibernate", session="sleeper")["state"] == "asleep"
    assert client.read_file("sleeper", "kept") == b"still here"
    assert client.execute("x", "sleeper")["result"] == {"text/plain": "1"}
