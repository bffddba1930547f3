"""Which engine is used, and what is refused."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import options_of
from support import engines
from support import incus as incus_server
from support.client import DaemonError
from support.daemon import wait_for
from support.daemons import StartDaemon, make_daemons

ENGINES = ("docker", "podman", "incus")


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


def docker_options(service: Callable[[str], engines.Engine]) -> tuple[str, ...]:
    return ("--docker-socket", str(service("docker").socket), "--engine-image", engines.IMAGE)


def incus_options(service: Callable[[str], engines.Engine]) -> tuple[str, ...]:
    return ("--incus-socket", str(service("incus").socket), "--incus-image", incus_server.IMAGE)


def test_one_daemon_serves_several_engines_at_once(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    options = (*docker_options(service), *incus_options(service))
    daemon = start(*options, "--podman-socket", str(service("podman").socket))
    client = daemon.client()
    for engine in ("native", "docker", "podman", "incus"):
        client.request("session.create", session=engine, engine=engine)
        client.execute(f"where = {engine!r}", engine)
    for engine in ("native", "docker", "podman", "incus"):
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
        (("--engine", "incus", "--incus-socket", "/nonexistent/i.sock"), "engine incus is not there"),
        (("--engine", "vmware"), "there is no engine"),
        (("--engine", "remote"), "engine remote is not there"),
    ],
)
def test_a_forced_engine_that_is_not_there_is_an_error_at_the_start(
    start: StartDaemon, options: tuple[str, ...], words: str
) -> None:
    daemon = start(*options, start=False)
    assert daemon.launch().wait(60) != 0
    assert words in daemon.words()


def refuse_namespaces() -> None:
    """As a host does on which no box can be made: unshare() fails, for this process and its children."""
    number = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
    load, equal, give = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS; BPF_JMP | BPF_JEQ | BPF_K; BPF_RET | BPF_K
    rows = ((load, 0, 0, 0), (equal, 0, 1, number), (give, 0, 0, 0x00050001), (give, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rows), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0


@pytest.mark.parametrize("there", [("docker", "podman", "incus"), ("podman", "incus"), ("incus",), ()])
def test_auto_is_the_first_engine_that_is_there_where_native_cannot_be(
    start: StartDaemon, service: Callable[[str], engines.Engine], there: tuple[str, ...]
) -> None:
    sockets = {name: str(service(name).socket) if name in there else "/nonexistent/s" for name in ENGINES}
    options = [word for name, path in sockets.items() for word in (f"--{name}-socket", path)]
    images = ("--engine-image", engines.IMAGE, "--incus-image", incus_server.IMAGE)
    daemon = start(*options, *images, start=False)
    env = {f"GLOVEBOX_{name.upper()}_SOCKET": path for name, path in sockets.items()}
    env["INCUS_SOCKET"] = sockets["incus"]
    command = [str(daemon.glovebox.binary), "doctor", "--json"]
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, check=False, preexec_fn=refuse_namespaces
    )
    told = {row["name"]: row for row in json.loads(done.stdout)["engines"]}
    assert [name for name, row in told.items() if row["chosen_by_auto"]] == list(there[:1]), told
    if not there:
        assert daemon.launch(refuse_namespaces).wait(60) != 0
        assert "this host cannot make boxes" in daemon.words() and "no other engine is there" in daemon.words()
        return
    assert f"and {there[0]} is there" in told[there[0]]["why"]
    client = daemon.start(refuse_namespaces).client()
    assert client.execute("6 * 7", "s")["result"] == {"text/plain": "42"}
    status = client.request("status")
    assert status["engine"] == client.request("session.show", session="s")["engine"] == there[0]
    assert f"this host cannot make boxes (Linux refuses new namespaces here), and {there[0]}" in status["engine_why"]


def test_settings_by_their_old_names_give_limits_on_their_engine_alone(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    env = {"DOCKER_SANDBOX_MEMORY": "300m", "DOCKER_SANDBOX_CPU": "0.5", "DOCKER_SANDBOX_TIMEOUT": "7"}
    env |= {"DOCKER_SANDBOX_IMAGE": engines.IMAGE, "INCUS_SANDBOX_MEMORY": "200m"}
    client = start("--docker-socket", str(service("docker").socket), env=env).client()
    limits = {
        name: client.request("session.create", session=name, engine=name)["limits"] for name in ("docker", "native")
    }
    assert (limits["docker"]["memory_bytes"], limits["docker"]["cpus"]) == (300 << 20, 0.5)
    assert limits["docker"]["timeout_ms"] == 7000
    assert limits["native"]["memory_bytes"] == 512 << 20
    asked = client.request("session.create", session="asked", engine="docker", limits={"memory": "200m"})["limits"]
    assert (asked["memory_bytes"], asked["cpus"]) == (200 << 20, 0.5)


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_the_image_of_a_service_is_one_of_the_engine_s(
    start: StartDaemon, service: Callable[[str], engines.Engine], kind: str
) -> None:
    env = {"SANDBOX_MODE": kind, "SANDBOX_DOCKER_IMAGE": engines.IMAGE, "SANDBOX_DOCKER_MEMORY": "200m"}
    client = start(f"--{kind}-socket", str(service(kind).socket), env=env).client()
    assert client.execute("6 * 7", "s")["result"] == {"text/plain": "42"}
    shown = client.request("session.show", session="s")
    assert (shown["image"], shown["limits"]["memory_bytes"]) == (engines.IMAGE, 200 << 20)
    client.request("session.create", session="native", engine="native")
    assert client.request("session.show", session="native")["image"] == "host"


def test_a_setting_without_its_engine_is_logged_at_the_start(start: StartDaemon) -> None:
    env = {"DOCKER_SANDBOX_CPU": "2", "INCUS_SANDBOX_MEMORY": "200m", "SANDBOX_MAX_CONTAINERS": "5"}
    sockets = ("--docker-socket", "/nonexistent/d", "--podman-socket", "/nonexistent/p")
    daemon = start("--engine", "native", *sockets, env=env)
    words = daemon.words()
    assert words.count("DOCKER_SANDBOX_CPU is set and has no effect: the engine here is native") == 1
    assert "SANDBOX_MAX_CONTAINERS is set" not in words
    assert "engine native (--engine, SANDBOX_MODE)" in words
    status = daemon.cli("status").stdout
    assert "native (--engine, SANDBOX_MODE)" in status


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("DOCKER_SANDBOX_MEMORY", "much", "the environment variable DOCKER_SANDBOX_MEMORY"),
        ("INCUS_SANDBOX_TYPE", "jail", '"container" or "vm"'),
        ("SANDBOX_API_TIMEOUT", "soon", "SANDBOX_API_TIMEOUT"),
    ],
)
def test_a_setting_that_is_not_understood_is_an_error(
    start: StartDaemon, variable: str, value: str, words: str
) -> None:
    daemon = start(env={variable: value}, start=False)
    assert daemon.launch().wait(60) != 0
    assert words in daemon.words()


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"engine": "docker", "image": "no-such-image:1"}, "not_found", "docker pull no-such-image:1"),
        ({"engine": "docker", "image": "../../etc"}, "usage", "no name of an image"),
        ({"engine": "docker", "image": "--privileged"}, "usage", "no name of an image"),
        ({"engine": "docker", "image": "a b"}, "usage", "no name of an image"),
        ({"engine": "docker", "image": "a\nb"}, "usage", "no name of an image"),
        ({"engine": "docker", "image": 'a"}'}, "usage", "no name of an image"),
        ({"engine": "docker", "image": "a?all=1"}, "usage", "no name of an image"),
        ({"engine": "docker", "image": "a" * 10_000}, "usage", "less than 256 bytes"),
        ({"engine": "podman"}, "unsupported", "engine podman is not there"),
        ({"engine": "firecracker"}, "usage", "there is no engine"),
        ({"engine": 7}, "usage", "must be a text"),
        ({"isolation": "strong"}, "usage", "isolation is"),
        ({"engine": "docker", "isolation": "vm"}, "refused", "virtual machines"),
        ({"engine": "incus", "isolation": "vm"}, "refused", 'engine incus gives "container"'),
        ({"engine": "incus", "isolation": "gvisor"}, "refused", 'engine incus gives "container"'),
        ({"engine": "incus", "image": "no-such-image"}, "not_found", "incus image copy images:no-such-image"),
        ({"engine": "incus", "image": "nowhere:debian/12"}, "system", "incus: creating an instance: .*nowhere"),
        ({"engine": "incus", "image": "--vm"}, "usage", "no name of an image"),
    ],
)
def test_an_engine_that_is_missing_is_an_error_with_the_reason(
    docker_daemon: object, fields: dict, code: str, words: str
) -> None:
    client = docker_daemon.client()  # type: ignore[attr-defined]
    name = f"s{abs(hash(str(fields)))}"
    with pytest.raises(DaemonError, match=words) as caught:
        client.request("session.create", session=name, **fields)
        client.execute("1", name)
    assert caught.value.code == code


def test_a_socket_that_this_user_may_not_use_is_named(start: StartDaemon, tmp_path: Path) -> None:
    place = Path(tempfile.mkdtemp(prefix="glovebox-socket-", dir="/tmp"))
    place.chmod(0o755)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place / "d.sock"))
            listener.listen(1)
            (place / "d.sock").chmod(0o600)
            client = start("--docker-socket", str(place / "d.sock"), who="user").client()
            with pytest.raises(DaemonError, match="usermod -aG docker"):
                client.request("session.create", session="s", engine="docker")
            daemon = start("--engine", "docker", "--docker-socket", str(place / "d.sock"), who="user", start=False)
            assert daemon.launch().wait(60) != 0
            assert "usermod -aG docker" in daemon.words()
    finally:
        shutil.rmtree(place)


@pytest.fixture(scope="module")
def docker_daemon(binary: Path, service: Callable[[str], engines.Engine]) -> Iterator[object]:
    for make in make_daemons(binary):
        yield make(*docker_options(service), *incus_options(service), "--podman-socket", "/nonexistent/p.sock")


def test_a_vm_that_cannot_start_is_an_error_with_the_reason(
    docker_daemon: object, service: Callable[[str], engines.Engine]
) -> None:
    """Up to the server's own refusal: a host with KVM makes one."""
    incus = service("incus")
    drivers = incus.ask("GET", "/1.0")["metadata"]["environment"]["driver"]  # type: ignore[attr-defined]
    assert "qemu" not in drivers, "this host has KVM: the suite can run over incus-vm here, and should"
    client = docker_daemon.client()  # type: ignore[attr-defined]
    before = len(incus.boxes())
    why = "incus has no virtual machines here: vhost_vsock kernel .* use the engine incus, or native"
    for fields in ({"engine": "incus-vm"}, {"isolation": "vm"}, {"engine": "incus-vm", "image": "elsewhere"}):
        with pytest.raises(DaemonError, match=why) as caught:
            client.request("session.create", session="vm", **fields)
        assert caught.value.code == "unsupported"
        with pytest.raises(DaemonError, match=why):
            client.execute("1", "vm", **fields)
        assert "vm" not in [item["name"] for item in client.request("session.list")["sessions"]]
    with pytest.raises(DaemonError, match=why):
        client.execute("1", engine="incus-vm")
    assert client.execute("1", "vm")["status"] == "ok", "the name is free for another engine"
    assert len(incus.boxes()) == before


