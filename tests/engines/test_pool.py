"""The pool of a daemon whose boxes another engine makes: boxes that are ready for ephemeral runs, each used once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import options_of
from support import engines
from support.client import Client
from support.daemon import Daemon, wait_for
from support.daemons import make_daemons

SIZE = 2


def ready(client: Client) -> int:
    return int(client.request("status")["pool"]["ready"])


@pytest.fixture(scope="module", params=["docker", "podman", "docker-gvisor"])
def pooled(
    request: pytest.FixtureRequest, binary: Path, service: Callable[[str], engines.Engine]
) -> Iterator[tuple[Daemon, engines.Engine]]:
    engine, options = options_of(service, request.param)
    assert engine is not None
    for make in make_daemons(binary):
        yield make(*options, "--pool", str(SIZE), "--preload", ""), engine
    wait_for("the boxes to go", lambda: not engine.boxes())


@pytest.fixture
def client(pooled: tuple[Daemon, engines.Engine]) -> Client:
    made = pooled[0].client()
    wait_for("a full pool", lambda: ready(made) == SIZE, 60)
    return made


def names(engine: engines.Engine) -> set[str]:
    return {box["Id"] for box in engine.boxes()}


def test_a_run_takes_a_box_that_is_ready_and_another_is_made(
    pooled: tuple[Daemon, engines.Engine], client: Client
) -> None:
    before = names(pooled[1])
    assert len(before) == SIZE
    begun = time.monotonic()
    done = client.execute("40 + 2")
    took = time.monotonic() - begun
    assert done["result"] == {"text/plain": "42"}, done
    assert took < 0.5, "to make a container takes longer"
    wait_for("a full pool again", lambda: ready(client) == SIZE and len(pooled[1].boxes()) == SIZE, 60)
    assert len(names(pooled[1]) & before) == SIZE - 1, "the box of the run is gone, and a new one is there"


def test_no_run_sees_what_another_left(client: Client) -> None:
    code = "import os; seen = [os.listdir(p) for p in ('/tmp', '/workspace', os.path.expanduser('~'))]\n"
    code += "[open(p + '/left', 'w').close() for p in ('/tmp', '/workspace', os.path.expanduser('~'))]\nseen"
    for _ in range(SIZE + 1):
        assert client.execute(code)["result"] == {"text/plain": "[[], ['artifacts'], []]"}


def test_streams_errors_and_time_outs_are_as_without_a_pool(client: Client) -> None:
    done = client.execute("import sys; print('out'); print('err', file=sys.stderr); 1/0")
    assert (done["status"], done["stdout"], done["error"]["name"]) == ("error", "out\n", "ZeroDivisionError"), done
    assert "err\n" in done["stderr"]
    wait_for("a box", lambda: ready(client) > 0, 60)
    done = client.execute("while True: pass", timeout_ms=500)
    assert (done["status"], done["timed_out"]) == ("timeout", True), done


def test_a_run_with_limits_of_its_own_gets_them(pooled: tuple[Daemon, engines.Engine], client: Client) -> None:
    """A box of the pool has the standard ones, which an engine's cannot change: another is made."""
    wait_for("the boxes of other tests to go", lambda: len(names(pooled[1])) == SIZE, 60)
    before, fields = names(pooled[1]), {"ephemeral": True, "cancel_on_disconnect": True}
    client.begin("execute", **fields, code="import time; time.sleep(3600)", limits={"memory": "200m"})
    observer = pooled[0].client()
    # One that is just being made is listed before dockerd can describe it.
    wait_for("its box", lambda: {box["Id"] for box in pooled[1].boxes() if box["State"] == "running"} - before, 60)
    (made,) = names(pooled[1]) - before
    about = pooled[1].api.ask("GET", f"/containers/{made}/json").read()
    assert f'"Memory":{200 << 20}'.encode() in about.replace(b" ", b"")
    assert ready(observer) == SIZE and before <= names(pooled[1])
    client.close()  # its run ends with it
    wait_for("its box to go", lambda: made not in names(pooled[1]), 60)


def test_boxes_of_a_killed_daemon_are_swept(pooled: tuple[Daemon, engines.Engine], client: Client) -> None:
    daemon, engine = pooled
    before = names(engine)
    vaults = daemon.vaults()
    daemon.kill()
    for vault in vaults:
        os.kill(vault, signal.SIGKILL)
    again = daemon.start().client()
    wait_for("the old ones to go", lambda: not names(engine) & before, 90)
    wait_for("a full pool", lambda: ready(again) == SIZE, 60)
    assert again.execute("6 * 7")["result"] == {"text/plain": "42"}
