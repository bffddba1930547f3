"""The network of sessions: by the daemon's proxy, over deaths of the proxy and of the daemon."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon
from support.web import Web, serve_web


@pytest.fixture
def web() -> Iterator[Web]:
    with serve_web() as server:
        yield server


def fetch(client: Client, web: Web, path: str, session: str = "s", **options: Any) -> str:
    """The path that the web server saw, or what went wrong."""
    code = f"""if True:
        import json, urllib.request
        try:
            print(json.load(urllib.request.urlopen("{web.url}{path}"))["path"])
        except OSError as error:
            print(error)
    """
    client.out = bytearray()
    done = client.request("execute", session=session, code=code, stream=True, **options)
    assert done["status"] == "ok", done
    return bytes(client.out).decode().strip()


def proxy_of(daemon: Daemon) -> int:
    """Its process, or -1."""
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    for child in children:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text() == "glovebox-proxy\n":
                return int(child)
    return -1


@pytest.mark.parametrize("who", ["root", "user"])
def test_a_sessions_network_outlives_its_proxy_and_its_daemon(start_daemon: StartDaemon, web: Web, who: str) -> None:
    daemon = start_daemon(*web.pin, who=who)
    client = daemon.client()
    assert fetch(client, web, "/none", "plain").startswith("<urlopen error"), "no network was asked for"
    assert proxy_of(daemon) == -1, "it was not needed yet"
    wait_for("the nursery", lambda: (client.request("status")["nursery"] or {}).get("state") == "ready")
    assert fetch(client, web, "/1", network={"allow": [web.rule]}) == "/1"
    arguments = client.execute("open('/proc/self/cmdline').read()", "s")["result"]["text/plain"]
    assert "nursery" in arguments, "a box of the supervisor's, with a forked kernel"
    assert fetch(client, web, "/2", "f", mode="fresh", network={"allow": [web.rule]}) == "/2"
    assert client.request("session.show", session="s")["isolation"]["network"] == "proxy: 1 host"
    assert client.request("session.show", session="plain")["isolation"]["network"] == "none"
    proxy = proxy_of(daemon)
    assert proxy > 0
    os.kill(proxy, signal.SIGKILL)
    assert fetch(client, web, "/3") == "/3"
    daemon.kill()
    client = daemon.start().client()
    assert fetch(client, web, "/4") == "/4"
    assert fetch(client, web, "/5", "f") == "/5"
    assert fetch(client, web, "/none", "plain").startswith("<urlopen error")
    assert [seen["path"] for seen in web.seen] == ["/1", "/2", "/3", "/4", "/5"]


def test_full_is_the_operators_to_allow(start_daemon: StartDaemon, web: Web) -> None:
    daemon = start_daemon(*web.pin, "--allow-full-network")
    client = daemon.client()
    assert fetch(client, web, "/1", network="full") == "/1"
    daemon.terminate()
    daemon.options = tuple(option for option in daemon.options if option != "--allow-full-network")
    client = daemon.start().client()
    with pytest.raises(DaemonError, match="--allow-full-network") as caught:
        client.request("session.create", session="t", network="full")
    assert caught.value.code == "refused"
    assert "its network stays closed" in daemon.words(), "the session that had it keeps everything but that"
    with pytest.raises(DaemonError, match="is not allowed here"):
        client.request("session.restart", session="s")
        wait_for("a kernel that is asked for anew", lambda: client.request("execute", session="s", code="1") and False)


MALFORMED = [
    1, "some", {}, {"allow": "a.org"}, {"allow": [1]}, {"allow": ["a b"]}, {"allow": [], "deny": []},
    {"allow": ["host"] * 65}, {"allow": [{"host": "a", "trusted": True}]},
]  # fmt: skip


def test_malformed_networks_are_refused(start_daemon: StartDaemon) -> None:
    client = start_daemon().client()
    for network in MALFORMED:
        with pytest.raises(DaemonError, match="network"):
            client.request("session.create", session="malformed", network=network)


def test_a_box_that_is_gone_leaves_nothing_in_the_proxy(start_daemon: StartDaemon, web: Web) -> None:
    daemon = start_daemon(*web.pin)
    client = daemon.client()
    assert fetch(client, web, "/first", "first", network={"allow": [web.rule]}) == "/first"
    proxy = proxy_of(daemon)

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{proxy}/fd"))

    before = wait_for("the first connection to end", descriptors)
    hold = f"""if True:
        import socket
        held = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(20)]
        for one in held:
            one.sendall(b"CONNECT {web.rule} HTTP/1.1\\r\\n\\r\\n")
        print([one.recv(12) for one in held].count(b"HTTP/1.1 200"))
    """
    for name in ("a", "b"):
        client.request("execute", session=name, code=hold, network={"allow": [web.rule]})
    assert descriptors() > before + 40
    for name in ("a", "b"):
        client.request("session.remove", session=name)
    wait_for("the proxy to forget them", lambda: descriptors() <= before)
    assert proxy_of(daemon) == proxy and fetch(client, web, "/again", "first") == "/again"


def test_one_box_cannot_take_all_connections(start_daemon: StartDaemon, web: Web) -> None:
    daemon = start_daemon(*web.pin)
    client = daemon.client()
    hoard = """if True:
        import socket
        hoard = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(150)]
    """
    client.request("execute", session="greedy", code=hoard, network={"allow": [web.rule]})
    proxy = proxy_of(daemon)
    assert fetch(client, web, "/modest", "modest", network={"allow": [web.rule]}) == "/modest"
    assert len(os.listdir(f"/proc/{proxy}/fd")) < 120


def test_rules_from_the_command_line_reach_the_daemon(start_daemon: StartDaemon, web: Web) -> None:
    daemon = start_daemon(*web.pin)
    made = daemon.cli("session", "new", "s", "--allow-host", web.rule)
    assert made.returncode == 0, made.stderr
    assert fetch(daemon.client(), web, "/cli") == "/cli"
    shown = daemon.client().request("session.show", session="s")
    assert json.dumps(shown["isolation"]["network"]) == '"proxy: 1 host"'


def memory_of(pid: int) -> bytes:
    """All of it that can be read, but for the shadow of a sanitizer."""
    pieces = []
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if line.split()[1][0] == "r" and end - start < 64 << 20:
                with contextlib.suppress(OSError):
                    memory.seek(start)
                    pieces.append(memory.read(end - start))
    return b"".join(pieces)


def test_the_proxy_has_no_memory_of_the_daemon(start_daemon: StartDaemon, web: Web) -> None:
    """It reads what boxes write, so it is a program of its own, not a copy of the daemon."""
    secret = "sesame-of-the-operator"
    env = {"PIP_INDEX_URL": f"http://operator:{secret}@packages.example/simple/"}
    daemon = start_daemon(*web.pin, env=env)
    client = daemon.client()
    assert fetch(client, web, "/1", network={"allow": [web.rule]}) == "/1"
    proxy = proxy_of(daemon)
    assert secret.encode() in memory_of(daemon.pid), "one knows where to look"
    memory = memory_of(proxy)
    assert b"egress-proxy" in memory and secret.encode() not in memory
