"""Clients with a key that take more than their share, or another's: what they leave behind, and what they hold."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import tempfile
from pathlib import Path

from support.daemon import wait_for
from support.daemons import StartDaemon
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


def test_who_reads_along_and_leaves_leaves_nothing_behind(make_service: StartService) -> None:
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
    """16 MiB of one key fit, which is half of what there is; the rest is for others."""
    service = make_service()
    ann, bob = service.client("ann"), service.client("bob")
    assert ann.post("/sandbox/a/execute", LONG).status == 202
    large = {"code": "#" * (1 << 20), "detach": True}
    statuses = [ann.post("/sandbox/a/execute", large).status for _ in range(16)]
    assert statuses == [202] * 15 + [429], statuses
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


def test_the_last_number_that_there_is_has_no_next(make_service: StartService) -> None:
    client = make_service().client()
    run_id = client.execute("a", "1")["run_id"]
    answer = client.get(f"/sandbox/a/runs/{run_id}/events", {"Last-Event-ID": str(2**63 - 1)})
    assert answer.status == 200 and b"event: result" in answer.body, answer
    assert client.get(f"/sandbox/a/runs/{run_id}/events?from={2**63 - 1}").status == 400
