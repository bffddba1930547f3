"""Sessions in instances with a Glovebox of their own: what happens when the connection, the server or the daemon dies.

The instances are containers of a second incusd, reached by TLS alone; virtual machines go the same way."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import DaemonError
from support.counted_run import STDERR, STDOUT, Reader
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon, make_daemons
from support.glovebox import REPOSITORY
from support.incus import IMAGE, PROGRAM_INSIDE, Incus, incus_remote
from support.service import start_service


@pytest.fixture(scope="module")
def far() -> Iterator[Incus]:
    """A server that tests may kill."""
    with incus_remote() as engine:
        yield engine


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


@pytest.fixture
def daemon(start: StartDaemon, far: Incus) -> Iterator[Daemon]:
    yield start("--incus-image", IMAGE, "--remote-timeout", "20s", env=far.remote_env)
    far.clear()


def links(daemon: Daemon) -> list[int]:
    """Processes that move bytes to instances."""
    helper = daemon.helper("instances")
    found = subprocess.run(["pgrep", "-P", str(helper)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def programs(daemon: Daemon) -> list[int]:
    """The clients of the server that lead into instances."""
    found = [
        subprocess.run(["pgrep", "-P", str(link), "-x", "incus"], capture_output=True, text=True, check=False).stdout
        for link in links(daemon)
    ]
    return [int(pid) for text in found for pid in text.split()]


def begin(daemon: Daemon) -> Reader:
    daemon.client().request("session.create", session="s", engine="incus")
    reader = Reader(daemon.client(), "s")
    wait_for("output", lambda: len(reader.out) > 20000)
    return reader


def check_once(daemon: Daemon) -> None:
    assert daemon.client().read_file("s", "executed") == b"x"


def test_the_program_that_leads_into_it_dies_in_the_middle_of_a_stream(daemon: Daemon) -> None:
    reader = begin(daemon)
    for pid in programs(daemon):
        os.kill(pid, signal.SIGKILL)
    assert reader.whole()["status"] == "ok"
    check_once(daemon)
    doomed = [*links(daemon), *programs(daemon)]
    assert len(doomed) > 1
    os.kill(daemon.helper("instances"), signal.SIGKILL)
    wait_for("its children to end with it", lambda: not any(Path(f"/proc/{pid}").exists() for pid in doomed))
    check_once(daemon)


def test_the_server_restarts_in_the_middle_of_a_stream(daemon: Daemon, far: Incus) -> None:
    reader = begin(daemon)
    far.stop()
    time.sleep(0.3)
    far.start()
    assert reader.whole()["status"] == "ok"
    check_once(daemon)


def test_the_daemon_is_killed_in_the_middle_of_a_stream(daemon: Daemon, far: Incus) -> None:
    reader = begin(daemon)
    daemon.kill()
    reader.join(60)
    client = daemon.start().client()
    client.request("run.read", session="s", run=reader.run_id)
    assert (client.out, client.err) == (STDOUT, STDERR)
    check_once(daemon)
    assert len(far.boxes()) == 1


def test_an_instance_that_was_half_made_is_made_again(daemon: Daemon, far: Incus) -> None:
    client = daemon.client()
    client.begin("session.create", session="s", engine="incus")
    wait_for("the instance", lambda: bool(far.boxes()))
    daemon.kill()
    client = daemon.start().client()
    assert client.execute("6 * 7", "s")["result"] == {"text/plain": "42"}
    assert len(far.boxes()) == 1


def test_two_requests_at_once_make_one_instance(daemon: Daemon, far: Incus) -> None:
    clients = [daemon.client() for _ in range(3)]
    numbers = [
        client.begin("execute", session="s", code=f"x{i} = 1", engine="incus") for i, client in enumerate(clients)
    ]
    assert all(client.finish(number)["status"] == "ok" for client, number in zip(clients, numbers, strict=True))
    assert client_value(daemon, "x0 + x1 + x2") == "3"
    assert len(far.boxes()) == 1


def client_value(daemon: Daemon, code: str) -> str:
    return daemon.client().execute(code, "s")["result"]["text/plain"]


def test_a_server_that_is_away_is_waited_for_and_then_said_to_be_away(
    start: StartDaemon, daemon: Daemon, far: Incus
) -> None:
    daemon.stop()
    client = start("--incus-image", IMAGE, "--remote-timeout", "2s", env=far.remote_env).client()
    client.request("session.create", session="s", engine="incus")
    client.execute("x = 1", "s")
    client.execute("1", "native")
    far.stop()
    try:
        with pytest.raises(DaemonError, match="the incus server far cannot be reached: .*connection refused") as caught:
            client.execute("x", "s")
        assert caught.value.code == "gone"
        with pytest.raises(DaemonError, match="the incus server far cannot be reached"):
            client.request("session.create", session="other", engine="incus")
        assert client.execute("1", "native")["status"] == "ok"
    finally:
        far.start()
    assert client.execute("x", "s")["result"] == {"text/plain": "1"}


def test_a_session_that_is_removed_while_the_server_is_away_is_swept(daemon: Daemon, far: Incus) -> None:
    client = daemon.client()
    client.request("session.create", session="s", engine="incus")
    far.stop()
    client.request("session.remove", session="s")
    assert client.request("session.list")["sessions"] == []
    daemon.kill()  # what was to be tried again dies with it
    far.start()
    assert len(far.boxes()) == 1
    daemon.start()
    wait_for("the sweep", lambda: not far.boxes())


def test_instances_without_a_session_are_swept_and_all_others_stay(daemon: Daemon, far: Incus) -> None:
    client = daemon.client()
    for name in ("kept", "lost"):
        client.request("session.create", session=name, engine="incus")
        client.execute(f"x = {name!r}", name)
    daemon.kill()
    with contextlib.closing(sqlite3.connect(daemon.data / "registry.db")) as registry:
        lost = registry.execute("SELECT id FROM session WHERE name = 'lost'").fetchone()[0]
        registry.execute("DELETE FROM session WHERE name = 'lost'")
        registry.commit()
    for directory in ("state", "sessions"):
        shutil.rmtree(daemon.data / directory / lost, ignore_errors=True)
    client = daemon.start().client()
    wait_for("the sweep", lambda: len(far.boxes()) == 1)
    assert client.execute("x", "kept")["result"] == {"text/plain": "'kept'"}


def test_a_stopped_instance_is_started_and_a_missing_one_is_an_error(daemon: Daemon, far: Incus) -> None:
    client = daemon.client()
    client.request("session.create", session="s", engine="incus")
    client.execute("x = 1; open('kept.txt', 'w').write('file')", "s")
    instance = far.boxes()[0]["name"]
    far.client("stop", "--force", instance)
    done = client.execute("(open('kept.txt').read(), 'x' in globals())", "s")
    assert done["result"] == {"text/plain": "('file', False)"}, done
    far.client("delete", "--force", instance)
    with pytest.raises(DaemonError, match="not on the incus server far any more: its variables and files are lost"):
        client.execute("1", "s")
    client.request("session.remove", session="s")
    client.request("session.create", session="s", engine="incus")
    assert client_value(daemon, "1") == "1"


# Incus now and then calls an instance that runs stopped: here it does so always, after one call that broke.
FLICKERS = """#!/bin/sh
case "$1 $*" in
exec*) if [ -e {directory}/broken ]; then rm {directory}/broken; echo "Error: broken" >&2; exit 1; fi ;;
query*/1.0/instances/*) {real} "$@" | sed 's/"status": *"Running"/"status":"Stopped"/g'; exit ;;
esac
exec {real} "$@"
"""


def test_an_instance_that_incus_calls_stopped_for_a_moment_is_reached(
    start: StartDaemon, far: Incus, tmp_path: Path
) -> None:
    (tmp_path / "incus").write_text(FLICKERS.format(real=shutil.which("incus"), directory=tmp_path))
    (tmp_path / "incus").chmod(0o755)
    daemon = start("--incus-image", IMAGE, env={**far.remote_env, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    client = daemon.client()
    client.execute("x = 41", "s", engine="incus")
    (tmp_path / "broken").touch()
    os.kill(daemon.helper("instances"), signal.SIGKILL)
    assert client_value(daemon, "x + 1") == "42"
    assert not (tmp_path / "broken").exists(), "a call broke"
    client.request("session.remove", session="s")
    wait_for("the instance to go", lambda: not far.boxes())


def test_a_session_of_another_server_names_its_setting(daemon: Daemon, far: Incus) -> None:
    client = daemon.client()
    client.request("session.create", session="s", engine="incus")
    daemon.kill()
    far.client("remote", "rename", "far", "farther")
    try:
        daemon.env["INCUS_REMOTE"] = "farther"
        client = daemon.start().client()
        with pytest.raises(DaemonError, match="start it with INCUS_REMOTE=far, or remove the session"):
            client.execute("1", "s")
    finally:
        far.client("remote", "rename", "farther", "far")


def test_options_with_which_an_instance_is_made(daemon: Daemon, far: Incus) -> None:
    client = daemon.client()
    client.request("session.create", session="s", engine="incus", limits={"memory": "300m", "pids": 30, "cpus": 0.5})
    box = far.boxes()[0]
    config = box["config"]
    assert config["limits.memory"] == f"{(300 + 256) << 20}B"
    assert (config["limits.processes"], config["limits.cpu.allowance"]) == ("130", "70ms/100ms")
    assert (config["security.privileged"], config["security.idmap.isolated"]) == ("false", "true")
    assert (box["profiles"], list(box["expanded_devices"])) == ([], ["root"]), "no network, nothing of the host's"
    limits = client.request("session.show", session="s")["limits"]
    assert (limits["memory_bytes"], limits["pids"], limits["cpus"]) == (300 << 20, 30, 0.5)
    with pytest.raises(DaemonError, match="which was made with them"):
        client.request("session.set", session="s", limits={"memory": "1g"})
    with pytest.raises(DaemonError, match="go with it"):
        client.request("session.remove", session="s", keep_files=True)
    with pytest.raises(DaemonError, match="ends with its instance"):
        client.execute("1", engine="incus", detach=True)


def test_a_session_moves_into_an_instance_and_back_with_its_variables_and_files(daemon: Daemon, far: Incus) -> None:
    client = daemon.client()
    code = "n = [1, 2]; m = {'n': n}; import os; os.makedirs('a/b'); open('a/b/kept.txt', 'w').write('file')"
    client.execute(code, "s")
    for engine in ("incus", "native", "incus"):
        moved = daemon.cli("session", "move", "s", "--engine", engine)
        assert moved.returncode == 0, moved.stderr
        done = client.execute("(n, m['n'] is n, open('a/b/kept.txt').read())", "s")
        assert done["result"]["text/plain"] == "([1, 2], True, 'file')", done
        assert client.request("session.show", session="s")["isolation"]["engine"] == engine
        wait_for("the instance", lambda engine=engine: len(far.boxes()) == (engine == "incus"))
    failed = daemon.cli("session", "move", "s", "--engine", "incus")
    assert failed.returncode != 0 and "on engine incus already" in failed.stderr
    client.execute("x = 1", "native")
    failed = daemon.cli("session", "move", "native", "--engine", "incus", "--image", "no-such-image")
    assert failed.returncode != 0 and "incus image copy" in failed.stderr, failed.stderr
    assert client.execute("x", "native")["result"] == {"text/plain": "1"}, "it is where it was"


# Guests do not boot on the test machines. This client stands before the real one and makes a container where a virtual
# machine is asked for: an image's init that does nothing, an agent that takes a moment to answer.
CLIENT = """#!/bin/sh
real={real} booted={directory}/booted
case "$1 $*" in
exec*)
    if [ "$(cat $booted)" != xx ]; then
        printf x >> $booted; echo "Error: VM agent isn't currently running" >&2; exit 1
    fi ;;
start*) : > $booted ;;
init*--vm*|query*:/1.0) exec python3 {directory}/other.py "$real" "$@" ;;
esac
exec "$real" "$@"
"""
OTHER = """
import json, subprocess, sys
real, words = sys.argv[1], sys.argv[2:]
if words[0] == "init":
    words.remove("--vm")
    described = json.load(sys.stdin)
    del described["config"]["security.secureboot"]
    assert "raw.lxc" not in described["config"] and "security.nesting" not in described["config"]
    described["config"] |= {"raw.lxc": "lxc.init.cmd = /bin/sleep 100000\\nlxc.mount.auto = cgroup:rw:force\\n"}
    described["config"] |= {"security.nesting": "true"}
    sys.exit(subprocess.run([real, *words], input=json.dumps(described).encode()).returncode)
told = json.loads(subprocess.run([real, *words], capture_output=True, check=True).stdout)
told["environment"]["driver"] += " | qemu"
print(json.dumps(told))
"""


def test_the_way_into_a_virtual_machine(start: StartDaemon, far: Incus, tmp_path: Path) -> None:
    real = shutil.which("incus")
    assert real
    client_program = tmp_path / "incus"
    client_program.write_text(CLIENT.format(real=real, directory=str(tmp_path)))
    client_program.chmod(0o755)
    (tmp_path / "other.py").write_text(OTHER)
    path = f"{tmp_path}:{os.environ['PATH']}"
    daemon = start("--engine", "incus-vm", "--incus-image", IMAGE, env={**far.remote_env, "PATH": path})
    client = daemon.client()
    client.request("session.create", session="s", limits={"memory": "300m", "cpus": 1.5})
    config = far.boxes()[0]["config"]
    assert (config["limits.memory"], config["limits.cpu"]) == (f"{(300 + 768) << 20}B", "2")
    client.execute("x = 1; open('kept.txt', 'w').write('file')", "s")
    report = client.request("session.show", session="s")["isolation"]
    assert (report["engine"], report["isolation"], report["weaker"]) == ("incus-vm", "vm", [])
    daemon.kill()
    client = daemon.start().client()
    assert client.execute("x", "s")["result"] == {"text/plain": "1"}
    far.client("stop", "--force", far.boxes()[0]["name"])
    done = client.execute("(open('kept.txt').read(), 'x' in globals())", "s")
    assert done["result"] == {"text/plain": "('file', False)"}, done
    assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
    client.request("session.remove", session="s")
    wait_for("the instances to go", lambda: not far.boxes())


def test_a_daemon_whose_program_was_replaced_says_so(binary: Path, far: Incus, tmp_path: Path) -> None:
    copied = tmp_path / "glovebox"
    shutil.copy2(binary, copied)
    env = {**far.remote_env, "GLOVEBOX_KERNEL_DIR": str(REPOSITORY / "guest/kernel")}
    for make in make_daemons(copied):
        daemon = make("--incus-image", IMAGE, env=env)
        copied.unlink()
        with pytest.raises(DaemonError, match="was replaced or removed since it started"):
            daemon.client().request("session.create", session="s", engine="incus")
        shutil.copy2(binary, copied)
    assert not far.boxes()


def test_rest_makes_instances_at_once_and_says_why_not(start: StartDaemon, far: Incus) -> None:
    daemon = start("--incus-image", IMAGE, env=far.remote_env, start=False)
    service = start_service(daemon, keys=("ann",))
    ann = service.client("ann")
    made = ann.post("/sandbox/me/create", {"engine": "incus"})
    assert made.status == 201 and made.json()["engine"] == "incus", made
    assert len(far.boxes()) == 1
    assert ann.post("/sandbox/me/create", {"engine": "incus"}).status == 200, "it is there"
    assert ann.request("PUT", "/sandbox/me/file?path=a.txt", b"text").status in (200, 201)
    done = ann.post("/sandbox/me/execute", {"code": "open('a.txt').read()"})
    assert done.json()["result"] == {"text/plain": "'text'"}, done
    refused = ann.post("/sandbox/strong/create", {"isolation": "vm"})
    assert refused.status == 501 and "incus has no virtual machines here" in refused.json()["detail"], refused
    assert ann.get("/sandbox/strong").status == 404
    assert ann.delete("/sandbox/me/destroy").status == 200
    wait_for("the instance to go", lambda: not far.boxes())


# What a Glovebox in an instance may say once somebody has broken out of the box there.
HOSTILE = {
    "another greeting": ("printf 'welcome\\n'; sleep 5", "the instance does not answer"),
    "no greeting": ("echo 'bad \\200 news' >&2; exit 3", "the instance does not answer: bad   news"),
    "garbage": ("printf 'glovebox channel 1\\n'; head -c 100000 /dev/urandom; sleep 5", "protocol|was not asked"),
    "an endless answer": ("printf 'glovebox channel 1\\n\\377\\377\\377\\1\\7\\0\\1\\0'; cat /dev/zero", "protocol"),
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_a_hostile_instance_harms_its_session_alone(
    far: Incus, tmp_path: Path, kind: str, hostile: tuple[Daemon, str]
) -> None:
    daemon, instance = hostile
    script, words = HOSTILE[kind]
    (tmp_path / "glovebox").write_text(f"#!/bin/sh\n{script}\n")
    far.client("exec", instance, "--", "mv", "-f", PROGRAM_INSIDE, f"{PROGRAM_INSIDE}.old")
    far.client("file", "push", "--mode", "0755", tmp_path / "glovebox", f"{instance}{PROGRAM_INSIDE}")
    for pid in links(daemon):
        os.kill(pid, signal.SIGKILL)
    client = daemon.client()
    with pytest.raises(DaemonError, match=words):
        client.execute("1", "s")
    assert client.execute("1", "native")["status"] == "ok"
    assert client.request("status")["daemon"]["longest_turn_ms"] < 1000
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) < 60 << 10


@pytest.fixture(scope="module")
def hostile(binary: Path, far: Incus) -> Iterator[tuple[Daemon, str]]:
    for make in make_daemons(binary):
        daemon = make("--incus-image", IMAGE, "--remote-timeout", "2s", env=far.remote_env)
        daemon.client().request("session.create", session="s", engine="incus")
        daemon.client().execute("1", "native")
        yield daemon, far.boxes()[0]["name"]
        daemon.client().request("session.remove", session="s")
