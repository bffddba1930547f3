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
def test_impossible_options_are_refused_when_a_session_is_made(
    daemon: Daemon, options: dict[str, Any], said: str
) -> None:
    client = daemon.client()
    with pytest.raises(DaemonError, match=said):
        client.request("session.create", session="never", **options)
    with pytest.raises(DaemonError, match="there is no session"):
        client.request("session.show", session="never")


def test_allowed_options_are_accepted_and_null_means_absent(daemon: Daemon) -> None:
    client = daemon.client()
    mounts = [{"source": "/usr/share", "destination": "/mnt/share", "writable": False}]
    client.request("session.create", session="good", mounts=mounts, operator=True, env={"A": "b"}, data=None)
    assert client.execute("import os; os.path.isdir('/mnt/share'), os.environ['A']", "good")["result"] == {
        "text/plain": "(True, 'b')"
    }
    client.request("session.remove", session="good")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"limits": {"bogus": 1}}, r"limits: there is no limit \"bogus\"; there are memory, .*for example"),
    ({"limits": []}, "limits must be an object with memory"),
    ({"limits": {"memory": True}}, r"limits.memory must be a whole number of bytes .*16m to 1t, for example"),
    ({"limits": {"memory": "15m"}}, r"limits.memory must be .*16m to 1t"),
    ({"limits": {"memory": "12x"}}, r"limits.memory must be .*for example"),
    ({"limits": {"memory_bytes": 1}}, r"limits.memory_bytes must be .*for example"),
    ({"limits": {"memory_bytes": 16777216.5}}, r"limits.memory_bytes must be a whole number"),
    ({"limits": {"pids": 1.5}}, r"limits.pids must be a whole number from 1 to 32768, for example"),
    ({"limits": {"cpus": None}}, r"limits.cpus must be a number from 0.01 to 1024, for example"),
    ({"limits": {"timeout": 1e300}}, r"limits.timeout must be a time from 1 ms to 7 days"),
    ({"limits": {"files": 0}}, r"limits.files must be .*from 16 .*for example"),
    ({"network": 5}, r"network must be .*\"none\", \"full\".*for example"),
    ({"network": "some"}, r"network must be .*for example .*, not \"some\""),
    ({"network": {"allow": ["a.org"], "deny": []}}, r"network: there is no member \"deny\".*for example"),
    ({"network": {"allow": [1]}}, r"network.allow\[0\] must be a text: HOST, .*for example"),
    ({"network": {"allow": ["a b"]}}, r"network.allow: \"a\?b\": .*for example"),
    *[
        ({"network": {"allow": ["example.com", host]}}, r"network.allow: no box may reach .*for example")
        for address in ("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
                        "100.100.100.200", "0.0.0.0", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[fe80::1]",
                        "[fd00::1]", "[fd00:ec2::254]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[ff02::1]",
                        "localhost", "a.localhost")
        for host in (address, f"{address}:8080")
    ],
    ({"mode": 1}, "mode"),
    ({"mode": "slow"}, "mode"),
    ({"image": 1}, "image"),
    ({"engine": 1}, "engine"),
    ({"engine": "bogus"}, "bogus"),
    ({"isolation": "bogus"}, "bogus"),
    ({"users": "yes"}, "users"),
    ({"allow_weaker": "yes"}, "allow_weaker"),
    ({"env": {"A": 1}}, "env"),
    ({"data": 1}, "data"),
    ({"workspace": 1}, "workspace"),
    ({"workspace": "relative"}, "workspace"),
    ({"mounts": [{"source": "/etc", "destination": "/mnt"}]}, "/etc"),
    ({"mounts": [{"source": "/usr", "destination": "/mnt", "bogus": 1}]}, "bogus|allow"),
    ({"bogus": 1}, "bogus"),
]  # fmt: skip


@pytest.fixture(scope="module")
def existing(daemon: Daemon) -> Daemon:
    daemon.client().request("session.create", session="exists", limits=None, network=None)
    return daemon


@pytest.mark.parametrize("name", ["never", "exists"])
@pytest.mark.parametrize(("options", "said"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_wrong_members_are_refused_for_new_and_existing(
    existing: Daemon, options: dict[str, Any], said: str, name: str
) -> None:
    with pytest.raises(DaemonError, match=said):
        existing.client().request("session.create", session=name, **options)


def test_an_existing_session_is_found_again_with_what_it_was_made_with(daemon: Daemon) -> None:
    client = daemon.client()
    options = {"limits": {"memory": "100m"}, "mode": "fresh", "env": {"A": "b"}, "network": {"allow": ["example.com"]}}
    assert client.request("session.create", session="again", **options)["created"]
    answer = client.request("session.create", session="again", **options)
    assert (answer["created"], answer["unchanged"]) == (False, [])
    answer = client.request("session.create", session="again", limits={"memory": "200m"}, network="none")
    assert sorted(answer["unchanged"]) == ["memory", "network"]
    with pytest.raises(DaemonError, match="no-such-image"):
        client.request("session.create", session="again", image="no-such-image")
    client.request("session.remove", session="again")


def test_a_directory_that_the_operator_allows_may_be_mounted(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--egress-allow-private", "127.0.0.1", "--egress-allow-private", "localhost")
    client = daemon.client()
    client.request("session.create", session="a", network={"allow": ["127.0.0.1:80", "localhost"]})
    with pytest.raises(DaemonError, match="10.0.0.1"):
        client.request("session.create", session="b", network={"allow": ["10.0.0.1"]})


LEAST = [{"memory": "16m"}, {"pids": 1}, {"cpus": 0.01}, {"tmp": "1m"}, {"disk": "1m"}, {"files": 16}]


@pytest.mark.parametrize("mode", ["fast", "fresh"])
@pytest.mark.parametrize("limits", LEAST, ids=str)
def test_the_least_limits_that_are_accepted_let_a_kernel_start(
    daemon: Daemon, limits: dict[str, Any], mode: str
) -> None:
    client = daemon.client()
    client.request("session.create", session="small", limits=limits, mode=mode)
    assert client.execute("6 * 7", "small", timeout_ms=60000)["result"] == {"text/plain": "42"}
    client.request("session.remove", session="small")


SETTINGS = [
    (("--allow-read", "/nowhere"), "--allow-read"),
    (("--allow-write", "relative"), "--allow-write"),
    (("--image", "no-such-image"), "--image"),
    (("--max-memory", "64m"), "--max-memory"),
    (("--memory", "15m"), '--memory: "15m" is out of range; choose from 16 MiB'),
    (("--memory", "8m", "--max-memory", "8m"), "choose from 16 MiB"),
    (("--timeout", "0"), "--timeout"),
    (("--pids", "0"), "--pids"),
    (("--cpus", "0"), "--cpus"),
    (("--disk", "0"), "--disk"),
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


@pytest.mark.parametrize("options", [{"bogus": 1}, {"limits": {"bogus": 1}}, {"network": {"allow": ["127.0.0.1"]}}])
def test_a_channel_of_mcp_refuses_the_same(daemon: Daemon, options: dict[str, Any]) -> None:
    with pytest.raises(DaemonError, match="bogus|no box may reach"):
        daemon.client().request("mcp", name="agent", **options)
