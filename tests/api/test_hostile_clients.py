"""Clients with a key that take more than their share, or another's: what they leave behind, and what they hold."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import tempfile
import time
from pathlib import Path

import pytest
from support.client import DATA, HEADER, REQUEST
from support.daemon import memory_of, wait_for
from support.daemons import StartDaemon
from support.glovebox import slowness
from support.service import Service, ServiceClient, StartService, start_service

LONG = {"code": "import time; time.sleep(600)", "detach": True}


def metric(client: ServiceClient, name: str) -> int:
    found = re.search(rf"^{re.escape(name)} (\d+)$", client.get("/metrics").body.decode(), re.MULTILINE)
    assert found, name
    return int(found[1])


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        piece = connection.recv(65536)
        assert piece, seen
        seen += piece
    return seen


def test_a_second_reader_that_disconnects_leaves_nothing_behind(make_service: StartService) -> None:
    client = make_service().client()
    run_id = client.post("/sandbox/a/execute", LONG).json()["run_id"]
    for _ in range(5):
        with client.socket() as connection:
            connection.sendall(client.head("GET", f"/sandbox/a/runs/{run_id}/events"))
            read_until(connection, b"event: start")
    # Two remain: the run that goes on without a client, and the question itself.
    wait_for("those who left to be forgotten", lambda: metric(client, "glovebox_http_requests_open") == 2)


def test_an_install_counts_until_it_has_ended(start_daemon: StartDaemon) -> None:
    """Although its client has left: otherwise leaving would be a way to have any number of them."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        settings = {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"http://packages.example:{index.getsockname()[1]}/simple/",
            "PIP_TRUSTED_HOST": "packages.example",
            "PIP_RETRIES": "0",
            "PIP_TIMEOUT": "600",
        }
        options = ("--key-runs", "1", "--egress-host", "packages.example=127.0.0.1")
        service = start_service(start_daemon(*options, env=settings, start=False))
        client = service.client("ann")
        leaving = client.connect()
        body = b'{"packages": ["parcel"]}'
        headers = client.headers({"Content-Type": "application/json"})
        leaving.request("POST", "/sandbox/a/pip/install", body, headers)
        index.settimeout(120)
        asked, _ = index.accept()  # pip waits for our answer from here on
        with asked:
            leaving.close()
            wait_for("the client to be gone", lambda: metric(client, "glovebox_http_connections") == 1)
            assert metric(client, 'glovebox_key_runs{key="ann"}') == 1
            assert client.post("/sandbox/b/execute", {"code": "1"}).status == 429
        wait_for("the end of the install", lambda: metric(client, 'glovebox_key_runs{key="ann"}') == 0)
        assert client.post("/sandbox/b/execute", {"code": "1"}).status == 200


def test_one_key_cannot_hold_all_files_that_can_be_sent_at_once(make_service: StartService) -> None:
    """Forms that are begun first and filled later count by what they hold, not by when they began."""
    service = make_service()
    ann, bob = service.client("ann"), service.client("bob")
    part = '--b\r\nContent-Disposition: form-data; name="f"; filename="{}"\r\n\r\nx\r\n'
    parts = "".join(part.format(i) for i in range(32)).encode()
    head = ann.head(
        "POST", "/sandbox/a/file?path=.", "Content-Type: multipart/form-data; boundary=b", "Content-Length: 1000000"
    )
    assert ann.post("/sandbox/a/create").status == 201
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(ann.socket()) for _ in range(9)]
        for connection in connections:
            connection.sendall(head)
        for connection in connections:
            connection.sendall(parts)
        answered, _, _ = select.select(connections, [], [], 120)
        assert len(answered) == 1 and answered[0].recv(65536).startswith(b"HTTP/1.1 429 ")
        assert bob.request("PUT", "/sandbox/b/file?path=small", b"x").status == 201
    wait_for("room again", lambda: ann.request("PUT", "/sandbox/a/file?path=small", b"x").status == 201)


def test_the_key_of_the_environment_stays_in_no_process(start_daemon: StartDaemon) -> None:
    """Neither in the daemon's environment, which its children inherit, nor in theirs."""
    key = "a-key-from-the-environment"
    daemon = start_daemon(env={"SANDBOX_API_KEY": key, "SANDBOX_API_PORT": "0"})
    client = Service(daemon, {"default": key}).client()
    client.execute("a", "1")
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    assert children
    for pid in [daemon.pid, *daemon.vaults(), *map(int, children)]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            assert key.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_the_project_of_the_operator_is_no_keys_to_mount(make_service: StartService) -> None:
    with tempfile.TemporaryDirectory(prefix="glovebox-test-project-") as project:
        service = make_service("--project", project)
        mounts = [{"source": project, "destination": "/mnt/project", "writable": True}]
        client = service.client()
        answer = client.post("/sandbox/a/create", {"mounts": mounts})
        assert answer.status == 403 and client.get("/sandbox/a").status == 404, answer


