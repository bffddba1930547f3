"""The client's wire: what is malformed is answered and ends the connection, never the daemon."""

from __future__ import annotations

import json
import socket

import pytest
from support.client import ANSWER, DATA, END, ERR, EVENT, HEADER, OUT, REQUEST, Client, DaemonError
from support.daemon import Daemon, memory_of, wait_for


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


def answer(client: Client, number: int | None = None) -> dict:
    kind, whose, payload = client.receive()
    assert kind == ANSWER and (number is None or whose == number), (kind, whose, payload)
    return json.loads(payload)


def is_closed(client: Client) -> bool:
    with pytest.raises(ConnectionError):
        client.receive()
    return True


MALFORMED = {
    "unknown type": HEADER.pack(0, 99, 0, 1),
    "type zero": HEADER.pack(0, 0, 0, 1),
    "a daemon's type": HEADER.pack(2, ANSWER, 0, 1) + b"{}",
    "nonzero padding": HEADER.pack(2, REQUEST, 1, 1) + b"{}",
    "an oversized request": HEADER.pack((1 << 20) + 1, REQUEST, 0, 1),
    "oversized data": HEADER.pack((1 << 20) + 1, DATA, 0, 1),
    "four gigabytes": HEADER.pack(0xFFFFFFFF, REQUEST, 0, 1),
    "an END with content": HEADER.pack(1, END, 0, 1) + b"x",
    "out": HEADER.pack(4, OUT, 0, 1) + b"\0\0\0\0",
    "err": HEADER.pack(4, ERR, 0, 1) + b"\0\0\0\0",
    "event": HEADER.pack(2, EVENT, 0, 1) + b"{}",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_message_is_answered_and_ends_the_connection(daemon: Daemon, what: str) -> None:
    client = daemon.client()
    client.socket.sendall(MALFORMED[what])
    answered = answer(client)
    assert (answered["ok"], answered["error"]["code"]) == (False, "protocol"), answered
    assert is_closed(client)
    assert daemon.client().request("ping")["pid"] == daemon.pid


BAD_REQUESTS = {
    "not JSON": (b"{", "protocol"),
    "not an object": (b"[]", "protocol"),
    "a duplicate key": (b'{"op": "ping", "op": "ping"}', "protocol"),
    "bytes that are not UTF-8": (b'{"op": "\xff"}', "protocol"),
    "a NUL": (b'{"op": "ping\\u0000"}', "protocol"),
    "deep nesting": (b"[" * 100000, "protocol"),
    "no operation": (b"{}", "usage"),
    "an operation that is no text": (b'{"op": 1}', "usage"),
    "an unknown operation": (b'{"op": "session.explode"}', "usage"),
    "no session": (b'{"op": "session.show"}', "usage"),
    "a session that is not there": (b'{"op": "session.show", "session": "nobody"}', "not_found"),
    "no code": (b'{"op": "execute", "session": "x"}', "usage"),
    "code that is no text": (b'{"op": "execute", "session": "x", "code": 1}', "usage"),
    "a context that is no text": (b'{"op": "execute", "session": "x", "code": "1", "context": 1}', "usage"),
    "a cwd that is no text": (b'{"op": "command", "session": "x", "shell": "true", "cwd": []}', "usage"),
    "no packages": (b'{"op": "session.install", "session": "x"}', "usage"),
    "no path": (b'{"op": "file.stat", "session": "there"}', "usage"),
    "no target of a move": (b'{"op": "file.move", "session": "there", "path": "a"}', "usage"),
    "no run": (b'{"op": "run.cancel", "session": "there"}', "usage"),
    "nothing to kill": (b'{"op": "kill"}', "usage"),
    "an unknown limit": (b'{"op": "session.create", "session": "x", "limits": {"luck": 1}}', "usage"),
    "a limit out of range": (b'{"op": "session.create", "session": "x", "limits": {"pids": -1}}', "usage"),
    "an unknown mode": (b'{"op": "session.create", "session": "x", "mode": "magic"}', "usage"),
    "a relative workspace": (b'{"op": "session.create", "session": "x", "workspace": "here"}', "usage"),
    "an image that is no name": (b'{"op": "session.create", "session": "x", "image": "../x"}', "usage"),
    "argv with numbers": (b'{"op": "command", "session": "x", "argv": [1]}', "usage"),
    "a run that is not there": (b'{"op": "run.read", "session": "there", "run": "0"}', "not_found"),
}


@pytest.mark.parametrize("what", BAD_REQUESTS)
def test_a_request_that_makes_no_sense_is_refused_and_makes_nothing(client: Client, what: str) -> None:
    client.request("session.create", session="there")
    payload, code = BAD_REQUESTS[what]
    client.send(REQUEST, payload, 4711)
    answered = answer(client, 4711)
    assert (answered["ok"], answered["error"]["code"]) == (False, code), answered
    assert answered["error"]["message"]
    names = [session["name"] for session in client.request("session.list")["sessions"]]
    assert "x" not in names


def test_a_request_may_come_byte_by_byte_and_many_may_come_at_once(client: Client) -> None:
    message = HEADER.pack(14, REQUEST, 0, 7) + b'{"op": "ping"}'
    for byte in message:
        client.socket.sendall(bytes([byte]))
    assert answer(client, 7)["ok"]
    client.socket.sendall(b"".join(HEADER.pack(14, REQUEST, 0, n) + b'{"op": "ping"}' for n in range(500)))
    assert [answer(client)["ok"] for _ in range(500)] == [True] * 500


def test_two_requests_with_the_same_number_are_not_mixed_up(client: Client) -> None:
    client.execute("import time", "twice")
    client.send(REQUEST, json.dumps({"op": "execute", "session": "twice", "code": "time.sleep(3600)"}).encode(), 9)
    client.send(REQUEST, b'{"op": "ping"}', 9)
    answered = answer(client)
    assert (answered["ok"], answered["error"]["code"]) == (False, "protocol"), answered
    assert is_closed(client)


def test_data_without_a_request_is_ignored(client: Client) -> None:
    client.send(DATA, b"x" * 1000, 99)
    client.send(END, b"", 99)
    assert client.request("ping")["ok"]


def test_code_larger_than_its_bound_is_refused(client: Client) -> None:
    number = client.begin("execute", session="large-code", code_follows=True)
    with pytest.raises(DaemonError) as caught:
        for _ in range(17):
            client.send(DATA, b"#" * (1 << 20), number)
        client.finish(number)
    assert caught.value.code == "limit"
    assert client.request("ping")["ok"]


def test_a_client_that_never_reads_costs_little_and_disturbs_no_other(daemon: Daemon, client: Client) -> None:
    client.execute("import os", "unread")
    before = memory_of(daemon.pid)
    deaf = daemon.client()
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(20):
        deaf.begin("execute", session="unread", code="os.write(1, b'x' * (8 << 20))", stream=True)
    for _ in range(20):
        assert client.execute("'y'", "unread")["result"] == {"text/plain": "'y'"}
    assert memory_of(daemon.pid) < before + (48 << 20)
    deaf.close()
    wait_for("the daemon to forget it", lambda: memory_of(daemon.pid) < before + (24 << 20))


def test_a_slow_reader_gets_all_of_a_stream(daemon: Daemon, client: Client) -> None:
    size = 12 << 20
    code = f"import os\nfor i in range(12): os.write(1, bytes([65 + i]) * {1 << 20})"
    expected = b"".join(bytes([65 + i]) * (1 << 20) for i in range(12))
    client.execute("pass", "slow")
    for where in ({"session": "slow"}, {"ephemeral": True}):
        slow = daemon.client()
        number = slow.begin("execute", stream=True, code=code, **where)
        # It does not read until all is over; other requests on the same connection come through as well.
        if "session" in where:
            wait_for("the run to end", lambda: client.execute("1", "slow")["status"] == "ok")
        ping = slow.begin("ping")
        done = slow.finish(number)
        assert done["status"] == "ok" and len(slow.out) == size and slow.out == expected, (where, len(slow.out))
        assert slow.finish(ping)["ok"]


def test_a_client_that_half_closes_still_gets_its_answers(daemon: Daemon) -> None:
    client = daemon.client()
    number = client.begin("ping")
    client.socket.shutdown(socket.SHUT_WR)
    assert client.finish(number)["ok"]
    assert is_closed(client)


def test_many_clients_come_and_go(daemon: Daemon) -> None:
    def pool_is_full() -> bool:
        pool = daemon.client().request("status")["pool"]
        return pool["ready"] >= pool["wanted"] and pool["light_ready"] >= pool["light_wanted"]

    wait_for("the pool, whose kernels have descriptors, too", pool_is_full)
    before = daemon.descriptors()
    for _ in range(10):
        crowd = [Client(daemon.socket) for _ in range(20)]
        for member in crowd:
            member.begin("ping")
        for member in crowd[::2]:
            assert member.finish()["ok"]
        for member in crowd:
            member.close()
    wait_for("their descriptors to be closed", lambda: daemon.descriptors() <= before)
