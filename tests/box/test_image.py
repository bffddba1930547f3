"""Images: what is imported stays where it belongs, and comes into being as a whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOVEBOX = Path(os.environ.get("GLOVEBOX", ROOT / "build" / "glovebox")).absolute()
SECOND = 1.0  # what must happen soon happens within 60 of these, or the test fails


class Store:
    """A data directory of its own, and the program working on it."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.canary = directory / "canary"
        self.canary.mkdir()
        (self.canary / "secret").write_text("untouched")

    def environment(self, **more: str) -> dict[str, str]:
        hidden = ("GLOVEBOX_PYTHON", "PYTHONPATH", "PIP_INDEX_URL")
        kept = {key: value for key, value in os.environ.items() if key not in hidden}
        return {**kept, "GLOVEBOX_DATA_DIR": str(self.data), "GLOVEBOX_SHARED_DATA_DIR": "none", **more}

    def run(self, *args: str, stdin: bytes | None = None, **more: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(GLOVEBOX), "image", *args]
        environment = self.environment(**more)
        return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=100, env=environment)

    def start(self, *args: str, **more: str) -> subprocess.Popen[bytes]:
        # A shell's background job ignores SIGINT, and so would what it starts.
        command = ["env", "--default-signal=INT", str(GLOVEBOX), "image", *args]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment(**more))

    def ok(self, *args: str, **more: str) -> str:
        done = self.run(*args, **more)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def refused(self, *args: str, status: int = 125, **more: str) -> str:
        """The program says no in one line, and nothing has changed."""
        before = self.names()
        done = self.run(*args, **more)
        message = done.stderr.decode()
        assert done.returncode == status, (done.returncode, message)
        assert message.startswith("glovebox: ") and message.count("\n") == 1, message
        assert self.names() == before
        assert (self.canary / "secret").read_text() == "untouched"
        assert os.listdir(self.canary) == ["secret"]
        return message

    def names(self) -> set[str]:
        images = self.data / "images"
        return set(os.listdir(images)) - {".lock", "host"} if images.exists() else set()

    def show(self, name: str) -> dict:
        return json.loads(self.ok("show", name, "--json"))

    def rootfs(self, name: str = "x") -> Path:
        return self.data / "images" / name / "rootfs"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size, info.mtime = kind, link, mode, len(data), 1_000_000_000
    return info, data


def directory(name: str) -> Member:
    return member(name, kind=tarfile.DIRTYPE, mode=0o755)


def symlink(name: str, target: str) -> Member:
    return member(name, kind=tarfile.SYMTYPE, link=target)


def hardlink(name: str, target: str) -> Member:
    return member(name, kind=tarfile.LNKTYPE, link=target)


def tar(*members: Member, format: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    if not shutil.which("zstd"):
        pytest.skip("the zstd command is missing (apt install zstd)")
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True, timeout=60).stdout


@pytest.fixture
def put(store: Store, tmp_path: Path) -> Callable[[bytes], str]:
    def write(data: bytes) -> str:
        path = tmp_path / "image.tar"
        path.write_bytes(data)
        return str(path)

    return write


Put = Callable[[bytes], str]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60 * SECOND
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.02)


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
    store.refused("import", "x", archive)


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
        ["list", "--nonsense"],
        ["build", "other"],
        ["build", "--packages", "--index-url=x"],
        ["build", "--packages", "../x"],
        ["build", "--packages", ""],
        ["build", "--packages", "a", "--requirements", "b"],
        ["rm"],
    ):
        store.refused(*arguments, status=2)
    for arguments in (["import", "x", "/nonexistent"], ["show", "x"], ["rm", "x"], ["rm", "host"]):
        store.refused(*arguments)
    store.ok("import", "x", archive)
    assert "already" in store.refused("import", "x", archive)


# Layered archives


def blob(data: bytes) -> tuple[str, Member]:
    digest = hashlib.sha256(data).hexdigest()
    return f"sha256:{digest}", member(f"blobs/sha256/{digest}", data)


CONFIG = json.dumps(
    {
        "architecture": "amd64",
        "config": {
            "Env": ["PATH=/opt/own/bin:/bin", "LANG=C"],
            "Cmd": ["sh"],
            "WorkingDir": "/srv",
            "Labels": {"a": "b"},
        },
    }
).encode()

LAYERS = [
    tar(
        member("keep", b"1"),
        member("gone", b"1"),
        member("changed", b"1"),
        directory("dir"),
        member("dir/gone", b"1"),
        directory("opaque"),
        member("opaque/old", b"1"),
        directory("opaque/olddir"),
        symlink("link", "keep"),
    ),
    tar(
        member(".wh.gone"),
        member("changed", b"2"),
        member("dir/.wh.gone"),
        member("dir/new", b"2"),
        member("opaque/new", b"2"),  # before the whiteout, which speaks only of what lies below this layer
        member("opaque/.wh..wh..opq"),
        member(".wh..wh.plnk"),
        member(".wh.link"),
        directory("link"),
        member("link/inside", b"2"),
        member("opt/own/bin/python3", b"#!", mode=0o755),
    ),
]