def test_runs_together_hold_a_bounded_amount_of_code(make_service: StartService) -> None:
    """6 MiB of one key fit, which is half of what there is; the rest is for others."""
    service = make_service()
    ann, bob = service.client("ann"), service.client("bob")
    assert ann.post("/sandbox/a/execute", LONG).status == 202
    large = {"code": "#" * (1 << 20), "detach": True}
    statuses = [ann.post("/sandbox/a/execute", large).status for _ in range(6)]
    assert statuses == [202] * 5 + [429], statuses
    assert bob.post("/sandbox/b/execute", large).status == 202
    ann.execute("c", "1")


def test_large_answers_that_are_not_read_have_a_bound_together(make_service: StartService) -> None:
    service = make_service()
    ann, bob = service.client("ann"), service.client("bob")
    show = (
        "import sys\nfor _ in range(3): display({'text/html': '<' * 1000000}, raw=True)\n"
        "for file in sys.stdout, sys.stderr: print('\\x01' * 1000000, file=file)\n'<' * 1000000"
    )
    run_id = ann.execute("a", show)["run_id"]
    path = f"/sandbox/a/runs/{run_id}"
    assert len(ann.get(path).body) > 7 << 20
    with contextlib.ExitStack() as stack:
        for _ in range(100):  # each takes some megabytes, and systems hold different amounts of them on the way
            connection = stack.enter_context(ann.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(ann.head("GET", path))
            status = connection.recv(12)
            if status != b"HTTP/1.1 200":
                break
        assert status == b"HTTP/1.1 503"
        assert bob.execute("b", "1+1")["result"]["text/plain"] == "2"
        large = bob.get(f"/sandbox/b/runs/{bob.execute('b', show)['run_id']}")  # what one key fills is its own share
        assert large.status == 200 and len(large.body) > 7 << 20, large.status
    wait_for("room again", lambda: ann.get(path).status == 200)


MOVED_MAX = 16 << 20
QUIET_MAX_S = 1.0
PIECE = b"x" * 1_000_000
# What a client sends on each of many connections, and then neither ends nor reads.
HELD = {
    "bodies": (60, "POST /sandbox/a/execute", ("Content-Type: application/json", "Content-Length: 1400000"), PIECE),
    "small bodies": (
        900,
        "POST /sandbox/a/execute",
        ("Content-Type: application/json", "Content-Length: 90000"),
        PIECE,
    ),
    "chunks": (
        60,
        "POST /mcp",
        ("Content-Type: application/json", "Transfer-Encoding: chunked"),
        b"100000\r\n" + PIECE,
    ),
    "heads": (900, "GET /health", (f"X-A: {'a' * 7000}", f"X-B: {'b' * 7000}", f"X-C: {'c' * 7000}"), b""),
}


def send_what_is_taken(connection: socket.socket, data: bytes) -> None:
    connection.setblocking(False)
    end = time.monotonic() + 0.3
    while data and time.monotonic() < end:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            if not select.select([], [connection], [], 0.02)[1]:
                return
        except OSError:  # it was refused
            return


@pytest.mark.parametrize("what", HELD)
def test_requests_that_never_end_hold_little_memory(make_service: StartService, what: str) -> None:
    service = make_service()
    ann, bob = service.client("ann"), service.client("bob")
    bob.execute("b", "1")
    before = memory_of(service.daemon.pid)
    number, line, lines, body = HELD[what]
    head = ann.head(*line.split(), *lines)
    if what == "heads":
        head = head[:-2]
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            send_what_is_taken(stack.enter_context(ann.socket()), head + body[: 80000 if number > 100 else None])
        bob.execute("b", "1")
        assert memory_of(service.daemon.pid) - before < MOVED_MAX
        assert bob.post("/sandbox/b/execute", {"code": "#" * 1_000_000}).status == 200, "there is room for others"


def test_requests_in_a_row_hold_no_memory_and_delay_no_other(make_service: StartService) -> None:
    """Without a key, and nothing is read of the answers."""
    service = make_service()
    bob = service.client("bob")
    bob.execute("b", "1")
    before = memory_of(service.daemon.pid)
    many = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 6000
    took = []
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(bob.socket()) for _ in range(200)]
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for connection in connections:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.send(many)
            if len(took) < 20:
                began = time.monotonic()
                bob.execute("b", "1")
                took.append(time.monotonic() - began)
        assert memory_of(service.daemon.pid) - before < MOVED_MAX
    assert sorted(took)[10] < 0.1 * slowness() and max(took) < QUIET_MAX_S * slowness(), took