def test_status_and_doctor_say_why_there_are_no_virtual_machines(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    why = "incus has no virtual machines here: vhost_vsock kernel module not loaded"
    daemon = start(*incus_options(service))

    def told() -> dict:
        return {engine["name"]: engine for engine in daemon.client().request("status")["engines"]}

    wait_for("the server's words", lambda: "why" in told()["incus-vm"])
    assert told()["incus"]["there"] and not told()["incus-vm"]["there"] and why in told()["incus-vm"]["why"]
    assert f"is not there: {why}" in daemon.cli("status").stdout
    env = {**os.environ, "INCUS_SOCKET": str(service("incus").socket)}
    command = [str(daemon.glovebox.binary), "doctor", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = {row["name"]: row for row in json.loads(done.stdout)["engines"]}
    assert rows["incus"]["state"] == "yes" and why in rows["incus-vm"]["detail"], rows


@pytest.mark.parametrize("env", [{"SANDBOX_MODE": "incus-vm"}, {"SANDBOX_MODE": "incus", "INCUS_SANDBOX_TYPE": "vm"}])
def test_forced_virtual_machines_that_cannot_start_are_an_error_at_the_start(
    start: StartDaemon, service: Callable[[str], engines.Engine], env: dict[str, str]
) -> None:
    daemon = start(*incus_options(service), env=env, start=False)
    assert daemon.launch().wait(60) != 0
    assert "engine incus-vm is not there: incus has no virtual machines here: vhost_vsock" in daemon.words()


def test_a_named_remote_is_reached_with_the_clients_certificate(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    env = service("incus").serve_remotely("far")  # type: ignore[attr-defined]
    options = ("--engine", "incus", "--incus-image", incus_server.IMAGE, "--pool", "0")
    client = start(*options, env=env).client()
    assert client.execute("6 * 7", "s")["result"] == {"text/plain": "42"}
    client.request("session.remove", session="s")
    for name, words in (("unheard-of", "The remote .unheard-of. doesn't exist"), ("--help", "no name of a remote")):
        daemon = start(*options, env={**env, "INCUS_REMOTE": name}, start=False)
        assert daemon.launch().wait(60) != 0
        assert re.search(words, daemon.words()), daemon.words()


def test_a_named_remote_on_this_host_is_used_directly(
    start: StartDaemon, service: Callable[[str], engines.Engine]
) -> None:
    incus = service("incus")
    env = incus.serve_remotely("far")  # type: ignore[attr-defined]
    incus.client("remote", "add", "here", f"unix://{incus.socket}")  # type: ignore[attr-defined]
    client = start(
        "--engine", "incus", "--incus-image", incus_server.IMAGE, env={**env, "INCUS_REMOTE": "here"}
    ).client()
    client.execute("1", "s")
    pid = client.request("session.show", session="s")["pid"]
    assert Path(f"/proc/{pid}").exists(), "the box is a process of this host"
    client.request("session.remove", session="s")


@pytest.mark.parametrize("kind", ["docker", "podman", "incus"])
def test_an_image_without_python_serves_commands(
    start: StartDaemon, service: Callable[[str], engines.Engine], kind: str
) -> None:
    engine, options = options_of(service, kind)
    assert engine is not None
    engine.import_image("without-python", "bare" if kind == "incus" else "bare:1")
    daemon = start(*options, "--pool", "0")
    client = daemon.client()
    image = {"docker": "bare:1", "podman": "localhost/bare:1", "incus": "bare"}[kind]
    client.request("session.create", session="bare", image=image, env={"COLOUR": "teal"})
    done = client.request("command", session="bare", argv=["sh", "-c", "echo $COLOUR $0; echo bad >&2; exit 4", "a"])
    assert (done["status"], done["exit_code"]) == ("error", 4), done
    assert (done["stdout"], done["stderr"]) == ("teal a\n", "bad\n"), done
    done = client.request("command", session="bare", argv=["no-such-command"])
    assert done["exit_code"] == 127 and "there is no such command" in done["stderr"], done
    done = client.execute("1 + 1", "bare")
    assert (done["status"], done["error"]["name"]) == ("error", "NoPython"), done
    assert "commands only" in done["error"]["value"]
    # Longer than a pipe takes at once, so that it is sent in pieces; and as much comes back.
    done = client.request("command", session="bare", argv=["printf", "%s", "x" * 100_000])
    assert done["stdout"] == "x" * 100_000 and done["status"] == "ok"
    number = client.begin("command", session="bare", argv=["sleep", "3600"])
    wait_for("the run", lambda: daemon.client().request("session.show", session="bare")["state"] == "running")
    daemon.client().request("session.interrupt", session="bare")
    assert client.finish(number)["status"] == "interrupted"
    done = client.request("command", session="bare", argv=["sleep", "3600"], timeout_ms=500)
    assert done["timed_out"], done
    by_name = daemon.cli("exec", "named", "--engine", kind, "--image", image, "--", "echo", "there")
    assert (by_name.returncode, by_name.stdout) == (0, "there\n"), by_name.stderr
    assert client.request("session.show", session="named")["engine"] == kind
    client.request("session.remove", session="named")
    fed = daemon.cli("exec", "bare", "--", "sh", "-c", "read a; read b; echo $b $a", input="one\ntwo\n")
    assert (fed.returncode, fed.stdout) == (0, "two one\n"), fed.stderr
    daemon.kill()  # and it is found again
    daemon.start()
    done = daemon.client().request("command", session="bare", argv=["id", "-u"])
    assert done["stdout"] == "1000\n", done


@pytest.mark.parametrize("there", ["docker", "podman", "incus"])
def test_a_session_moves_with_its_variables_and_files(
    start: StartDaemon, service: Callable[[str], engines.Engine], there: str
) -> None:
    podman = ("--podman-socket", str(service("podman").socket))
    daemon = start(*docker_options(service), *(podman if there == "podman" else incus_options(service)))
    client = daemon.client()
    client.execute("n = [1, 2]; m = {'n': n}; open('kept.txt', 'w').write('file')", "moving")
    for engine in (there, "native", *(() if there == "docker" else (there, "docker", there, "native"))):
        moved = daemon.cli("session", "move", "moving", "--engine", engine)
        assert (moved.returncode, moved.stdout) == (0, f"session moving is on {engine}\n"), moved.stderr
        done = client.execute("(n, m['n'] is n, open('kept.txt').read())", "moving")
        assert done["result"]["text/plain"] == "([1, 2], True, 'file')", done
        assert client.request("session.show", session="moving")["isolation"]["engine"] == engine
    client.execute("held = (i for i in range(3)); next(held)", "moving")
    refused = daemon.cli("session", "move", "moving", "--engine", there)
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


def test_doctor_says_that_auto_is_a_remote_that_is_configured(start: StartDaemon) -> None:
    command = [str(start(start=False).glovebox.binary), "doctor"]
    env = {**os.environ, "SANDBOX_API_URL": "https://big.example.org"}
    told = subprocess.run([*command, "--json"], env=env, capture_output=True, text=True, check=False).stdout
    chosen = [row for row in json.loads(told)["engines"] if row["chosen_by_auto"]]
    assert [(row["name"], row["why"]) for row in chosen] == [
        ("remote", "auto: a remote is configured (SANDBOX_API_URL)")
    ], chosen
    shown = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout
    assert "https://big.example.org (SANDBOX_API_URL); the choice of auto: a remote is configured" in shown, shown


def test_status_and_doctor_tell_of_engines(start: StartDaemon, service: Callable[[str], engines.Engine]) -> None:
    daemon = start(*docker_options(service), "--podman-socket", "/nonexistent/p.sock")
    told = {engine["name"]: engine["there"] for engine in daemon.client().request("status")["engines"]}
    assert told["native"] and told["docker"] and not told["podman"]
    status = daemon.cli("status").stdout
    assert "native (auto: " in status and "is not there: needs podman system service" in status, status
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