def check_layers(store: Store, kind: str) -> None:
    root = store.rootfs()
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    assert found == ["changed", "dir/new", "keep", "link/inside", "opaque/new", "opt/own/bin/python3"]
    assert not (root / "opaque/olddir").exists()
    assert (root / "changed").read_bytes() == b"2"
    shown = store.show("x")
    assert (shown["kind"], shown["python"], shown["architecture"]) == (kind, "/opt/own/bin/python3", "amd64")
    assert shown["config"] == {"Env": ["PATH=/opt/own/bin:/bin", "LANG=C"], "Cmd": ["sh"], "WorkingDir": "/srv"}
    assert shown["reference"] == "name:tag"


def docker_save(layers: list[bytes]) -> list[Member]:
    names = [f"{i}/layer.tar" for i in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": ["name:tag"], "Layers": names}]
    members = [member(name, layer) for name, layer in zip(names, layers)]
    return [*members, member("config.json", CONFIG), member("manifest.json", json.dumps(manifest).encode())]


def oci_layout(layers: list[bytes]) -> list[Member]:
    blobs = [blob(layer) for layer in layers]
    config_digest, config = blob(CONFIG)
    manifest = {"config": {"digest": config_digest}, "layers": [{"digest": digest} for digest, _ in blobs]}
    manifest_digest, manifest_member = blob(json.dumps(manifest).encode())
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    inner = {
        "manifests": [
            {"digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "unknown"}},
            {"digest": manifest_digest, "platform": {"os": "linux", "architecture": machine}},
        ]
    }
    inner_digest, inner_member = blob(json.dumps(inner).encode())
    note = {"org.opencontainers.image.ref.name": "name:tag"}
    index = {"manifests": [{"digest": inner_digest, "annotations": note}]}
    return [
        member("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'),
        member("index.json", json.dumps(index).encode()),
        *[m for _, m in blobs],
        config,
        manifest_member,
        inner_member,
    ]


def test_docker_save_applies_layers_and_whiteouts(store: Store, put: Put) -> None:
    store.ok("import", "x", put(tar(*docker_save(LAYERS))))
    check_layers(store, "docker")


def test_docker_save_compressed_inside_and_outside(store: Store, put: Put) -> None:
    store.ok("import", "x", put(gzip.compress(tar(*docker_save([gzip.compress(LAYERS[0]), LAYERS[1]])))))
    check_layers(store, "docker")


def test_docker_save_with_linked_layer(store: Store, put: Put) -> None:
    members = docker_save(LAYERS)
    members[0] = symlink("0/layer.tar", "../real/layer.tar")
    store.ok("import", "x", put(tar(*members, member("real/layer.tar", LAYERS[0]))))
    check_layers(store, "docker")


def test_oci_layout_with_gzip_and_zstd_layers(store: Store, put: Put) -> None:
    store.ok("import", "x", put(tar(*oci_layout([gzip.compress(LAYERS[0]), zstd(LAYERS[1])]))))
    check_layers(store, "oci")


def test_oci_layout_from_a_pipe_compressed(store: Store) -> None:
    done = store.run("import", "x", "-", stdin=gzip.compress(tar(*oci_layout(LAYERS))))
    assert done.returncode == 0, done.stderr
    check_layers(store, "oci")


@pytest.mark.parametrize("trick", ["through-link", "whiteout-through-link", "whiteout-dot-dot"])
def test_second_layer_cannot_leave_through_the_first(store: Store, put: Put, trick: str) -> None:
    first = tar(symlink("d", str(store.canary)))
    second = {
        "through-link": tar(member("d/secret", b"out")),
        "whiteout-through-link": tar(member("d/.wh.secret")),
        "whiteout-dot-dot": tar(member(".wh...")),
    }[trick]
    store.refused("import", "x", put(tar(*docker_save([first, second]))))


def test_bytes_are_counted_over_all_layers(store: Store, put: Put) -> None:
    layers = [tar(member("same", b"1" * 400_000)) for _ in range(4)]
    assert "--max-size" in store.refused("import", "x", put(tar(*docker_save(layers))), "--max-size", "1m")


# Two data directories of one user


def test_images_of_the_usual_data_directory_are_shared(store: Store, put: Put, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    busybox = shutil.which("busybox", path="/bin:/usr/bin")
    assert busybox, "busybox is missing: run tools/setup.sh test"
    archive = put(tar(member("bin/sh", Path(busybox).read_bytes(), mode=0o755)))
    store.ok("import", "theirs", archive, GLOVEBOX_DATA_DIR=str(other))
    shared = {"GLOVEBOX_SHARED_DATA_DIR": str(other)}
    assert store.ok("list", "--names", **shared).split() == ["host", "theirs"]
    assert json.loads(store.ok("show", "theirs", "--json", **shared))["shared"] == str(other)
    command = [str(GLOVEBOX), "run", "--no-daemon", "--image", "theirs", "--", "sh", "-c", "echo $((6 * 7))"]
    ran = subprocess.run(command, capture_output=True, env=store.environment(**shared), timeout=60, check=False)
    assert ran.stdout == b"42\n", ran.stderr
    assert "shared" in store.refused("rm", "theirs", **shared)
    store.ok("import", "theirs", archive, **shared)  # one's own comes first
    assert "shared" not in json.loads(store.ok("show", "theirs", "--json", **shared))
    store.ok("rm", "theirs", **shared)
    assert store.names() == set() and (other / "images/theirs").exists()
    other.chmod(0o777)  # any user could have put it there
    assert store.ok("list", "--names", **shared).split() == ["host"]


def test_layer_of_the_usual_data_directory_is_shared(store: Store, wheels: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    store.ok("build", "--packages", "tiny", **wheels, GLOVEBOX_DATA_DIR=str(other))
    shared = {"GLOVEBOX_SHARED_DATA_DIR": str(other)}
    command = [str(GLOVEBOX), "run", "--no-daemon", "-c", "import tiny; print(tiny.version)"]
    ran = subprocess.run(command, capture_output=True, env=store.environment(**shared), timeout=60, check=False)
    assert ran.stdout == b"1.0\n", ran.stderr
    assert json.loads(store.ok("show", "host", "--json", **shared))["shared"] == str(other)


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


def test_what_a_killed_import_left_is_swept_by_the_next(store: Store, put: Put) -> None:
    process = store.start("import", "x", "-")
    wait_for(lambda: any(name.startswith(".tmp-") for name in store.names()))
    process.kill()
    process.communicate(timeout=60)
    assert store.names() != set()
    store.ok("import", "y", put(tar(member("a"))))
    assert store.names() == {"y"}


# The host image and its layer


def test_host_image_says_which_python_and_why(store: Store) -> None:
    shown = store.show("host")
    assert shown["kind"] == "host" and shown["layer"] is None
    assert Path(shown["python"]).exists() and shown["python_reason"]
    for wrong in ("/bin/false", "relative", "/nonexistent"):
        answered = json.loads(store.ok("show", "host", "--json", GLOVEBOX_PYTHON=wrong))
        assert "GLOVEBOX_PYTHON" in answered["problem"]


def wheel(directory: Path, version: str) -> None:
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(directory / f"tiny-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wheels(store: Store, tmp_path: Path) -> dict[str, str]:
    """An index of our own, so that no network is needed."""
    if not store.show("host").get("python"):
        pytest.skip("this host has no python3")
    place = tmp_path / "wheels"
    place.mkdir()
    wheel(place, "1.0")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place), "PIP_CONFIG_FILE": "/dev/null"}


def test_layer_is_built_replaced_and_removed(store: Store, wheels: dict[str, str], tmp_path: Path) -> None:
    layer = store.data / "images" / "host" / "python"
    said = store.ok("build", "--packages", "tiny==1.0", **wheels).splitlines()
    assert len(said) == 2 and said[1].startswith("image host: 1 package for Python 3.")
    assert "1.0" in (layer / "tiny.py").read_text()
    assert list((layer / "__pycache__").glob("tiny.*.pyc")), "the layer is compiled"
    assert store.show("host")["layer"]["packages"] == ["tiny 1.0"]

    assert "no-such-package" in store.refused("build", "--packages", "no-such-package", **wheels)
    assert "1.0" in (layer / "tiny.py").read_text(), "the old layer stays when a build fails"

    wheel(tmp_path / "wheels", "2.0")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("tiny>=1,<3\n")
    store.ok("build", "host", "--requirements", str(requirements), **wheels)
    assert "2.0" in (layer / "tiny.py").read_text()
    assert store.names() == set(), "nothing is left beside it"

    store.ok("rm", "host")
    assert not layer.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_build_leaves_the_old_layer(store: Store, wheels: dict[str, str], number: signal.Signals) -> None:
    layer = store.data / "images" / "host" / "python"
    store.ok("build", "--packages", "tiny", **wheels)
    with socket.create_server(("127.0.0.1", 0)) as server:  # an index that never answers
        server.settimeout(60 * SECOND)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        silent = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": url, "no_proxy": "*", "NO_PROXY": "*"}
        process = store.start("build", "--packages", "other", **silent)
        connection, _ = server.accept()
        with connection:
            process.send_signal(number)
            process.communicate(timeout=60)
            connection.settimeout(60 * SECOND)
            with contextlib.suppress(ConnectionError):
                while connection.recv(4096):  # ends when pip has ended
                    pass
    if number == signal.SIGINT:
        assert process.returncode == 130
    else:
        assert store.names() != set()
        store.ok("build", "--packages", "tiny", **wheels)
    assert store.names() == set()
    assert "1.0" in (layer / "tiny.py").read_text()
