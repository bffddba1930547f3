"""What the HTTP server refuses, how long it waits, and how much it holds: driven over bare sockets."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_example import Example, example, read_answer, read_to_close, split, wait_until

HOST = b"Host: localhost\r\n"
PING = b"GET /ping HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /count HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

# A body that is a request of its own if the framing is read another way.
HIDDEN = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"

REFUSED = {
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "length and chunked": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "TE: xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + HIDDEN,
    "TE twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "TE with a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "control byte in a name": b"GET /ping HTTP/1.1\r\n" + HOST + b"A\x01B: c\r\n\r\n",
    "space in a name": b"GET /ping HTTP/1.1\r\n" + HOST + b"A B: c\r\n\r\n",
    "bare LF lines": b"GET /ping HTTP/1.1\nHost: localhost\n\n",
    "bare CR in a value": b"GET /ping HTTP/1.1\r\n" + HOST + b"A: b\rc\r\n\r\n",
    "NUL in a value": b"GET /ping HTTP/1.1\r\n" + HOST + b"A: b\0c\r\n\r\n",
    "NUL in the path": b"GET /ping\0 HTTP/1.1\r\n" + HOST + b"\r\n",
    "no Host": b"GET /ping HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /ping HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "folded header": b"GET /ping HTTP/1.1\r\n" + HOST + b"A: b\r\n c\r\n\r\n",
    "length -5": POST + b"Content-Length: -5\r\n\r\nhello",
    "length +5": POST + b"Content-Length: +5\r\n\r\nhello",
    "length 5abc": POST + b"Content-Length: 5abc\r\n\r\nhello",
    "length 2^63": POST + b"Content-Length: 9223372036854775808\r\n\r\nhello",
    "length 2^64+5": POST + b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "chunk size overflow": CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "chunk size -5": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "chunk size 0x5": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "junk after a chunk size": CHUNKED + b"5 junk\r\nhello\r\n0\r\n\r\n",
    "no CRLF after a chunk": CHUNKED + b"5\r\nhelloX0\r\n\r\n",
    "1 MB header": b"GET /ping HTTP/1.1\r\n" + HOST + b"A: " + b"x" * 1_000_000 + b"\r\n\r\n",
    "100k headers": b"GET /ping HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 100_000 + b"\r\n",
    "1 MB chunk extension": CHUNKED + b"5;" + b"x" * 1_000_000 + b"\r\nhello\r\n0\r\n\r\n",
    "1 MB path": b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "not HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n" + b"x" * 100,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Example]:
    # Long enough for any client to read why it was refused.
    with example("linger_ms=60000") as running:
        yield running


@pytest.mark.parametrize("probe", REFUSED)
def test_malformed_request_gets_4xx_and_a_closed_connection(server: Example, probe: str) -> None:
    with server.connect() as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(REFUSED[probe])
        answer = read_to_close(client)
    status, body = split(answer)
    assert 400 <= status < 600, answer
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    assert b'"detail":' in body


def test_pipelined_requests_are_answered_in_order(server: Example) -> None:
    requests = b"GET /tick?n=2 HTTP/1.1\r\n" + HOST + b"\r\n" + PING
    requests += b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nConnection: close\r\n\r\nhello"
    with server.connect() as client:
        client.sendall(requests)
        answer = read_to_close(client)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b"tick") < answer.index(b"pong") < answer.index(b"hello")


def test_connection_is_kept_and_a_byte_at_a_time_is_fine(server: Example) -> None:
    with server.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for byte in PING:
                client.sendall(bytes([byte]))
            assert read_answer(client).endswith(b"pong\n")


def test_expect_continue_is_answered_before_the_body(server: Example) -> None:
    with server.connect() as client:
        client.sendall(POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"hello")
        assert read_answer(client).endswith(b"\r\n\r\n5\n")


def test_stream_that_fails_has_no_end(server: Example) -> None:
    status, body = server.ask(b"GET /broken HTTP/1.1\r\n" + HOST + b"\r\n")
    assert status == 200 and body == b"4\r\nhalf\r\n"


def test_body_beyond_the_limit_gets_413_that_can_be_read(server: Example) -> None:
    with server.connect() as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 2000000\r\n\r\n" + b"x" * 2_000_000)
        assert split(read_to_close(client))[0] == 413


# --- clients that take their time -------------------------------------------------------------------------------------


def drip(client: socket.socket, data: bytes) -> bytes:
    """A byte now and then, until the server has had enough."""
    client.setblocking(False)
    answer = b""
    for byte in data:
        try:
            client.send(bytes([byte]))
            piece = client.recv(4096)
        except BlockingIOError:
            time.sleep(0.05)
            continue
        except (BrokenPipeError, ConnectionResetError):
            return answer
        if not piece:
            return answer
        answer += piece
    raise AssertionError("the server let it drip")


def test_silent_connection_is_closed() -> None:
    with example("head_ms=300") as server:
        begin = time.monotonic()
        with server.connect() as client:
            assert read_to_close(client) == b""
        assert time.monotonic() - begin >= 0.25


def test_dripping_head_is_ended_by_an_absolute_deadline() -> None:
    with example("head_ms=3000", "linger_ms=60000") as server, server.connect() as client:
        answer = drip(client, b"GET /ping HTTP/1.1\r\n" + HOST + b"A: " + b"x" * 1000)
        assert split(answer)[0] == 408
        assert server.stats()["timeouts"] == 1


def test_dripping_body_is_ended_by_the_least_rate() -> None:
    with example("body_ms=400", "body_min=1000", "linger_ms=60000") as server, server.connect() as client:
        client.sendall(POST + b"Content-Length: 100000\r\n\r\n")
        assert split(drip(client, b"x" * 1000))[0] == 408
        wait_until(lambda: server.stats()["gone"] == 1)


def test_body_that_the_server_itself_holds_up_is_not_too_slow() -> None:
    # Taken in bites with pauses of 5 ms: in a window the client can send only what the server takes.
    with example("body_ms=20000", "body_min=1") as server:
        head = b"POST /slow HTTP/1.1\r\n" + HOST + b"Content-Length: 4000000\r\nConnection: close\r\n\r\n"
        status, body = server.ask(head + b"x" * 4_000_000)
        assert (status, body) == (200, b"4000000\n")


def test_idle_kept_connection_is_closed() -> None:
    with example("idle_ms=300") as server, server.connect() as client:
        client.sendall(PING)
        assert split(read_to_close(client))[0] == 200


def test_client_that_never_reads_costs_no_memory_and_is_ended() -> None:
    with example("stall_ms=1500") as server, server.connect() as client:
        before = server.memory_kib("VmRSS")
        client.sendall(b"GET /stream?size=1000000000000 HTTP/1.1\r\n" + HOST + b"\r\n")
        wait_until(lambda: server.stats()["gone"] == 1)
        assert server.memory_kib("VmHWM") - before < 8 * 1024


def test_disconnect_is_seen_while_nothing_is_sent() -> None:
    with example() as server:
        client = server.connect()
        client.sendall(b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n")
        wait_until(lambda: server.stats()["holding"] == 1)
        client.close()
        wait_until(lambda: server.stats()["holding"] == 0)


# --- many and much ----------------------------------------------------------------------------------------------------


def test_200_megabytes_go_up_and_down_in_flat_memory() -> None:
    size, block = 200_000_000, b"x" * 1_000_000
    with example() as server, server.connect() as client:
        before = server.memory_kib("VmRSS")
        client.sendall(POST + f"Content-Length: {size}\r\n\r\n".encode())
        for _ in range(size // len(block)):
            client.sendall(block)
        assert read_answer(client).endswith(b"\r\n\r\n200000000\n")
        client.sendall(f"GET /stream?length=1&size={size} HTTP/1.1\r\n".encode() + HOST + b"Connection: close\r\n\r\n")
        received = 0
        while piece := client.recv(1 << 20):
            received += len(piece)
        assert size < received < size + 1000
        assert server.memory_kib("VmHWM") - before < 8 * 1024


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            pytest.skip(f"optional: this host allows {hard} open files, {count} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def test_2000_connections_are_bounded_and_newcomers_are_served() -> None:
    allow_files(2200)
    with example("connections=100") as server, contextlib.ExitStack() as stack:
        before = server.memory_kib("VmRSS")
        for _ in range(2000):
            stack.enter_context(server.connect())
        stats = server.stats()
        assert stats["open"] <= 100 and stats["accepted"] >= 2000
        assert server.memory_kib("VmRSS") - before < 8 * 1024
        assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 120


def test_busy_connections_are_never_closed_for_newcomers() -> None:
    with example("connections=10") as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(10)]
        for client in clients:
            client.sendall(b"GET /tick?n=50000 HTTP/1.1\r\n" + HOST + b"\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        status, body = server.ask(b"")
        assert status == 503 and b"try again" in body
        for client in clients:
            assert client.recv(100)


def test_server_without_descriptors_waits_and_recovers() -> None:
    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    with example(preexec_fn=few_files) as server:
        clients = [server.connect() for _ in range(100)]
        with clients[0] as first:
            first.sendall(PING)
            assert read_answer(first).endswith(b"pong\n")
        for client in clients[1:]:
            client.close()
        wait_until(lambda: server.ask(PING.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))[0] == 200)
        assert server.stats()["turned_away"] > 0


def test_drain_lets_streams_end_and_then_the_server_does() -> None:
    with example() as server, server.connect() as client, server.connect() as idle:
        idle.sendall(PING)
        assert read_answer(idle).endswith(b"pong\n")
        client.sendall(b"GET /tick?n=20 HTTP/1.1\r\n" + HOST + b"\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        assert server.process.stdin
        server.process.stdin.write(b"\n")
        server.process.stdin.flush()
        assert read_to_close(idle) == b""
        assert read_to_close(client).count(b"tick") == 20
        assert server.process.wait(60) == 0


def test_unix_socket_is_private_replaced_when_stale_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with example(f"unix={path}"), socket.socket(socket.AF_UNIX) as client:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(PING)
        assert read_answer(client).endswith(b"pong\n")
    assert not path.exists()
