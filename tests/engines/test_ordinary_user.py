"""Engines under a daemon that is not root: podman of the same user, and root's dockerd through its group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import engines
from support.client import Client, DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon, make_daemons
from support.glovebox import USER_ID
from support.wheels import make_wheel

pytestmark = pytest.mark.timeout(400)
LIMITS_ARE_LEFT = Path("/sys/fs/cgroup/cgroup.controllers").exists()  # a user has control groups of version 2 only


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, service: Callable[[str], engines.Engine]) -> Iterator[engines.Engine]:
    if request.param == "podman":
        with engines.podman_of_user() as made:
            yield made
        return
    made = service("docker")
    os.chown(made.socket, 0, USER_ID)  # the user is in the group of the socket
    made.socket.chmod(0o660)
    made.directory.chmod(0o711)
    yield made


def options_for(engine: engines.Engine, *more: str) -> tuple[str, ...]:
    image = f"localhost/{engines.IMAGE}" if engine.name == "podman" else engines.IMAGE
    return ("--engine", engine.name, f"--{engine.name}-socket", str(engine.socket), "--engine-image", image, *more)


@pytest.fixture
def daemon(start: StartDaemon, engine: engines.Engine) -> Daemon:
    return start(*options_for(engine, "--allow-weaker"), who="user")


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


def test_code_runs_and_files_stay_the_users(daemon: Daemon, client: Client, engine: engines.Engine) -> None:
    client.execute("x = 20", "s")
    client.write_file("s", "in/a.txt", b"from outside")
    done = client.execute("open('b.txt', 'w').write(open('/workspace/in/a.txt').read()); import os; x + 1", "s")
    assert done["result"] == {"text/plain": "21"}, done
    assert client.read_file("s", "b.txt") == b"from outside"
    workspace = Path(client.request("session.show", session="s")["workspace"])
    assert {path.stat().st_uid for path in workspace.rglob("*")} == {USER_ID}
    names = "[open(p + '/b.txt').read() for p in ('/workspace', '/session', '/sandbox', '/work')]"
    assert client.execute(f"set({names})", "s")["result"] == {"text/plain": "{'from outside'}"}
    code = "import tempfile; tempfile.mkstemp(); open(os.path.expanduser('~/y'), 'w').write('1'); os.getuid()"
    uid = client.execute(code, "s")["result"]["text/plain"]
    assert uid == ("1000" if engine.name == "podman" else str(USER_ID))


def test_code_has_no_privilege(client: Client) -> None:
    code = """
import ctypes, re
status = open('/proc/self/status').read()
libc = ctypes.CDLL(None, use_errno=True)
caps = {re.search(rf'^{name}:\\s*(\\S+)', status, re.M)[1] for name in ('CapPrm', 'CapEff', 'CapBnd')}
def refused(path):
    try:
        open(path, 'w').close()
    except OSError:
        return True
    return False
(caps, libc.prctl(39, 0, 0, 0, 0), libc.unshare(0x10000000), refused('/usr/x'), refused('/opt/glovebox/kernel/x'))
"""
    told = client.execute(code, "locked")["result"]["text/plain"].replace("\n", "")
    assert told == "({'0000000000000000'}, 1, -1, True, True)", told


def test_ephemeral_runs_have_artifacts_and_leave_nothing(client: Client, engine: engines.Engine) -> None:
    before = len(engine.boxes())
    code = "open('artifacts/r.csv', 'w').write('1'); 40 + 2"
    done = client.execute(code)
    assert done["result"] == {"text/plain": "42"}, done
    assert [item["path"].rpartition("/")[2] for item in done["artifacts"]] == ["r.csv"], done
    wait_for("its box to go", lambda: len(engine.boxes()) <= before)


def test_it_outlives_a_killed_daemon(daemon: Daemon, client: Client) -> None:
    client.execute("n = 7", "adopt")
    daemon.kill()
    assert daemon.start().client().execute("n", "adopt")["result"] == {"text/plain": "7"}
    daemon.client().request("session.hibernate", session="adopt")
    assert daemon.client().execute("n + 1", "adopt")["result"] == {"text/plain": "8"}


def test_packages_are_installed(start: StartDaemon, engine: engines.Engine, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_wheel(tmp_path, "parcel", "1.0", {"parcel.py": "version = '1.0'\n"})
    wheels = Path("/tmp") / f"glovebox-wheels-{os.getpid()}"
    wheels.mkdir(mode=0o755)
    try:
        for wheel in tmp_path.glob("*.whl"):
            (wheels / wheel.name).write_bytes(wheel.read_bytes())
        env = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
        client = start(*options_for(engine, "--allow-weaker"), who="user", env=env).client()
        done = client.request("session.install", session="packages", packages=["parcel"])
        assert done["status"] == "ok", done
        assert client.execute("import parcel; parcel.version", "packages")["result"] == {"text/plain": "'1.0'"}
    finally:
        for wheel in wheels.iterdir():
            wheel.unlink()
        wheels.rmdir()


def test_the_report_says_what_is_weaker(client: Client, engine: engines.Engine) -> None:
    client.execute("1", "report")
    report = client.request("session.show", session="report")["isolation"]
    words = " ".join(report["weaker"])
    assert ("user" in report["namespaces"]) == (engine.name == "podman")
    assert ("version 1" in words) == (engine.name == "podman" and not LIMITS_ARE_LEFT), report


def test_a_user_s_podman_without_bounds_is_refused(start: StartDaemon, engine: engines.Engine) -> None:
    if engine.name == "docker" or LIMITS_ARE_LEFT:
        client = start(*options_for(engine), who="user").client()
        assert client.execute("1 + 1", "s")["result"] == {"text/plain": "2"}
        return
    client = start(*options_for(engine), who="user").client()
    with pytest.raises(DaemonError, match="--allow-weaker"):
        client.execute("1", "s")


def test_the_user_s_own_socket_is_found(start: StartDaemon, engine: engines.Engine, tmp_path: Path) -> None:
    image = f"localhost/{engines.IMAGE}" if engine.name == "podman" else engines.IMAGE
    variable = "CONTAINER_HOST" if engine.name == "podman" else "DOCKER_HOST"
    options = ("--engine", engine.name, "--engine-image", image, "--allow-weaker")
    client = start(*options, who="user", env={variable: f"unix://{engine.socket}"}).client()
    assert client.execute("6 * 7", "s")["result"] == {"text/plain": "42"}
