"""Files of a sandbox by the Python package."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from glovebox import FileMissingError, GloveboxError, NotFoundError, RefusedError, Sandbox


def test_text_bytes_and_streams_come_back_as_they_went(sandbox: Sandbox) -> None:
    files = sandbox.files
    written = files.write("deep/down/a.txt", "größe")
    assert (written.path, written.size, written.is_file) == ("/workspace/deep/down/a.txt", 7, True)
    assert files.read("/workspace/deep/down/a.txt") == "größe"
    blob = os.urandom(3_000_000)
    files.write("blob", blob)
    assert files.read("blob", "bytes") == blob
    assert b"".join(files.read("blob", "stream")) == blob
    files.write("from-file", io.BytesIO(blob))
    files.write("from-pieces", (blob[at : at + 1000] for at in range(0, 10_000, 1000)), sync=True)
    assert files.read("from-file", format="bytes") == blob and files.read("from-pieces", "bytes") == blob[:10_000]
    assert b"".join(files.read_pieces("blob", 10, 20)) == blob[10:30]
    files.write("empty", "")
    assert files.read("empty") == ""
    assert sandbox.run_code("open('deep/down/a.txt').read()").text == "'größe'"


def test_several_at_once(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.write_files({"a": "1", "b": b"2"})
    files.write_files([("c", "3")])
    files.write_files([{"path": "d", "data": "4"}])
    assert [files.read(name) for name in "abcd"] == ["1", "2", "3", "4"]


def test_listing_looking_renaming_removing(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.write_files({"x/one.txt": "1", "x/y/two.txt": "22", "x/a b&c?.txt": "odd"})
    assert [entry.name for entry in files.list("x")] == ["a b&c?.txt", "one.txt", "y"]
    assert "/workspace/x/y/two.txt" in [entry.path for entry in files.list("x", depth=2)]
    assert files.read("x/a b&c?.txt") == "odd"
    info = files.get_info("x/y/two.txt")
    assert (info.type, info.size, info.name) == ("file", 2, "two.txt") and info.modified > 1e9
    assert files.get_info("x").is_dir and files.exists("x") and not files.exists("nothing/here")
    assert files.rename("x/one.txt", "moved/one.txt").path == "/workspace/moved/one.txt"
    assert not files.exists("x/one.txt") and files.read("moved/one.txt") == "1"
    assert files.make_dir("m/n/o") is True and files.make_dir("m/n/o") is False
    files.remove("x")
    files.remove("moved/one.txt")
    assert not files.exists("x")
    sandbox.set("v", [1])
    assert ".glovebox" not in [entry.name for entry in files.list()]


def test_a_missing_file_is_a_file_not_found_error(sandbox: Sandbox) -> None:
    for call in (
        lambda: sandbox.files.read("nope.txt"),
        lambda: sandbox.files.list("nope"),
        lambda: sandbox.files.get_info("nope"),
        lambda: sandbox.files.remove("nope"),
        lambda: sandbox.files.rename("nope", "b"),
    ):
        with pytest.raises(FileNotFoundError, match="nope") as raised:
            call()
        assert isinstance(raised.value, FileMissingError) and isinstance(raised.value, NotFoundError)


def test_paths_outside_the_workspace_are_refused(sandbox: Sandbox) -> None:
    sandbox.run_code("import os; os.symlink('/etc', 'link')")
    with pytest.raises((RefusedError, FileMissingError)):
        sandbox.files.read("link/passwd")


def test_whole_folders_go_in_and_out(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub/empty").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "sub/b.bin").write_bytes(bytes(range(256)))
    assert len(sandbox.files.upload(source)) == 2
    sandbox.files.upload(source / "a.txt", "elsewhere/")
    assert sandbox.files.read("elsewhere/a.txt") == "a" and sandbox.files.get_info("source/sub/empty").is_dir
    sandbox.run_code("import os; os.symlink('/etc/passwd', 'source/link')")
    sandbox.files.download("source", tmp_path / "copy")
    found = sorted(str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*"))
    assert found == ["a.txt", "sub", "sub/b.bin", "sub/empty"]
    assert (tmp_path / "copy/sub/b.bin").read_bytes() == bytes(range(256))
    assert sandbox.files.download("source/a.txt", tmp_path) == str(tmp_path / "a.txt")


def test_a_download_writes_through_no_link(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.files.write("folder/target", "new")
    (tmp_path / "outside").write_text("old")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/target").symlink_to(tmp_path / "outside")
    with pytest.raises(GloveboxError, match="is a link"):
        sandbox.files.download("folder", tmp_path / "copy")
    assert (tmp_path / "outside").read_text() == "old"


def test_a_source_that_fails_leaves_no_file(sandbox: Sandbox) -> None:
    def pieces() -> object:
        yield b"some"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        sandbox.files.write("half", pieces())  # type: ignore[arg-type]
    assert not sandbox.files.exists("half")


def test_artifacts_are_listed_read_and_copied(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.run_code("import os\nos.makedirs('artifacts/sub')\nopen('artifacts/sub/a.txt', 'w').write('hello')")
    (artifact,) = sandbox.artifacts.list()
    assert list(sandbox.artifacts) == sandbox.artifacts() == [artifact]
    assert artifact.path == "/workspace/artifacts/sub/a.txt" and artifact.mime == "text/plain"
    assert sandbox.artifacts.read(artifact) == sandbox.artifacts.read("sub/a.txt") == b"hello"
    assert sandbox.artifacts.download(tmp_path) == [str(tmp_path / "sub/a.txt")]
    assert (tmp_path / "sub/a.txt").read_text() == "hello"


def test_other_places_are_reached_with_the_rights_of_the_code(sandbox: Sandbox, tmp_path: Path) -> None:
    files = sandbox.files
    blob = os.urandom(500_000)
    assert files.write("/tmp/deep/blob", blob).size == len(blob)
    assert sandbox.run_code("import os; os.path.getsize('/tmp/deep/blob')").text == "500000"
    assert files.read("/tmp/deep/blob", "bytes") == blob
    assert b"".join(files.read_pieces("/tmp/deep/blob", 5, 10)) == blob[5:15]
    assert files.get_info("/tmp/deep").is_dir and files.get_info("/tmp/deep/blob").size == len(blob)
    assert [entry.path for entry in files.list("/tmp/deep")] == ["/tmp/deep/blob"]
    files.rename("/tmp/deep/blob", "here")
    assert files.read("here", "bytes") == blob and not files.exists("/tmp/deep/blob")
    files.rename("here", "/tmp/there")
    files.download("/tmp/there", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == blob
    assert files.make_dir("/tmp/a/b/c") and not files.make_dir("/tmp/a/b/c")
    files.remove("/tmp/a")
    assert not files.exists("/tmp/a")
    with pytest.raises(FileNotFoundError):
        files.read("/tmp/nothing")
    with pytest.raises(PermissionError):
        files.write("/etc/x", "1")
    with pytest.raises(GloveboxError, match="regular file"):
        files.read("/tmp")
    assert files.list("/workspace/.glovebox") == []
    assert "sandbox" in files.read("/etc/passwd"), "the /etc of the box, not of the host"
