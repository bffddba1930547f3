"""What could never work is refused when a session is made, or when the daemon starts, and not at each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.client import DaemonError
from support.daemon import Daemon
from support.daemons import StartDaemon, make_daemons

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"mounts": [{"source": "/etc", "destination": "/mnt"}], "operator": True}, "/etc"),
    ({"mounts": [{"source": "/nowhere", "destination": "/mnt"}], "operator": True}, "does not exist"),
    ({"mounts": [{"source": "/usr", "destination": "/proc/x"}], "operator": True}, "/proc"),
    ({"mounts": [{"source": "/usr", "destination": "/mnt"}]}, "--allow-read"),
    ({"mounts": [{"source": "/usr", "destination": "/mnt", "writeable": True}], "operator": True}, "writeable"),
    ({"mounts": [{"source": "/usr"}], "operator": True}, "destination"),
    ({"mounts": {"source": "/usr"}}, "list"),
    ({"mounts": [{"source": "/usr", "destination": f"/mnt/{n}"} for n in range(40)], "operator": True}, "at most"),
    ({"data": "/root", "operator": True}, "/root"),
    ({"data": 1}, "data"),
    ({"workspace": "/nowhere", "operator": True}, "/nowhere"),
    ({"env": {"A": 1}}, "env"),
    ({"env": {"A=B": "x"}}, "env"),
    ({"env": ["A"]}, "env"),
    ({"image": "no-such-image"}, "no-such-image"),
    ({"memory": "1g"}, "memory"),
    ({"limits": {"memry": 1}}, "memry"),
]


@pytest.fixture(scope="module")
def daemon(binary: Path) -> Any:
    for make in make_daemons(binary):
        yield make()


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_cannot_be_is_refused_when_a_session_is_made(daemon: Daemon, options: dict[str, Any], said: str) -> None:
    client = daemon.client()
    with pytest.raises(DaemonError, match=said):
        client.request("session.create", session="never", **options)
    with pytest.raises(DaemonError, match="there is no session"):
        client.request("session.show", session="never")


def test_what_is_allowed_is_made_and_null_is_nothing(daemon: Daemon) -> None:
    client = daemon.client()
    mounts = [{"source": "/usr/share", "destination": "/mnt/share", "writable": False}]
    client.request("session.create", session="good", mounts=mounts, operator=True, env={"A": "b"}, data=None)
    assert client.execute("import os; os.path.isdir('/mnt/share'), os.environ['A']", "good")["result"] == {
        "text/plain": "(True, 'b')"
    }
    client.request("session.remove", session="good")


SETTINGS = [
    (("--allow-read", "/nowhere"), "--allow-read"),
    (("--allow-write", "relative"), "--allow-write"),
    (("--image", "no-such-image"), "--image"),
    (("--max-memory", "64m"), "--max-memory"),
    (("--max-timeout", "1s"), "--max-timeout"),
    (("--names", "https://sandbox.example.org"), "--names"),
    (("--preload", "numpy;pandas"), "--preload"),
    (("--key-sandboxes", "11", "--max-sandboxes", "10"), "--key-sandboxes"),
    (("--pool", "65"), "--pool"),
    (("--key-share", "0"), "--key-share"),
    (("--reserve-disk", "1000000g"), "--reserve-disk"),
]


@pytest.mark.parametrize(("options", "said"), SETTINGS, ids=[said for _, said in SETTINGS])
def test_a_setting_that_cannot_work_is_refused_at_start(
    start_daemon: StartDaemon, options: tuple[str, ...], said: str
) -> None:
    daemon = start_daemon(*options, start=False)
    process = daemon.launch()
    assert process.wait(60) != 0
    assert said in daemon.words(), daemon.words()


def test_wrong_keys_are_refused_before_anything_of_the_host_is_touched(start_daemon: StartDaemon) -> None:
    """Without a list nothing is looked at: whether a path is there is not to be learned."""
    daemon = start_daemon()
    client = daemon.client()
    answered = set()
    for source in ("/etc/shadow", "/nowhere", "/usr"):
        with pytest.raises(DaemonError) as caught:
            client.request("session.create", session="x", mounts=[{"source": source, "destination": "/mnt/x"}])
        answered.add(str(caught.value).replace(source, "PATH"))
    assert len(answered) == 1, answered
