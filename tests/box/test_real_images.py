"""Images that people have: whatever is imported runs. The archives come from mmdebstrap, docker, podman and busybox
themselves (tests/support/images.py)."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cgroups import TestGroups
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon
from support.glovebox import Glovebox, Place, reachable_binary
from support.images import MAKERS, archive

PYTHONS = {
    "debian12": "3.11",
    "debian13": "3.13",
    "docker-save": "3.13",
    "docker-export": "3.13",
    "oci-archive": "3.11",
    "oci-dir": "3.11",
    "elsewhere": "3.11",
}
WITHOUT = ["without-python", "busybox"]
pytestmark = pytest.mark.timeout(400)  # the first use of an image makes it
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


@pytest.fixture(scope="module")
def shelf(binary: Path, groups: dict[str, TestGroups]) -> Iterator[Glovebox]:
    """One data directory of root's into which each image is imported once."""
    place = Place("root")
    yield Glovebox(reachable_binary(binary, place), place, groups["root"])
    place.remove()


def put(glovebox: Glovebox, name: str) -> str:
    if not (glovebox.place.data / "images" / name).exists():
        done = glovebox("image", "import", name, archive(name), timeout=120)
        assert done.returncode == 0, done.stderr
    return name


def ready(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if status["nursery"] and status["nursery"]["state"] == "ready" else None


def link(source: str, target: str) -> None:
    os.link(source, target, follow_symlinks=False)


def test_every_kind_of_image_is_tried() -> None:
    of_engines = {"debian12-venv", "debian12-apt", "debian12-small", "caddy"}  # tests/engines
    assert {*PYTHONS, *WITHOUT} == set(MAKERS) - of_engines


@pytest.mark.parametrize("name", sorted(PYTHONS))
def test_image_runs_python_bash_and_commands(shelf: Glovebox, name: str) -> None:
    put(shelf, name)
    ran = shelf("run", "--no-daemon", "--image", name, "-c", VERSION)
    assert (ran.returncode, ran.stdout) == (0, PYTHONS[name] + "\n"), ran.stderr
    script = "id -un; cd ~; touch a; echo $HOME; cat /etc/hostname; head -1 /etc/passwd"
    ran = shelf("run", "--no-daemon", "--image", name, "-l", "bash", "-c", script)
    assert ran.stdout.split("\n") == ["sandbox", "/home/sandbox", "sandbox", "root:x:0:0:root:/:/bin/sh", ""]
    ran = shelf("run", "--no-daemon", "--image", name, "--", "python3", "-c", VERSION)
    if name == "elsewhere":
        assert ran.returncode == 127, "that interpreter has another name"
        ran = shelf("run", "--no-daemon", "--image", name, "--", "python3.11", "-c", VERSION)
    assert (ran.returncode, ran.stdout) == (0, PYTHONS[name] + "\n"), ran.stderr


@pytest.mark.parametrize("name", WITHOUT)
def test_image_without_python_runs_commands_and_names_what_it_lacks(shelf: Glovebox, name: str) -> None:
    put(shelf, name)
    ran = shelf("run", "--no-daemon", "--image", name, "--", "sh", "-c", "echo $((6 * 7)); id -u; ls -d /tmp ~")
    assert ran.stdout.split() == ["42", "1000", "/home/sandbox", "/tmp"], ran.stderr
    ran = shelf("run", "--no-daemon", "--image", name, "-l", "sh", "-c", "echo a | cat")
    assert ran.stdout == "a\n", ran.stderr
    ran = shelf("run", "--no-daemon", "--image", name, "-c", "print(1)")
    assert ran.returncode == 125 and f"image {name} has no python3" in ran.stderr and "--" in ran.stderr


def test_image_without_an_etc_has_its_user(shelf: Glovebox) -> None:
    ran = shelf("run", "--no-daemon", "--image", put(shelf, "busybox"), "--", "sh", "-c", "id -un; cat /etc/group")
    assert ran.stdout.split("\n")[:2] == ["sandbox", "root:x:0:"], ran.stderr


def test_image_stays_read_only_where_it_was_opened(shelf: Glovebox) -> None:
    script = "for at in / /home /opt /mnt /usr /etc; do touch $at/x 2>/dev/null && echo $at; done; true"
    mounted = shelf.place.make("mounted")
    for more in ([], ["--mount", f"{mounted}:/mnt/deep/er"], ["--mount", f"{mounted}:/var/lib/mine"]):
        ran = shelf("run", "--no-daemon", "--image", put(shelf, "debian13"), *more, "-l", "bash", "-c", script)
        assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    assert not list(mounted.iterdir())
    shutil.rmtree(mounted)


def test_mount_appears_in_a_directory_of_the_image_beside_what_is_there(shelf: Glovebox) -> None:
    source = shelf.place.write("note", "seen")
    script = "cat /var/lib/mine/note; ls -d /var/lib/dpkg /var/cache; ls -A /run | grep opened; true"
    ran = shelf(
        "run", "--no-daemon", "--image", put(shelf, "debian13"), "--mount", f"{source}:/var/lib/mine/note",
        "-l", "bash", "-c", script,
    )  # fmt: skip
    assert ran.stdout.split() == ["seen/var/cache", "/var/lib/dpkg"], ran.stderr
    ran = shelf(
        "run", "--no-daemon", "--image", "debian13", "--mount", f"{source}:/etc/../x", "-l", "bash", "-c", "true"
    )
    assert ran.returncode == 2
    ran = shelf(
        "run", "--no-daemon", "--image", "debian13", "--mount", f"{source}:/var/lock/x", "-l", "bash", "-c", "true"
    )
    assert ran.returncode == 2 and "/var/lock is a symbolic link" in ran.stderr


def test_variables_of_an_image_hold_unless_they_describe_the_box(shelf: Glovebox) -> None:
    for name in ("docker-save", "oci-archive"):
        put(shelf, name)
        show = "import os; print(os.environ['COLOUR'], os.environ['PATH'], os.environ['HOME'])"
        ran = shelf("run", "--no-daemon", "--image", name, "-c", show)
        assert ran.stdout == "teal /opt/own/bin:/usr/bin:/bin /home/sandbox\n", ran.stderr
        ran = shelf("run", "--no-daemon", "--image", name, "-e", "COLOUR=red", "-c", show)
        assert ran.stdout.startswith("red ")
    shown = json.loads(shelf("image", "show", "docker-save", "--json").stdout)
    assert shown["config"]["WorkingDir"] == "/srv"


def test_damaged_blob_is_refused_by_its_digest(shelf: Glovebox) -> None:
    copy = shelf.place.path / "layout"
    shutil.copytree(archive("oci-dir"), copy)
    layer = max(copy.glob("blobs/sha256/*"), key=lambda path: path.stat().st_size)
    content = bytearray(layer.read_bytes())
    content[len(content) // 2] ^= 1
    layer.write_bytes(content)
    done = shelf("image", "import", "damaged", copy, timeout=60)
    assert done.returncode == 125 and "does not have the digest" in done.stderr
    assert not (shelf.place.data / "images/damaged").exists()
    shutil.rmtree(copy)


def test_ordinary_user_imports_and_runs(user_glovebox: Glovebox) -> None:
    for name in ("debian13", "oci-dir", "busybox"):
        put(user_glovebox, name)
        ran = user_glovebox("run", "--no-daemon", "--image", name, "--", "sh", "-c", "id -un; cd ~; touch x && ls")
        assert ran.stdout.split() == ["sandbox", "x"], ran.stderr


def imported(shelf: Glovebox, start_daemon: StartDaemon, name: str, *options: str) -> Daemon:
    """A daemon whose sessions have this image."""
    daemon = start_daemon("--image", put(shelf, name), *options, start=False)
    shutil.copytree(
        shelf.place.data / "images" / name, daemon.data / "images" / name, symlinks=True, copy_function=link
    )
    return daemon.start()


@pytest.mark.parametrize("name", ["debian12", "debian13", "elsewhere"])
def test_nursery_and_pool_serve_an_imported_image(shelf: Glovebox, start_daemon: StartDaemon, name: str) -> None:
    """Forked, not executed: the modules that the image has are imported already, the others are named."""
    daemon = imported(shelf, start_daemon, name, "--pool", "1", "--box-pool", "1", "--preload", "json,numpy,pandas")
    client = daemon.client()
    status = wait_for("the nursery", lambda: ready(client.request("status")))
    wait_for("the pool", lambda: client.request("status")["pool"]["ready"] == 1)
    assert status["nursery"]["preloaded"] == (2 if name == "debian13" else 1), status["nursery"]
    for code, printed in ((VERSION, PYTHONS[name]), ("import sys; print('json' in sys.modules)", "True")):
        assert client.request("execute", session="a", code=code)["stdout"] == printed + "\n"
    assert client.request("command", session="a", shell="cd ~ && pwd")["stdout"] == "/home/sandbox\n"
    assert client.request("execute", ephemeral=True, code=VERSION)["stdout"] == PYTHONS[name] + "\n"
    assert client.request("status")["nursery"]["forks"] >= 2
    assert not re.search("starts cold", daemon.words())


# Forked from a nursery that imported `this`, with the nursery's snapshot: both depend on the Python version.
FORKED = "import sys; print('this' in sys.modules, 'memfd:snapshot' in open('/proc/self/maps').read())"


def lead_a_life(daemon: Daemon, version: str) -> None:
    """Cells, an error, an interrupt, a pause, a sleep and a wake, in kernels from the nursery; then a light kernel."""
    client = daemon.client()
    wait_for("the nursery", lambda: ready(client.request("status")))

    def run(code: str) -> dict[str, Any]:
        done = client.request("execute", session="life", code=code)
        assert not done.get("variables_lost"), done
        return done

    assert run(f"{VERSION}\n{FORKED}")["stdout"] == f"{version}\nTrue True\n", daemon.words()
    assert (
        run("class Point:\n    x = 40\ndef f(y): return Point.x + y\nimport math\nkept = [math.pi]")["status"] == "ok"
    )
    assert run("f(2)")["result"] == {"text/plain": "42"}
    failed = run("def g():\n    return 1 / 0\ng()")
    assert failed["error"]["name"] == "ZeroDivisionError" and "return 1 / 0" in failed["error"]["traceback"]
    assert client.request("execute", session="life", code="while True: pass", timeout_ms=300)["status"] == "timeout"
    time.sleep(1.5)  # after a second the kernel returns pages that equal the nursery's
    assert run("import gc; gc.collect(); f(2), kept")["result"] == {"text/plain": "(42, [3.141592653589793])"}
    slept = client.request("session.hibernate", session="life", depth="sleep")
    assert slept["state"] == "asleep", slept
    assert run(f"{FORKED}\nf(2), kept")["result"] == {"text/plain": "(42, [3.141592653589793])"}
    assert run(FORKED)["stdout"] == "True True\n", "it woke in a forked kernel"
    assert (
        run("import threading; t = threading.Thread(target=print, args=('on',)); t.start(); t.join()")["stdout"]
        == "on\n"
    )
    wait_for("light kernels", lambda: client.request("status")["pool"]["light_ready"] == 1)
    done = client.request("execute", ephemeral=True, light=True, code=FORKED)
    assert done["stdout"] == "False True\n", done
    assert not re.search("starts cold", daemon.words())


@pytest.mark.parametrize("name", ["debian12", "debian13"])
def test_sessions_of_each_debian_are_forked_and_sleep(shelf: Glovebox, start_daemon: StartDaemon, name: str) -> None:
    lead_a_life(imported(shelf, start_daemon, name, "--pool", "1", "--preload", "this"), PYTHONS[name])


def other_pythons() -> list[str]:
    """Interpreters of this host beside the system's own, of versions that the snapshot was tried with."""
    found = {}
    for version in ("3.11", "3.12", "3.13"):
        for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")):
            found[version] = str(path)
        if (path := shutil.which(f"python{version}", path="/usr/local/bin:/opt/python/bin")) is not None:
            found[version] = path
    return list(found.values())


@pytest.mark.skipif(not other_pythons(), reason="optional: no other python3.11, 3.12 or 3.13 on this host")
@pytest.mark.parametrize("path", other_pythons())
def test_sessions_of_other_pythons_are_forked_and_sleep(start_daemon: StartDaemon, path: str) -> None:
    daemon = start_daemon("--pool", "1", "--preload", "this", env={"GLOVEBOX_PYTHON": path})
    lead_a_life(daemon, path.rpartition("python")[2])