def test_many_requests_on_one_connection_take_turns(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    quiet, busy = daemon.client(), daemon.client()
    for i in range(200):
        busy.request("session.create", session=f"s{i}")
    before = memory_of(daemon.pid)
    creating_ms = quiet.request("status")["daemon"]["longest_turn_cpu_ms"]
    asked = json.dumps({"op": "session.list"}).encode()
    busy.socket.sendall(b"".join(HEADER.pack(len(asked), REQUEST, 0, 1000 + i) + asked for i in range(1000)))
    quiet.request("ping")
    assert memory_of(daemon.pid) - before < MOVED_MAX
    for i in range(1000):  # and all are answered
        assert len(busy.finish(1000 + i)["sessions"]) == 200
    assert quiet.request("status")["daemon"]["longest_turn_cpu_ms"] <= max(40 * slowness(), creating_ms)


def test_answers_that_many_connections_do_not_read_are_not_held_in_memory(make_service: StartService) -> None:
    """Of the operator, who is not refused: they wait in files, and come whole and in order when they are read."""
    service = make_service()
    operator = service.daemon.client()
    show = "for _ in range(3): display({'text/html': '<' * 900000}, raw=True)\nprint('x' * 900000)"
    operator.execute("1", "quiet")
    run = operator.execute(show, "loud")["run_id"]
    before = memory_of(service.daemon.pid)
    waiting = [service.daemon.client() for _ in range(25)]
    for client in waiting:
        for _ in range(3):
            client.begin("run.show", session="loud", run=run)
    operator.execute("1", "quiet")
    wait_for("answers that wait", lambda: len(os.listdir(f"/proc/{service.daemon.pid}/fd")) > 40)
    assert memory_of(service.daemon.pid) - before < MOVED_MAX
    for client in waiting:
        for number in range(client.number - 2, client.number + 1):
            shown = client.finish(number)
            assert [len(one["text/html"]) for one in shown["displays"]] == [900000] * 3
            assert shown["stdout"] == "x" * 900000 + "\n"


def test_code_that_never_ends_on_many_connections_is_bounded(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    quiet = daemon.client()
    quiet.execute("1", "quiet")
    before = memory_of(daemon.pid)
    asked = json.dumps({"op": "execute", "session": "a", "code_follows": True}).encode()
    for _ in range(40):
        client = daemon.client()
        data = HEADER.pack(1 << 20, DATA, 0, 1) + b"#" * 900_000
        send_what_is_taken(client.socket, HEADER.pack(len(asked), REQUEST, 0, 1) + asked + data)
    quiet.execute("1", "quiet")
    assert memory_of(daemon.pid) - before < MOVED_MAX


def test_displays_of_runs_are_not_held_in_memory(make_service: StartService) -> None:
    service = make_service()
    ann = service.client("ann")
    show = (
        "for _ in range(3): display({'text/html': '<' * 900000}, raw=True)\n"
        "open('shown', 'w').close()\nimport time; time.sleep(60)"
    )
    ann.execute("a0", "1")
    before = memory_of(service.daemon.pid)
    for i in range(12):
        assert ann.post(f"/sandbox/a{i}/execute", {"code": show, "detach": True}).status == 202
    for i in range(12):
        wait_for("it to be shown", lambda i=i: ann.get(f"/sandbox/a{i}/file?path=shown&stat=true").status == 200)
    assert memory_of(service.daemon.pid) - before < MOVED_MAX
    (run,) = ann.get("/sandbox/a3/runs?limit=1").json()["runs"]
    ann.post("/sandbox/a3/interrupt")
    shown = wait_for("its result", lambda: ann.get(f"/sandbox/a3/runs/{run['run_id']}").json().get("displays"))
    assert [len(one["text/html"]) for one in shown] == [900000] * 3


def test_few_read_along_with_one_run(make_service: StartService) -> None:
    """All who do get what it prints in one turn of the daemon's loop."""
    ann = make_service().client("ann")
    run_id = ann.post("/sandbox/a/execute", LONG).json()["run_id"]
    statuses = []
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(ann.socket())
            connection.sendall(ann.head("GET", f"/sandbox/a/runs/{run_id}/events"))
            statuses.append(connection.recv(12))
    assert statuses == [b"HTTP/1.1 200"] * 32 + [b"HTTP/1.1 429"] * 8, statuses


def test_the_last_number_that_there_is_has_no_next(make_service: StartService) -> None:
    client = make_service().client()
    run_id = client.execute("a", "1")["run_id"]
    answer = client.get(f"/sandbox/a/runs/{run_id}/events", {"Last-Event-ID": str(2**63 - 1)})
    assert answer.status == 200 and b"event: result" in answer.body, answer
    assert client.get(f"/sandbox/a/runs/{run_id}/events?from={2**63 - 1}").status == 400
