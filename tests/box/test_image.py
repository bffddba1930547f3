"""Images: what is imported stays where it belongs, and comes into being as a whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import signal
import tarfile
from collections.abc import Callable

import pytest
from support.image_store import (
    Put,
    Store,
    directory,
    hardlink,
    member,
    symlink,
    tar,
    wait_for,
    zstd,
)

# Plain root file systems


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_rootfs_tar_becomes_an_image(store: Store, put: Put, format: int) -> None:
    deep = "usr/share/" + "d" * 90 + "/" + "e" * 60
    data = tar(
        directory("./"),
        directory("./usr/"),
        member("./usr/bin/python3", b"#!", mode=0o755),
        member("./usr/bin/bash", b"#!", mode=0o755),
        member("/usr/absolute", b"inside"),
        member(deep, b"long"),
        symlink("bin", "usr/bin"),
        hardlink("usr/again", "usr/absolute"),
        format=format,
    )
    assert "/usr/bin/python3" in store.ok("import", "x", put(data))
    root = store.rootfs()
    assert (root / deep).read_bytes() == b"long"
    assert (root / "usr/again").read_bytes() == b"inside"
    assert os.stat(root / "usr/again").st_ino == os.stat(root / "usr/absolute").st_ino
    assert os.readlink(root / "bin") == "usr/bin"
    assert int((root / deep).stat().st_mtime) == 1_000_000_000
    shown = store.show("x")
    assert (shown["kind"], shown["python"], shown["shell"]) == ("rootfs", "/usr/bin/python3", "/bin/bash")
    assert [image["name"] for image in json.loads(store.ok("list", "--json"))] == ["host", "x"]
    assert store.ok("list", "--names").split() == ["host", "x"]
    assert "removed" in store.ok("rm", "x")
    assert store.names() == set()


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_compressed_tar_is_recognised_by_its_first_bytes(store: Store, put: Put, pack: Callable) -> None:
    store.ok("import", "x", put(pack(tar(member("a", b"1" * 100_000), member("b", b"2")))))
    assert (store.rootfs() / "a").read_bytes() == b"1" * 100_000
    assert (store.rootfs() / "b").read_bytes() == b"2"


def test_import_reads_standard_input(store: Store) -> None:
    done = store.run("import", "x", "-", stdin=tar(member("a", b"1")))
    assert done.returncode == 0, done.stderr
    assert (store.rootfs() / "a").read_bytes() == b"1"
    assert store.show("x")["source"] == "standard input"


def test_later_entries_of_one_name_replace_earlier_ones(store: Store, put: Put) -> None:
    data = tar(
        member("a", b"old"),
        member("a", b"new"),
        directory("d"),
        member("d/inside", b""),
        member("d", b"now a file"),
        symlink("s", str(store.canary / "secret")),
        member("s", b"now a file too"),
        member("f", b""),
        directory("f"),
        member("f/inside", b""),
    )
    store.ok("import", "x", put(data))
    root = store.rootfs()
    assert (root / "a").read_bytes() == b"new"
    assert (root / "d").read_bytes() == b"now a file"
    assert not (root / "s").is_symlink() and (root / "s").read_bytes() == b"now a file too"
    assert (root / "f" / "inside").exists()
    assert (store.canary / "secret").read_text() == "untouched"


def test_setuid_goes_and_everything_is_readable(store: Store, put: Put) -> None:
    data = tar(
        member("su", b"", mode=0o6755),
        member("hidden", b"", mode=0o000),
        member("program", b"", mode=0o700),
        member("shared", b"", mode=0o666),
        member("d", kind=tarfile.DIRTYPE, mode=0o1000),
    )
    mask = os.umask(0o077)
    try:
        store.ok("import", "x", put(data))
    finally:
        os.umask(mask)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in store.rootfs().iterdir()}
    assert modes == {"su": 0o755, "hidden": 0o444, "program": 0o755, "shared": 0o644, "d": 0o755}
    assert {path.stat().st_uid for path in store.rootfs().iterdir()} == {os.geteuid()}


def test_devices_and_fifos_are_left_out_and_counted(store: Store, put: Put) -> None:
    kinds = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    data = tar(*[member(f"dev/{i}", kind=kind) for i, kind in enumerate(kinds)], member("a"))
    assert "3 devices" in store.ok("import", "x", put(data))
    assert os.listdir(store.rootfs()) == ["a"]
    assert store.show("x")["skipped"] == 3


# Hostile ones


UP = "../" * 12
HOSTILE: dict[str, Callable[[str], bytes]] = {
    "dot-dot": lambda canary: tar(member("a/../../x", b"out")),
    "dot-dot-only": lambda canary: tar(directory("..")),
    "dot-dot-absolute": lambda canary: tar(member("/../../x", b"out")),
    "write-through-absolute-link": lambda canary: tar(symlink("d", canary), member("d/secret", b"out")),
    "write-through-relative-link": lambda canary: tar(symlink("d", UP + canary), member("d/new", b"out")),
    "write-through-chain": lambda canary: tar(symlink("a", "b"), symlink("b", canary), member("a/secret", b"out")),
    "write-through-link-to-itself": lambda canary: tar(symlink("a", "a"), member("a/x", b"out")),
    "write-through-inner-link": lambda canary: tar(directory("d"), symlink("l", "d"), member("l/x", b"")),
    "directory-through-link": lambda canary: tar(symlink("d", canary), directory("d/new")),
    "link-through-link": lambda canary: tar(symlink("d", canary), symlink("d/new", "x")),
    "fifo-parent-file": lambda canary: tar(member("f"), member("f/x")),
    "hardlink-dot-dot": lambda canary: tar(hardlink("h", UP + canary + "/secret")),
    "hardlink-absolute": lambda canary: tar(hardlink("h", canary + "/secret")),
    "hardlink-through-link": lambda canary: tar(symlink("d", canary), hardlink("h", "d/secret")),
    "hardlink-to-link": lambda canary: tar(symlink("s", canary + "/secret"), hardlink("h", "s"), member("h", b"out")),
    "hardlink-to-directory": lambda canary: tar(directory("d"), hardlink("h", "d")),
    "hardlink-to-nothing": lambda canary: tar(hardlink("h", "nothing")),
    "hardlink-over-link": lambda canary: tar(hardlink("d/h", "x")),
    "root-is-a-link": lambda canary: tar(symlink("./", canary)),
    "too-many-links": lambda canary: tar(*[symlink(f"l{i}", "x") for i in range(100)]),
    "too-deep": lambda canary: tar(directory("d/" * 1500)),
    "long-component": lambda canary: tar(member("n" * 256)),
    "long-path": lambda canary: tar(member("n/" * 2100 + "x")),
    "truncated-contents": lambda canary: tar(member("a", b"1" * 5000))[:2000],
    "truncated-header": lambda canary: tar(member("a", b"1"), member("b"))[:1200],
    "no-end": lambda canary: tar(member("a", b"1"))[:1024],
    "empty": lambda canary: b"",
    "empty-tar": lambda canary: b"\0" * 10240,
    "not-a-tar": lambda canary: b"hello, this is text\n" * 100,
    "gzip-of-text": lambda canary: gzip.compress(b"hello, this is text\n" * 100),
    "gzip-cut-off": lambda canary: gzip.compress(tar(member("a", os.urandom(5000))))[:-1000],
    "xz": lambda canary: b"\xfd7zXZ\0" + b"\0" * 100,
    "zip": lambda canary: b"PK\x03\x04" + b"\0" * 100,
    "gzip-bomb": lambda canary: gzip.compress(tar(member("a", bytes(200 << 20))), 9),
    "manifest-without-layers": lambda canary: tar(member("manifest.json", b"[{}]")),
    "manifest-of-nothing": lambda canary: tar(member("manifest.json", b"[]")),
    "manifest-not-json": lambda canary: tar(member("manifest.json", b"[{]")),
    "manifest-deep": lambda canary: tar(member("manifest.json", b"[" * 100_000)),
    "manifest-huge": lambda canary: tar(member("manifest.json", b" " * (5 << 20) + b"[]")),
    "manifest-lost-layer": lambda canary: tar(member("manifest.json", b'[{"Layers": ["gone/layer.tar"]}]')),
    "manifest-dot-dot": lambda canary: tar(member("manifest.json", b'[{"Layers": ["../../etc/passwd"]}]')),
    "manifest-link-loop": lambda canary: tar(
        member("manifest.json", b'[{"Layers": ["a"]}]'), symlink("a", "b"), symlink("b", "a")
    ),
    "oci-bad-digest": lambda canary: tar(
        member("oci-layout", b"{}"),
        member("index.json", b'{"manifests": [{"digest": "sha256:../../../../etc/passwd/xxxxxxxxxxxxxxxxx"}]}'),
    ),
    "oci-index-of-itself": lambda canary: self_naming_index(),
}


def self_naming_index() -> bytes:
    digest = "sha256:" + "0" * 64
    index = json.dumps({"manifests": [{"digest": digest}]}).encode()
    return tar(member("oci-layout", b"{}"), member("index.json", index), member("blobs/sha256/" + "0" * 64, index))


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_archive_is_refused_and_leaves_nothing(store: Store, put: Put, name: str) -> None:
    archive = put(HOSTILE[name](str(store.canary)))
    said = store.refused("import", "x", archive)
    assert "not a tar archive" not in said or f"{archive}: this is not" in said, said


def test_size_that_lies_is_refused(store: Store, put: Put) -> None:
    info, _ = member("a")
    info.size = 1 << 50
    store.refused("import", "x", put(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096))


def test_image_larger_than_max_size_is_refused(store: Store, put: Put) -> None:
    archive = put(tar(member("a", b"1" * 700_000), member("b", b"2" * 700_000)))
    assert "--max-size" in store.refused("import", "x", archive, "--max-size", "1m")
    store.ok("import", "x", archive, "--max-size", "2m")


def test_wrong_usage_is_one_sentence(store: Store, put: Put) -> None:
    archive = put(tar(member("a")))
    for arguments in (
        ["import", "x"],
        ["import", "../x", archive],
        ["import", "host", archive],
        ["import", "X", archive],
        ["import", "x", archive, "--max-size", "0"],
        ["import", "x", archive, "--max-size", "12x"],
        ["import", "x", archive, "--json"],
        ["import", "x", "/nonexistent"],
        ["list", "--nonsense"],
        ["build", "other"],
        ["build", "--packages", "--index-url=x"],
        ["build", "--packages", "../x"],
        ["build", "--packages", ""],
        ["build", "--packages", "a", "--requirements", "b"],
        ["rm"],
    ):
        store.refused(*arguments, status=2)
    for arguments in (["show", "x"], ["rm", "x"], ["rm", "host"]):
        store.refused(*arguments)
    store.ok("import", "x", archive)
    assert "already" in store.refused("import", "x", archive)


# Interruption


def test_interrupted_import_leaves_nothing(store: Store) -> None:
    process = store.start("import", "x", "-")
    assert process.stdin
    process.stdin.write(tar(member("a", b"1" * 100_000))[:50_000])
    process.stdin.flush()
    wait_for(lambda: any(name.startswith(".tmp-") for name in store.names()))
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130, message
    assert store.names() == set()


def test_leftovers_of_a_killed_import_are_removed_by_the_next(store: Store, put: Put) -> None:
    process = store.start("import", "x", "-")
    wait_for(lambda: any(name.startswith(".tmp-") for name in store.names()))
    process.kill()
    process.communicate(timeout=60)
    assert store.names() != set()
    store.ok("import", "y", put(tar(member("a"))))
    assert store.names() == {"y"}
