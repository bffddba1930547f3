"""Calls that are cancelled, clients that leave or are killed, daemons that are killed, and many calls at once."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest
from support.daemon import wait_for
from support.glovebox import Glovebox
from support.mcp import LEGACY, MODERN, HttpPeer, Peer, StdioPeer, run_id_of
from support.screen import Screen
from support.service import Service

SLEEP = "import time\nprint('begun', flush=True)\nfor i in range(600): time.sleep(0.1)\nprint('ended')"
SLEEP_CALL = {"name": "run_python", "arguments": {"code": SLEEP}}


def is_running(service: Service, name: str) -> bool:
    """A run is on in a session of this owner and name, or whose name ends like that."""
    listed = service.daemon.client().request("ps")["processes"]
    found = [one for one in listed if f"{one['owner']}/{one['name'].rpartition('/')[2]}".endswith(name)]
    return any(run["status"] == "running" for one in found for run in one["runs"])


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_cancelled_on_stdio_stops_the_run_and_sends_nothing_more(
    service: Service, stdio: Callable[..., StdioPeer], era: str
) -> None:
    peer = stdio(era=era)
    peer.text("run_python", code="kept = 5")
    number = peer.begin("tools/call", SLEEP_CALL)
    wait_for("the run", lambda: is_running(service, "-default"))
    peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    wait_for("the run to end", lambda: not is_running(service, "-default"))
    assert peer.is_silent(number, 1.0)
    assert peer.text("run_python", code="kept") == "5"
    peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody"}})
    assert peer.text("run_python", code="kept") == "5"


def _post_and_hold(peer: HttpPeer, message: dict[str, object]) -> socket.socket:
    """Sends a request on a connection of its own, which is returned without reading."""
    body = json.dumps(message).encode()
    lines = [f"{name}: {value}" for name, value in peer.headers(message).items()]
    connection = peer.client.socket()
    connection.sendall(peer.client.head("POST", "/mcp", *lines, f"Content-Length: {len(body)}") + body)
    return connection


def test_modern_disconnect_is_cancellation_and_legacy_is_not(service: Service) -> None:
    modern, legacy = HttpPeer(service, MODERN), HttpPeer(service, LEGACY, "bob")
    for peer in (modern, legacy):
        peer.text("run_python", code="kept = 5")
    connections = [_post_and_hold(peer, peer.message("tools/call", SLEEP_CALL, None)) for peer in (modern, legacy)]
    wait_for("both runs", lambda: is_running(service, "ann/default") and is_running(service, "bob/default"))
    for connection in connections:
        connection.close()
    wait_for("the modern run to end", lambda: not is_running(service, "ann/default"))
    assert modern.text("run_python", code="kept") == "5"
    time.sleep(0.5)
    assert is_running(service, "bob/default")
    assert legacy.text("interrupt") == "interrupted"


def test_legacy_cancellation_over_http_is_of_its_own_client_alone(service: Service) -> None:
    owner, other = HttpPeer(service), HttpPeer(service)
    owner.text("run_python", code="1")
    assert owner.session and other.session and owner.session != other.session
    message = owner.message("tools/call", SLEEP_CALL, None, id_=77)
    connection = _post_and_hold(owner, message)
    wait_for("the run", lambda: is_running(service, "ann/default"))
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
    assert other.post(cancelled).status == 202
    time.sleep(0.5)
    assert is_running(service, "ann/default")
    assert owner.post(cancelled).status == 202
    wait_for("the run to end", lambda: not is_running(service, "ann/default"))
    connection.close()


def test_calls_run_beside_each_other(service: Service, stdio: Callable[..., StdioPeer]) -> None:
    peer = stdio()
    handle = re.search(r'"([^"]+)"', peer.text("create_sandbox"))
    assert handle
    slow = peer.begin("tools/call", SLEEP_CALL)
    started = time.monotonic()
    assert peer.text("run_python", code="2", sandbox=handle[1]) == "2"
    assert peer.request("ping")["result"] == {}
    assert time.monotonic() - started < 20
    wait_for("the run", lambda: is_running(service, "-default"))
    assert peer.text("interrupt") == "interrupted"
    assert peer.wait(slow)["result"]["isError"] is True


def test_client_that_leaves_or_is_killed_leaves_nothing_behind(service: Service) -> None:
    before = {one["name"] for one in service.daemon.client().request("session.list")["sessions"]}
    ends: list[Callable[[StdioPeer], object]] = [lambda peer: peer.close(), lambda peer: peer.process.kill()]
    for end in ends:
        peer = StdioPeer(service.daemon)
        peer.text("run_python", code="1")
        peer.text("create_sandbox")
        peer.begin("tools/call", SLEEP_CALL)
        wait_for("the run", lambda: is_running(service, "-default"))
        end(peer)
        wait_for(
            "the sandboxes to be gone",
            lambda: {one["name"] for one in service.daemon.client().request("session.list")["sessions"]} == before,
        )
        peer.process.wait(30)


def test_calls_that_are_piped_in_are_answered_before_the_server_ends(service: Service) -> None:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "run_python", "arguments": {"code": "6 * 7"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    for last in ("\n", ""):  # printf without a line feed is a habit, too
        peer = StdioPeer(service.daemon)
        assert peer.process.stdin
        peer.process.stdin.write("\n".join(map(json.dumps, messages)) + last)
        peer.process.stdin.flush()
        peer.process.stdin.close()
        assert peer.wait(2)["result"]["content"][0]["text"] == "42"
        assert peer.process.wait(30) == 0


def test_at_a_terminal_the_server_prints_what_it_is(root_glovebox: Glovebox) -> None:
    screen = Screen(root_glovebox, "mcp")
    screen.expect(b'"glovebox mcp --install CLIENT" sets that up; Ctrl-D ends it')
    screen.type(b"\x04")
    assert screen.process.wait(30) == 0
    screen.close()
    assert root_glovebox("stop", "--end-sessions").returncode == 0


def test_client_and_daemon_killed_together_leave_no_sandbox_for_long(own_service: Service) -> None:
    daemon = own_service.daemon
    peer = StdioPeer(daemon)
    peer.text("run_python", code="1")
    daemon.client().request("execute", session="mcp-by-hand", code="1")
    peer.process.send_signal(signal.SIGSTOP)  # or it would open its channel to the next daemon
    daemon.kill()
    peer.process.kill()
    peer.process.wait(30)
    daemon.start()
    assert len(daemon.client().request("session.list")["sessions"]) == 2
    time.sleep(31)  # so long a relay that lives may take to come back
    StdioPeer(daemon).close()
    names = lambda: [one["name"] for one in daemon.client().request("session.list")["sessions"]]  # noqa: E731
    wait_for("the orphan to be gone", lambda: names() == ["mcp-by-hand"])


def test_handles_cannot_be_guessed_where_no_key_protects_them(service: Service) -> None:
    class UnixConnection(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(service.daemon.socket.removesuffix(".sock") + "-api.sock")

    connection = UnixConnection("localhost")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "create_sandbox"}}
    connection.request("POST", "/mcp", json.dumps(message), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    assert re.fullmatch(r'sandbox="sb-[a-z0-9]{26}"', answer["result"]["content"][0]["text"]), answer
    connection.close()


def test_kept_sandboxes_are_there_again(service: Service) -> None:
    peer = StdioPeer(service.daemon, LEGACY, "--session", "work")
    peer.text("run_python", code="w = 11")
    assert peer.close() == 0
    peer = StdioPeer(service.daemon, LEGACY, "--session", "work")
    assert peer.text("run_python", code="w") == "11"
    peer.text("close_sandbox", sandbox="default")
    peer.close()


def test_stdio_sees_none_but_its_own_sandboxes(service: Service, stdio: Callable[..., StdioPeer]) -> None:
    service.daemon.client().request("execute", session="by-hand", code="1")
    first, second = stdio(), stdio()
    handle = re.search(r'"([^"]+)"', first.text("create_sandbox"))
    assert handle
    for name in (handle[1], "by-hand", "mcp-default"):
        second.refusal("run_python", code="1", sandbox=name)
        second.refusal("read_file", path="x", sandbox=name)
    assert "by-hand" not in second.text("list_sandboxes") and handle[1] not in second.text("list_sandboxes")


def test_keys_do_not_see_each_others_sandboxes(service: Service) -> None:
    ann, bob = HttpPeer(service, MODERN, "ann"), HttpPeer(service, MODERN, "bob")
    ann.text("run_python", code="secret = 1")
    handle = re.search(r'"([^"]+)"', ann.text("create_sandbox"))
    assert handle
    assert "NameError" in bob.refusal("run_python", code="secret")
    bob.refusal("run_python", code="1", sandbox=handle[1])
    assert "error" in bob.request("resources/read", {"uri": f"glovebox://{handle[1]}/x"})


def _call_in_thread(peer: Peer, answers: list[dict[str, object]]) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(peer.request("tools/call", SLEEP_SHORT)))
    thread.start()
    return thread


SLEEP_SHORT = {
    "name": "run_python",
    "arguments": {"code": "import time\nprint('begun', flush=True)\ntime.sleep(4)\nprint('ended')"},
}


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_daemon_killed_in_the_middle_is_not_seen_on_stdio(own_service: Service, era: str) -> None:
    daemon = own_service.daemon
    peer = StdioPeer(daemon, era)
    peer.text("run_python", code="kept = 5")
    answers: list[dict[str, object]] = []
    thread = _call_in_thread(peer, answers)
    wait_for("the run", lambda: is_running(own_service, "-default"))
    time.sleep(0.2)  # in the middle, not at the very beginning: by then the relay knows which run it is
    daemon.kill()
    daemon.start()
    thread.join(60)
    assert answers and answers[0]["result"]["content"][0]["text"] == "begun\nended", answers  # type: ignore[index]
    assert peer.text("run_python", code="kept") == "5"
    peer.close()


def test_daemon_killed_in_the_middle_leaves_a_run_that_can_be_read_over_http(own_service: Service) -> None:
    peer = HttpPeer(own_service)
    run_id = run_id_of(peer.call("run_python", code=SLEEP_SHORT["arguments"]["code"], background=True))  # type: ignore[index]
    wait_for("the run", lambda: is_running(own_service, "ann/default"))
    own_service.daemon.kill()
    own_service.daemon.start()
    own_service.port = own_service.find_port()
    again = HttpPeer(own_service)
    assert again.text("read_output", run_id=run_id, wait_s=30) == "begun\nended"


def test_daemon_that_does_not_run_is_started_again_and_again(root_glovebox: Glovebox) -> None:
    data = root_glovebox.place.make("another")
    env = {"GLOVEBOX_DATA_DIR": str(data), "GLOVEBOX_SOCKET": str(data / "g.sock")}
    call = {"name": "run_python", "arguments": {"code": "x = globals().get('x', 0) + 1\nx"}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}) + "\n"
    process = root_glovebox.popen("mcp", env=env, stdin=-1)
    try:
        for number in ("1", "2"):
            assert process.stdin and process.stdout
            process.stdin.write(message)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["result"]["content"][0]["text"] == number
            status = json.loads(root_glovebox("status", "--json", env=env).stdout)
            os.kill(status["daemon"]["pid"], signal.SIGKILL)
            time.sleep(4)  # as long as it would wait for another process to start one
            assert root_glovebox("status", env=env).returncode == 1, "a daemon is not started for nothing"
        process.stdin.close()
        assert process.wait(30) == 0
    finally:
        root_glovebox("serve", "--background", env=env)  # for what the last one left
        stopped = root_glovebox("stop", "--end-sessions", env=env)
    assert stopped.returncode == 0, stopped.stderr
