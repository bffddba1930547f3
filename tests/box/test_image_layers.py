"""Images of layers (docker save, OCI layouts), the host image's layer, and stores that are shared."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from support.image_store import (
    GLOVEBOX,
    SECOND,
    Member,
    Put,
    Store,
    directory,
    member,
    symlink,
    tar,
    wheel,
    zstd,
)

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


# The host image and its layer


def test_host_image_names_its_python_and_the_reason(store: Store) -> None:
    shown = store.show("host")
    assert shown["kind"] == "host" and shown["layer"] is None
    assert Path(shown["python"]).exists() and shown["python_reason"]
    for wrong in ("/bin/false", "relative", "/nonexistent"):
        answered = json.loads(store.ok("show", "host", "--json", GLOVEBOX_PYTHON=wrong))
        assert "GLOVEBOX_PYTHON" in answered["problem"]


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
