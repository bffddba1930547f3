"""Artifacts over HTTP: the list, one of them, all of them in an archive."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

import pytest
from support.service import Service, ServiceClient

MADE = r"""
import os, socket
os.makedirs('artifacts/sub', exist_ok=True); os.chdir('artifacts')
open('plot & more.png', 'wb').write(bytes(range(256)) * 1000)
open('sub/empty', 'w').close(); open('sub/ü.txt', 'w').write('text'); os.utime('sub/ü.txt', (0, 0))
open('a\\..\\b\n"c', 'w').write('odd'); open(b'not-utf8-\xff', 'w').close()
os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'etc'); os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket')
open('/workspace/private', 'w').write('private'); os.symlink('../private', 'inward')
os.chdir('/workspace')
"""
CONTENTS = {
    "artifacts/plot & more.png": bytes(range(256)) * 1000,
    "artifacts/sub/empty": b"",
    "artifacts/sub/ü.txt": b"text",
    'artifacts/a\\..\\b\n"c': b"odd",
}


@pytest.fixture
def client(service: Service) -> ServiceClient:
    return service.client("ann")


def test_artifacts_are_listed_with_where_to_get_them_and_nothing_else_can_be_got(client: ServiceClient) -> None:
    assert client.get("/sandbox/listed/artifacts").status == 404
    run = client.execute("listed", MADE)
    answer = client.get("/sandbox/listed/artifacts")
    listed = answer.json()["artifacts"]
    assert {item["path"].removeprefix("/workspace/"): item["size"] for item in listed} == {
        name: len(content) for name, content in CONTENTS.items()
    }, answer
    assert [item["path"] for item in run["artifacts"]] == [item["path"] for item in listed]
    for item in listed:
        got = client.get(item["url"])
        assert (got.status, got.body) == (200, CONTENTS[item["path"].removeprefix("/workspace/")]), (item, got)
        assert got.headers["Content-Disposition"].startswith("attachment; "), got
    part = client.get(listed[1]["url"], {"Range": "bytes=1-2"})
    assert (part.status, part.body, part.headers["Content-Type"]) == (206, b"\x01\x02", "image/png"), part
    for path in (
        "private",
        "artifacts/../private",
        "artifacts/inward",
        "artifacts/link",
        "artifacts/etc/passwd",
        "artifacts/fifo",
        "artifacts/socket",
        "artifacts/sub",
        "artifacts",
        "artifactsx",
        "/etc/passwd",
        "",
    ):
        got = client.get(f"/sandbox/listed/artifacts/download?path={path}")
        assert 400 <= got.status < 500 and b"root:" not in got.body, (path, got)
    assert client.get("/sandbox/listed/artifacts/download").status == 400


def test_an_archive_holds_every_artifact_and_nothing_else(client: ServiceClient) -> None:
    client.execute("zipped", MADE)
    answer = client.get("/sandbox/zipped/artifacts/zip")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/zip"), answer
    assert 'filename="zipped-artifacts.zip"' in answer.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.testzip() is None
        assert {entry.filename: archive.read(entry) for entry in archive.infolist()} == {
            # A backslash would separate names on some systems.
            name.replace("\\", "%5C").replace("\n", "%0A"): content
            for name, content in CONTENTS.items()
        }
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o100644}
    head = client.request("HEAD", "/sandbox/zipped/artifacts/zip")
    assert (head.status, head.body) == (200, b"")
    client.execute("empty", "pass")
    nothing = client.get("/sandbox/empty/artifacts/zip").body
    assert zipfile.ZipFile(io.BytesIO(nothing)).namelist() == []


def test_an_archive_of_large_files_that_change_while_they_are_read_is_whole(
    client: ServiceClient, tmp_path: Path
) -> None:
    """The client reads nothing until the files have changed, and far less than the first one fits in between. Past 64
    MiB, sizes are written in 64 bits."""
    client.execute(
        "changing",
        "import os\nos.makedirs('artifacts', exist_ok=True)\n"
        "for name, size in zip('abcdef', (40, 1, 1, 1, 70, 1)): open('artifacts/' + name, 'w').truncate(size << 20)",
    )
    connection = client.connect()
    connection.request("GET", "/sandbox/changing/artifacts/zip", headers=client.headers())
    response = connection.getresponse()
    client.execute(
        "changing",
        "os.truncate('artifacts/a', 30 << 20)\nopen('artifacts/b', 'a').write('more')\n"
        "os.remove('artifacts/c')\nos.remove('artifacts/d')\n"
        "open('private', 'w').close()\nos.symlink('../private', 'artifacts/d')",
    )
    path = tmp_path / "archive.zip"
    with path.open("wb") as file:
        shutil.copyfileobj(response, file, 1 << 20)
    connection.close()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        sizes = {entry.filename.removeprefix("artifacts/"): entry.file_size for entry in archive.infolist()}
    assert sizes == {"a": 30 << 20, "b": (1 << 20) + 4, "e": 70 << 20, "f": 1 << 20}, sizes
