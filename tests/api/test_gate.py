"""Access and quotas: keys, hosts, origins, limits, the UNIX socket, the end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from support.daemon import wait_for
from support.daemons import StartDaemon
from support.service import Answer, Service, ServiceClient, StartService


def ask(service: Service, *lines: str, path: str = "/sandboxes", method: str = "GET") -> int:
    """The status of a request whose head is written by hand."""
    with socket.create_connection(("127.0.0.1", service.port), 60) as connection:
        connection.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode())
        answer = b""
        while b"\r\n" not in answer:
            piece = connection.recv(4096)
            assert piece, "no answer"
            answer += piece
    return int(answer.split()[1])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("[::1]:{port}", 200),
        ("203.0.113.9", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("sandbox.example.org", 421),
    ],
)
def test_a_foreign_host_is_refused(service: Service, host: str, status: int) -> None:
    key = f"Authorization: Bearer {service.keys['ann']}"
    assert ask(service, f"Host: {host.format(port=service.port)}", key) == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1", "file://"])
def test_a_foreign_origin_is_refused(service: Service, origin: str) -> None:
    host, key = f"Host: 127.0.0.1:{service.port}", f"Authorization: Bearer {service.keys['ann']}"
    assert ask(service, host, key, f"Origin: {origin}") == 403
    assert ask(service, host, f"Origin: {origin}", path="/health") == 403
    assert ask(service, host, key, f"Origin: http://127.0.0.1:{service.port}") == 200


def test_the_operator_names_the_service(make_service: StartService) -> None:
    service = make_service("--names", "a.example.org,sandbox.example.org")
    key = f"Authorization: Bearer {service.keys['ann']}"
    assert ask(service, "Host: Sandbox.Example.ORG:443", key) == 200
    assert ask(service, "Host: b.example.org", key) == 421


def test_a_key_is_shown_in_one_way(service: Service) -> None:
    host, ann, bob = f"Host: 127.0.0.1:{service.port}", service.keys["ann"], service.keys["bob"]
    assert ask(service, host, f"X-API-Key: {ann}") == 200
    assert ask(service, host, f"X-API-Key: {ann}", f"Authorization: Bearer {bob}") == 401
    assert ask(service, host, f"Authorization: Basic {ann}") == 401
    assert ask(service, host, f"Authorization: Bearer {ann[:-1]}") == 401
    assert ask(service, host, path=f"/sandboxes?key={ann}") == 401


def test_keys_are_never_logged_nor_kept_in_plain(make_service: StartService) -> None:
    service = make_service("--verbose")
    key = service.keys["ann"]
    ServiceClient(service.port, key).get("/sandboxes")
    ServiceClient(service.port, key + "x").get("/sandboxes")
    assert "/sandboxes" in service.daemon.words() and key not in service.daemon.words()
    path = service.daemon.data / "keys"
    assert key not in path.read_text() and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_key_counts_at_once_and_a_removed_one_no_longer(make_service: StartService) -> None:
    service = make_service(keys=("ann",))
    done = service.daemon.glovebox("serve", "--new-key", "carl")
    carl = ServiceClient(service.port, done.stdout.strip())
    wait_for("carl's key", lambda: carl.get("/sandboxes").status == 200)
    path = service.daemon.data / "keys"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("carl")]
    path.write_text("\n".join(kept) + "\n")
    wait_for("carl's key to be gone", lambda: carl.get("/sandboxes").status == 401)
    assert service.client("ann").get("/sandboxes").status == 200
    path.write_text("nonsense\n")
    wait_for("the log", lambda: "the keys stay as they were" in tick(service))
    assert service.client("ann").get("/sandboxes").status == 200


def tick(service: Service) -> str:
    service.client("ann").get("/sandboxes")
    return service.daemon.words()


def test_tcp_needs_a_key(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(start=False)
    for arguments in (("--port", "0"), ("--host", "127.0.0.1")):
        done = daemon.glovebox("serve", "--socket", str(daemon.data / "x.sock"), *arguments)
        assert done.returncode != 0 and "--new-key" in done.stderr, done.stderr
    refused = daemon.glovebox("serve", "--port", "0", env={"SANDBOX_API_KEY": "short"})
    assert refused.returncode != 0 and "SANDBOX_API_KEY" not in refused.stdout


def test_the_variables_of_the_seeds(start_daemon: StartDaemon) -> None:
    key = "a-key-from-the-environment"
    daemon = start_daemon(
        env={
            "SANDBOX_API_KEY": key,
            "SANDBOX_API_HOST": "127.0.0.1",
            "SANDBOX_API_PORT": "0",
            "SANDBOX_MAX_CONTAINERS": "1",
            "SANDBOX_DOCKER_MEMORY": "300m",
            "SANDBOX_DOCKER_CPU": "0.5",
        }
    )
    service = Service(daemon, {"default": key})
    client = service.client()
    limits = client.post("/sandbox/a/create").json()["limits"]
    assert (limits["memory_bytes"], limits["cpus"]) == (300 << 20, 0.5)
    over = client.post("/sandbox/b/create")
    assert over.status == 429 and over.headers["Retry-After"] and "SANDBOX_MAX_CONTAINERS" in over.json()["detail"]
    assert client.post("/sandbox/b/execute", {"code": "1"}).status == 429
    assert client.post("/sandbox/a/create").status == 200
    assert client.delete("/sandbox/a/destroy").status == 200
    assert client.post("/sandbox/b/create").status == 201


def test_quotas_of_a_key(make_service: StartService) -> None:
    service = make_service("--key-sandboxes", "2", "--key-runs", "2")
    ann, bob = service.client("ann"), service.client("bob")
    assert [ann.post(f"/sandbox/q{n}/create").status for n in range(3)] == [201, 201, 429]
    assert bob.post("/sandbox/q0/create").status == 201, "what one key has does not count for another"
    runs = [
        ann.post(f"/sandbox/q{n}/execute", {"code": "import time\ntime.sleep(600)", "detach": True}) for n in (0, 1)
    ]
    assert [run.status for run in runs] == [202, 202]
    over = ann.post("/sandbox/q0/execute", {"code": "1"})
    assert over.status == 429 and over.headers["Retry-After"], over
    bob.execute("q0", "1")
    wait_for("the run to be on", lambda: ann.post("/sandbox/q0/interrupt").json()["interrupted"])
    wait_for("room for a run", lambda: ann.post("/sandbox/q0/execute", {"code": "1"}).status == 200)


def test_limits_have_a_ceiling_for_keys(make_service: StartService) -> None:
    service = make_service("--max-memory", "1g", "--max-cpus", "2", "--max-timeout", "1m")
    ann = service.client("ann")
    for limits in ({"memory": "2g"}, {"cpus": 3}, {"timeout": 61}, {"pids": 5000}, {"disk": "1t"}, {"tmp": "5g"}):
        answer = ann.post("/sandbox/high/create", {"limits": limits})
        assert answer.status == 403 and "at most" in answer.json()["detail"], answer
    assert ann.post("/sandbox/high/create", {"limits": {"memory": "1g", "cpus": 2, "timeout": 60}}).status == 201
    assert ann.post("/sandbox/high/execute", {"code": "1", "timeout": 61}).status == 403
    assert ann.execute("high", "1", timeout=60)["status"] == "ok"
    assert over_unix(service, "GET", "/sandboxes").status == 200


def test_a_rate_of_requests(make_service: StartService) -> None:
    service = make_service("--key-rate", "30")
    ann = service.client("ann")
    answers: list[Answer] = [ann.get("/sandboxes") for _ in range(40)]
    refused = [answer for answer in answers if answer.status == 429]
    assert answers[0].status == 200 and refused, "a minute's worth may come at once, and no more"
    assert 1 <= int(refused[0].headers["Retry-After"]) <= 60
    assert service.client("bob").get("/sandboxes").status == 200
    assert service.stranger().get("/health").status == 200


def test_bodies_are_json_and_bounded(service: Service) -> None:
    client = service.client("ann")
    path = "/sandbox/bodies/execute"
    json_type = {"Content-Type": "application/json"}

    def post(content: bytes, headers: dict[str, str]) -> int:
        return client.request("POST", path, content, headers).status

    good = json.dumps({"code": "1"}).encode()
    assert post(good, {}) == post(good, {"Content-Type": "text/plain"}) == 415
    assert post(good, {"Content-Type": "application/x-www-form-urlencoded"}) == 415
    assert post(b"{", json_type) == post(b"[]", json_type) == post(b"\xff", json_type) == 400
    assert post(b'{"code":"1","code":"2"}', json_type) == 400, "whose of the two would be believed?"
    assert post(b"[" * 100000, json_type) == post(b'{"a":' * 5000 + b"1" + b"}" * 5000, json_type) == 400
    assert post(b'{"code": 1}', json_type) == post(b"{}", json_type) == 400
    assert client.get("/sandbox/bodies").status in (200, 404)
    with client.socket() as connection:
        connection.sendall(client.head("POST", path, "Content-Type: application/json", "Content-Length: 99999999"))
        assert b" 413 " in connection.recv(4096)
    assert client.post("/sandbox/bodies/execute", {"code": "1"}).status == 200


def test_bodies_that_are_announced_keep_no_other_client_out(make_service: StartService) -> None:
    """What counts is what has come (tests/unit/test_http_connection.c has the bound), and small ones get through."""
    service = make_service(keys=("ann",))
    client = service.client()
    head = ("Content-Type: application/json", f"Content-Length: {1 << 20}")
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            connection = stack.enter_context(client.socket())
            connection.sendall(client.head("POST", "/sandbox/large/execute", *head) + b'{"code": "')
        wait_for("all of them", lambda: b"\nglovebox_http_requests_open 17\n" in client.get("/metrics").body)
        assert client.post("/sandbox/large/execute", {"code": "1"}).status == 200


@pytest.mark.parametrize("user_id", ["..", "a%2Fb", "%00", "a%0Ab", ".hidden", "x" * 129, "%ff", "a b"])
def test_a_user_id_is_a_name(service: Service, user_id: str) -> None:
    client = service.client("ann")
    path = user_id.replace(" ", "%20")
    assert client.post(f"/sandbox/{path}/create").status == 400
    assert client.post(f"/sandbox/{path}/execute", {"code": "1"}).status == 400


def test_methods_and_paths(service: Service) -> None:
    client = service.client("ann")
    answer = client.get("/sandbox/x/execute")
    assert answer.status == 405 and answer.headers["Allow"] == "POST"
    assert client.get("/nothing").status == 404
    assert client.request("HEAD", "/health").body == b""
    assert client.request("OPTIONS", "/health").status in (405, 501)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def over_unix(service: Service, method: str, path: str, key: str | None = None) -> Any:
    connection = UnixConnection(service.daemon.data / "d-api.sock")
    connection.request(method, path, headers={"Authorization": f"Bearer {key}"} if key else {})
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


def test_the_unix_socket_is_its_owners(service: Service) -> None:
    path = service.daemon.data / "d-api.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    client = service.client("ann")
    made = client.post("/sandbox/unix/create").json()
    seen = [one["id"] for one in over_unix(service, "GET", "/sandboxes").json()["sandboxes"]]
    assert made["id"] in seen, "the operator sees every key's"
    assert over_unix(service, "GET", f"/sandbox/{made['id']}").json()["workspace"]
    assert over_unix(service, "GET", "/sandboxes", "wrong").status == 401
    seen = over_unix(service, "GET", "/sandboxes", service.keys["bob"]).json()["sandboxes"]
    assert made["id"] not in [one["id"] for one in seen]


def test_sigterm_drains(make_service: StartService) -> None:
    """What is under way is answered, and nothing new is taken."""
    service = make_service()
    client = service.client()
    client.execute("drain", "import os")
    answers: list[Answer] = []
    code = "import time\nopen('/workspace/on', 'w').close()\ntime.sleep(1.5)\n'answered'"
    thread = threading.Thread(target=lambda: answers.append(client.post("/sandbox/drain/execute", {"code": code})))
    mark = service.workspace(service.client(), "drain") / "on"
    thread.start()
    wait_for("the run", mark.exists)
    os.kill(service.daemon.pid, signal.SIGTERM)
    thread.join(60)
    assert answers and answers[0].json()["result"]["text/plain"] == "'answered'", answers
    assert service.daemon.process is not None and service.daemon.process.wait(60) == 0
    with pytest.raises(OSError):
        service.stranger().get("/health")
    service.daemon.start()
    again = ServiceClient(service.find_port(), service.keys["ann"])
    assert again.execute("drain", "os.getpid()")["status"] == "ok", "its variables lived on"
