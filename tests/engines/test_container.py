"""What docker and podman are told about a container, as they describe it themselves."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from conftest import options_of
from support import engines
from support.client import Client
from support.daemons import StartDaemon, make_daemons


@pytest.fixture
def start(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, service: Callable[[str], engines.Engine]) -> engines.Engine:
    return service(request.param)


@pytest.fixture
def client(start: StartDaemon, engine: engines.Engine, service: Callable[[str], engines.Engine]) -> Client:
    return start(*options_of(service, engine.name)[1]).client()


def describe(engine: engines.Engine) -> dict[str, Any]:
    (box,) = engine.boxes()
    about = "/v4.0.0/libpod" if engine.name == "podman" else ""
    described: dict[str, Any] = json.loads(engine.api.ask("GET", f"{about}/containers/{box['Id']}/json").read())
    return described


def test_it_is_hardened(engine: engines.Engine, client: Client) -> None:
    limits = {"memory": "200m", "pids": 40, "cpus": 0.5}
    client.request("session.create", session="s", limits=limits, env={"COLOUR": "teal"})
    inside = client.execute("open('/proc/self/status').read()", "s")
    described = describe(engine)
    host, config = described["HostConfig"], described["Config"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (200 << 20, 200 << 20, 40)
    assert host["NanoCpus"] == 500_000_000 or host["CpuQuota"] / host["CpuPeriod"] == 0.5, host
    assert host["ReadonlyRootfs"] and not host["Privileged"] and host["NetworkMode"] == "none", host
    assert "no-new-privileges" in str(host["SecurityOpt"]), host
    assert not host.get("CapAdd") and host["PidMode"] in ("", "private") and host["IpcMode"] != "host", host
    if engine.name == "docker":
        assert (host["CapDrop"], host["CgroupnsMode"], host["IpcMode"]) == (["ALL"], "private", "private"), host
    else:
        assert not described["EffectiveCaps"] and not described["BoundingCaps"], described
    assert config["User"] == "1000:1000" and not any("COLOUR" in text for text in config["Env"] or []), config
    status = inside["result"]["text/plain"]
    # The engine's own filter, and Glovebox's behind it.
    assert "Seccomp_filters:\\t2" in status and "NoNewPrivs:\\t1" in status, status
    assert "CapBnd:\\t0000000000000000" in status, status


def test_tmp_is_bounded_and_nothing_else_is_writable(engine: engines.Engine, client: Client) -> None:
    client.request("session.create", session="s", limits={"tmp": "8m"})
    code = """
import os
def full(path):
    try:
        with open(path + '/fill', 'wb') as file:
            for _ in range(64):
                file.write(bytes(1 << 20))
        return False
    except OSError:
        return True
    finally:
        os.path.exists(path + '/fill') and os.unlink(path + '/fill')
def takes_files(path):
    try:
        os.close(os.open(path + '/new', os.O_CREAT | os.O_WRONLY))
        os.unlink(path + '/new')
        return True
    except OSError:
        return False
mounts = {line.split()[1] for line in open('/proc/self/mounts')} | {'/', '/var/tmp', '/run', '/etc', '/usr', '/var'}
(full('/tmp'), full(os.path.expanduser('~')), sorted(path for path in mounts if takes_files(path)))
"""
    told = client.execute(code, "s")
    assert told["status"] == "ok", told
    places = "['/dev/shm', '/home/sandbox', '/run/session', '/sandbox', '/session', '/tmp', '/work', '/workspace']"
    assert told["result"]["text/plain"].replace("\n", "") == f"(True, True, {places})", told


def build(engine: engines.Engine, dockerfile: str, image: str) -> None:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(dockerfile)
        tar.addfile(member, io.BytesIO(dockerfile.encode()))
    # Of itself podman writes a format that has no health checks; what it pulls from Docker's registries has them.
    query = {"t": image, "outputformat": "application/vnd.docker.distribution.manifest.v2+json"}
    where = f"/v4.0.0/libpod/build?{urlencode(query)}" if engine.name == "podman" else f"/build?{urlencode(query)}"
    told = engine.api.ask("POST", where, context.getvalue(), "application/x-tar").read()
    assert b'"error"' not in told, told


def test_a_health_check_of_the_image_is_not_run(engine: engines.Engine, client: Client) -> None:
    """It would be a process of the image beside the agent, without Glovebox's filter."""
    base = f"localhost/{engines.IMAGE}" if engine.name == "podman" else engines.IMAGE
    build(engine, f'FROM {base}\nHEALTHCHECK --interval=1s CMD ["/bin/true"]\n', "checked:1")
    image = "localhost/checked:1" if engine.name == "podman" else "checked:1"
    api = "/v4.0.0/libpod" if engine.name == "podman" else ""
    about = json.loads(engine.api.ask("GET", f"{api}/images/{image}/json").read())
    assert (about.get("Healthcheck") or about["Config"].get("Healthcheck")) is not None, about
    client.request("session.create", session="s", image=image)
    client.execute("1", "s")
    check = (describe(engine)["Config"].get("Healthcheck") or {}).get("Test")
    assert check in (None, ["NONE"]), check
