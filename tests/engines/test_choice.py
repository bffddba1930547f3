"""Which engine is used, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import engines
from support.client import DaemonError
from support.daemon import wait_for
from support.daemons import StartDaemon, make_daemons


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


def docker_options(service: Callable[[str], engines.Engine]) -> tuple[str, ...]:
    return ("--docker-socket", str(service("docker").socket), "--engine-image", engines.IMAGE)


def test_one_daemon_serves_several_engines_at_once(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    daemon = start(*docker_options(service), "--podman-socket", str(service("podman").socket))
    client = daemon.client()
    for engine in ("native", "docker", "podman"):
        client.request("session.create", session=engine, engine=engine)
        client.execute(f"where = {engine!r}", engine)
    for engine in ("native", "docker", "podman"):
        assert client.execute("where", engine)["result"]["text/plain"] == repr(engine)
        assert client.request("session.show", session=engine)["engine"] == engine
    client.request("session.create", session="strong", isolation="gvisor")
    assert client.execute("1", "strong")["status"] == "ok"
    assert client.request("session.show", session="strong")["isolation"]["isolation"] == "gvisor"


def test_podman_that_would_run_something_weaker_is_refused(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    podman = service("podman")
    client = start("--podman-socket", str(podman.socket), "--engine-image", engines.IMAGE).client()
    client.request("session.create", session="s", engine="podman", isolation="gvisor")
    with pytest.raises(DaemonError, match="podman --runtime NAME system service") as caught:
        client.execute("1", "s")
    assert caught.value.code == "refused"
    wait_for("nothing to be left", lambda: not podman.boxes())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engine", "docker", "--docker-socket", "/nonexistent/d.sock"), "engine docker is not there"),
        (("--engine", "vmware"), "there is no engine"),
    ],
)
def test_a_forced_engine_that_is_not_there_is_an_error_at_the_start(
    start: StartDaemon, options: tuple[str, ...], words: str
) -> None:
    daemon = start(*options, start=False)
    assert daemon.launch().wait(60) != 0
    assert words in daemon.words()


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"engine": "docker", "image": "no-such-image:1"}, "not_found", "docker pull no-such-image:1"),
        ({"engine": "docker", "image": "../../etc"}, "usage", "no name of an image"),
        ({"engine": "docker", "image": "--privileged"}, "usage", "no name of an image"),
        ({"engine": "docker", "image": "a b"}, "usage", "no name of an image"),
        ({"engine": "podman"}, "unsupported", "engine podman is not there"),
        ({"engine": "firecracker"}, "usage", "there is no engine"),
        ({"engine": 7}, "usage", "must be a text"),
        ({"isolation": "strong"}, "usage", "isolation is"),
        ({"engine": "docker", "isolation": "vm"}, "refused", "virtual machines"),
    ],
)
def test_what_cannot_be_had_is_said_in_words(docker_daemon: object, fields: dict, code: str, words: str) -> None:
    client = docker_daemon.client()  # type: ignore[attr-defined]
    name = f"s{abs(hash(str(fields)))}"
    with pytest.raises(DaemonError, match=words) as caught:
        client.request("session.create", session=name, **fields)
        client.execute("1", name)
    assert caught.value.code == code


@pytest.fixture(scope="module")
def docker_daemon(binary: Path, service: Callable[[str], engines.Engine]) -> Iterator[object]:
    for make in make_daemons(binary):
        yield make(*docker_options(service), "--podman-socket", "/nonexistent/p.sock")


def test_an_image_without_python_says_so(start: StartDaemon, service: Callable[[str], engines.Engine]) -> None:
    engine = service("docker")
    engine.import_image("without-python", "bare:1")
    client = start(*docker_options(service)).client()
    client.request("session.create", session="bare", engine="docker", image="bare:1")
    with pytest.raises(DaemonError, match="executing it: No such file"):
        client.execute("1", "bare")


def test_a_session_moves_with_its_variables_and_files(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    daemon = start(*docker_options(service))
    client = daemon.client()
    client.execute("n = [1, 2]; m = {'n': n}; open('kept.txt', 'w').write('file')", "moving")
    for engine in ("docker", "native"):
        moved = daemon.cli("session", "move", "moving", "--engine", engine)
        assert (moved.returncode, moved.stdout) == (0, f"session moving is on {engine}\n"), moved.stderr
        done = client.execute("(n, m['n'] is n, open('kept.txt').read())", "moving")
        assert done["result"]["text/plain"] == "([1, 2], True, 'file')", done
        assert client.request("session.show", session="moving")["isolation"]["engine"] == engine
    client.execute("held = (i for i in range(3)); next(held)", "moving")
    refused = daemon.cli("session", "move", "moving", "--engine", "docker")
    assert refused.returncode != 0 and '"held" cannot come along' in refused.stderr
    daemon.kill()  # and the next daemon knows where it is
    daemon.start()
    assert daemon.client().request("session.show", session="moving")["engine"] == "native"


def test_a_long_name_of_an_image_is_kept_whole(start: StartDaemon, service: Callable[[str], engines.Engine]) -> None:
    engine = service("docker")
    repository = "registry.example.org:5000/" + "/".join(["team-with-a-long-name"] * 6)
    engine.api.ask("POST", f"/images/{engines.IMAGE}/tag?repo={repository}&tag=v1").read()
    daemon = start(*docker_options(service))
    client = daemon.client()
    client.request("session.create", session="long", engine="docker", image=f"{repository}:v1")
    assert client.execute("40 + 2", "long")["result"] == {"text/plain": "42"}
    daemon.kill()
    shown = daemon.start().client().request("session.show", session="long")
    assert shown["image"] == shown["isolation"]["image"] == f"{repository}:v1"


def test_run_says_what_to_type_for_another_engine(start: StartDaemon) -> None:
    daemon = start()
    for option in (("--engine", "docker"), ("--isolation", "gvisor")):
        refused = daemon.cli("run", *option, "-c", "print(1)")
        assert refused.returncode != 0 and f"glovebox exec NAME {' '.join(option)}" in refused.stderr, refused.stderr
    assert daemon.cli("run", "--engine", "native", "-c", "print(1)").stdout == "1\n"


def test_status_and_doctor_tell_of_engines(start: StartDaemon, service: Callable[[str], engines.Engine]) -> None:
    daemon = start(*docker_options(service), "--podman-socket", "/nonexistent/p.sock")
    told = {engine["name"]: engine["there"] for engine in daemon.client().request("status")["engines"]}
    assert told["native"] and told["docker"] and not told["podman"]
    status = daemon.cli("status").stdout
    assert "native (chosen by auto" in status and "is not there: needs podman system service" in status, status
    env = {"GLOVEBOX_DOCKER_SOCKET": str(service("docker").socket), "GLOVEBOX_PODMAN_SOCKET": "/nonexistent/p.sock"}
    done = subprocess.run(
        [str(daemon.glovebox.binary), "doctor", "--json"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    rows = {row["name"]: row for row in json.loads(done.stdout)["engines"]}
    assert rows["docker"]["state"] == "yes" and "version 2" in rows["docker"]["detail"], rows
    assert rows["podman"]["state"] == "no" and "systemctl start podman.socket" in rows["podman"]["detail"], rows
    assert [name for name, row in rows.items() if row["chosen_by_auto"]] == ["native"]
