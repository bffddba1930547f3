"""Sandboxes, runs and streams over HTTP: what a client sees."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import memory_of, wait_for
from support.service import Service, ServiceClient, StartService

SSE = {"Accept": "text/event-stream", "Content-Type": "application/json"}
LINES = {"Accept": "application/x-ndjson", "Content-Type": "application/json"}


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def events_of(text: str) -> list[dict[str, Any]]:
    """Server-sent events, each with its `id` where it has one."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            event = json.loads(fields["data"])
            assert event["event"] == fields["event"]
            if "id" in fields:
                assert event["number"] == int(fields["id"])
            events.append(event)
    return events


def lines_of(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Events as they come."""
    while line := response.readline():
        if line.strip():
            yield json.loads(line)


def begin(client: ServiceClient, path: str, headers: dict[str, str], **fields: Any) -> http.client.HTTPResponse:
    connection = client.connect()
    connection.request("POST", path, body(**fields), client.headers(headers))
    return connection.getresponse()


# ---- sandboxes ----


def test_create_makes_once_and_returns_it_afterwards(service: Service) -> None:
    client = service.client("ann")
    first = client.post("/sandbox/c1/create", {"limits": {"memory": "256m", "cpus": 0.5, "timeout": 20}})
    again = client.post("/sandbox/c1/create")
    assert (first.status, again.status) == (201, 200), (first, again)
    made = first.json()
    assert made["user_id"] == "c1" and made["state"] == "new"
    assert made["limits"]["memory_bytes"] == 256 << 20 and made["limits"]["timeout_ms"] == 20000
    other = client.post("/sandbox/c1/create", {"limits": {"memory": "1g", "cpus": 0.5}, "mode": "fresh"})
    assert other.json()["unchanged"] == ["mode", "memory"] and again.json()["unchanged"] == []
    assert again.json()["id"] == made["id"] and again.json()["created"] == made["created"]
    assert not {"workspace", "pid"} & made.keys(), "the host's paths and processes are the operator's business"
    assert client.get("/sandbox/c1").json()["id"] == made["id"]
    assert [one["user_id"] for one in client.get("/sandboxes").json()["sandboxes"]].count("c1") == 1


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"limits": {"memory": "lots"}}, 400),
        ({"limits": {"speed": 1}}, 400),
        ({"colour": "blue"}, 400),
        ({"engine": "docker"}, 501),
        ({"min_isolation": "extreme"}, 400),
        ({"workspace": "/etc"}, 403),
        ({"allow_weaker": True}, 403),
        ({"image": "no-such-image"}, 404),
    ],
)
def test_create_refuses_with_a_reason(service: Service, options: dict[str, Any], status: int) -> None:
    client = service.client("ann")
    answer = client.post("/sandbox/refused/create", options)
    if status == 404 and answer.status == 201:  # an image is looked for when something is run
        answer = client.post("/sandbox/refused/execute", {"code": "1"})
        client.delete("/sandbox/refused/destroy")
    assert answer.status == status, answer
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"] and answer.json()["code"]
    assert client.get("/sandbox/refused").status == 404


def test_mounts_need_the_operators_leave(service: Service) -> None:
    client = service.client("ann")
    mount = {"source": "/etc", "destination": "/host", "writable": False}
    assert client.post("/sandbox/mounts/create", {"mounts": [mount], "operator": True}).status == 400
    assert client.post("/sandbox/mounts2/create", {"mounts": [mount]}).status == 403
    answer = client.post("/sandbox/mounts2/execute", {"code": "open('/host/hostname').read()"})
    assert answer.json()["error"]["name"] == "FileNotFoundError", answer


def test_destroy_removes_files_or_keeps_them(service: Service) -> None:
    client = service.client("ann")
    places = {}
    for name in ("d1", "d2"):
        client.execute(name, "open('/workspace/kept', 'w').write('x')")
        places[name] = service.workspace(client, name)
    assert client.delete("/sandbox/d1/destroy?keep_files=maybe").status == 400
    assert client.get("/sandbox/d1").status == 200, "what is misspelled removes nothing"
    assert client.delete("/sandbox/d1/destroy").status == 200
    assert client.delete("/sandbox/d2/destroy?keep_files=true").status == 200
    wait_for("the files to go", lambda: not places["d1"].exists())
    assert (places["d2"] / "kept").read_text() == "x"
    shutil.rmtree(places["d2"])
    assert client.get("/sandbox/d1").status == client.delete("/sandbox/d1/destroy").status == 404


def test_one_key_does_not_see_anothers_sandboxes(service: Service) -> None:
    ann, bob = service.client("ann"), service.client("bob")
    ann.execute("shared-name", "secret = 'of ann'")
    run = ann.execute("shared-name", "secret")["run_id"]
    sandbox = ann.get("/sandbox/shared-name").json()["id"]
    for name in ("shared-name", sandbox):
        for path in ("", "/isolation", "/runs", f"/runs/{run}", f"/runs/{run}/events"):
            assert bob.get(f"/sandbox/{name}{path}").status == 404, path
        for path in ("/interrupt", "/restart", "/hibernate", f"/runs/{run}/cancel"):
            assert bob.post(f"/sandbox/{name}{path}").status == 404, path
        assert bob.delete(f"/sandbox/{name}/destroy").status == 404
    answer = bob.post("/sandbox/shared-name/execute", {"code": "secret"}).json()
    assert answer["status"] == "error" and "NameError" in answer["error"]["name"]
    assert ann.execute("shared-name", "secret")["result"]["text/plain"] == "'of ann'"
    assert all(one["id"] != sandbox for one in bob.get("/sandboxes").json()["sandboxes"])


def test_interrupt_restart_hibernate(service: Service) -> None:
    client = service.client("ann")
    client.execute("irh", "x = 5")
    stream = begin(client, "/sandbox/irh/execute", LINES, code="print('on', flush=True)\nimport time\ntime.sleep(600)")
    events = lines_of(stream)
    assert [next(events)["event"], next(events)["text"]] == ["start", "on\n"]
    assert client.post("/sandbox/irh/interrupt").json()["interrupted"] is True
    assert list(events)[-1]["result"]["status"] == "interrupted"
    assert client.post("/sandbox/irh/hibernate").json()["state"] == "asleep"
    assert client.get("/sandbox/irh").json()["state"] == "asleep"
    assert client.execute("irh", "x")["result"]["text/plain"] == "5"
    assert client.post("/sandbox/irh/restart").status == 200
    assert client.post("/sandbox/irh/execute", {"code": "x"}).json()["error"]["name"] == "NameError"


# ---- runs ----


def test_a_run_reports_everything(service: Service) -> None:
    client = service.client("ann")
    result = client.execute("tells", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("out\n", "err\n", 0)
    assert result["result"]["text/plain"] == "42"
    failed = client.post("/sandbox/tells/execute", {"code": "1/0"}).json()
    assert (failed["status"], failed["error"]["name"]) == ("error", "ZeroDivisionError")
    late = client.post("/sandbox/tells/execute", {"code": "while True: pass", "timeout": 0.3}).json()
    assert (late["status"], late["timed_out"], late["exit_code"]) == ("timeout", True, 124)
    shell = client.post("/sandbox/tells/shell", {"command": "echo $WHO; pwd; exit 3", "env": {"WHO": "me"}}).json()
    assert (shell["stdout"], shell["exit_code"]) == ("me\n/workspace\n", 3)
    runs = client.get("/sandbox/tells/runs?limit=2").json()["runs"]
    assert [run["run_id"] for run in runs] == [shell["run_id"], late["run_id"]]
    assert client.get(f"/sandbox/tells/runs/{result['run_id']}").json()["stdout"] == "out\n"


def test_artifacts_do_not_reveal_where_they_are_on_the_host(service: Service) -> None:
    client = service.client("ann")
    result = client.execute("where", "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/a.txt','w')")
    assert [one["path"] for one in result["artifacts"]] == ["/workspace/artifacts/a.txt"]
    assert str(service.daemon.data) not in json.dumps(result)
    assert str(service.daemon.data) not in json.dumps(client.get("/sandbox/where").json())


@pytest.mark.parametrize("headers", [SSE, LINES], ids=["events", "lines"])
def test_a_stream_is_numbered_and_ends_once(service: Service, headers: dict[str, str]) -> None:
    client = service.client("ann")
    code = "import sys\nfor i in range(5):\n    print(i, flush=True)\nprint('e', file=sys.stderr, flush=True)\n'end'"
    answer = client.request("POST", "/sandbox/stream/execute", body(code=code), headers)
    assert answer.headers["Content-Type"] == headers["Accept"], answer
    text = answer.body.decode()
    events = events_of(text) if headers is SSE else [json.loads(line) for line in text.splitlines()]
    assert events[0] == {"event": "start", "run_id": answer.headers["X-Run-Id"]}
    numbers = [event["number"] for event in events if "number" in event]
    assert numbers == list(range(1, len(numbers) + 1))
    assert "".join(event["text"] for event in events if event["event"] == "stdout") == "0\n1\n2\n3\n4\n"
    assert [event["event"] for event in events].count("result") == 1
    assert events[-1]["result"]["result"]["text/plain"] == "'end'"


@pytest.mark.parametrize("headers", [SSE, LINES], ids=["events", "lines"])
def test_a_box_that_cannot_be_made_is_a_problem_and_no_stream(
    make_service: StartService, tmp_path: Path, headers: dict[str, str]
) -> None:
    shown = tmp_path / "shown"
    (shown / "data").mkdir(parents=True)
    client = make_service("--allow-read", str(shown)).client("ann")
    mount = {"source": str(shown / "data"), "destination": "/mnt/data"}
    assert client.post("/sandbox/none/create", {"mounts": [mount]}).status == 201
    (shown / "data").rmdir()
    for path, fields in (("execute", {"code": "1"}), ("shell", {"command": "true"})):
        answer = client.request("POST", f"/sandbox/none/{path}", body(**fields, stream=True), headers)
        assert answer.status in (403, 404), answer
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert "mount" in answer.json()["detail"], answer
    (shown / "data").mkdir()
    assert client.request("POST", "/sandbox/none/execute", body(code="1"), headers).status == 200


def test_env_of_a_run_is_not_that_of_the_sandbox_it_makes(service: Service) -> None:
    client = service.client("ann")
    look = "import os\nos.environ.get('ONCE')"
    assert client.execute("once", look, env={"ONCE": "1"})["result"]["text/plain"] == "'1'"
    assert client.post("/sandbox/once/restart").status == 200
    assert client.execute("once", look)["result"] is None


def test_a_run_behind_another_streams_at_once(service: Service) -> None:
    client = service.client("ann")
    first = begin(client, "/sandbox/behind/execute", LINES, code="import time\ntime.sleep(600)")
    assert next(lines_of(first))["event"] == "start"
    second = begin(client, "/sandbox/behind/execute", LINES, code="'second'")
    events = lines_of(second)
    assert (second.status, next(events)["event"]) == (200, "start")
    assert client.post("/sandbox/behind/interrupt").json() == {"interrupted": True}
    assert list(events)[-1]["result"]["result"]["text/plain"] == "'second'"


def test_characters_are_not_cut_in_two(service: Service) -> None:
    client = service.client("ann")
    code = """
import os, time
for byte in "ä€😀".encode() + b"\\xff" + "é".encode()[:1]:
    os.write(1, bytes([byte]))
    time.sleep(0.02)
"""
    answer = client.request("POST", "/sandbox/cut/execute", body(code=code), SSE)
    events = events_of(answer.body.decode())
    assert "".join(event["text"] for event in events if event["event"] == "stdout") == "ä€😀\ufffd\ufffd"
    # A number is where one can go on: never in the middle of a character.
    whole = [event["number"] for event in events if event["event"] == "stdout" and "number" in event]
    path = f"/sandbox/cut/runs/{answer.headers['X-Run-Id']}/events"
    rest = events_of(client.get(f"{path}?from={whole[0] + 1}").body.decode())
    assert "".join(event["text"] for event in rest if event["event"] == "stdout") == "€😀\ufffd\ufffd"
    assert rest[-1] == events[-1]


def test_a_broken_stream_goes_on_where_it_was(service: Service) -> None:
    client = service.client("ann")
    code = "import time\nfor i in range(6):\n    print(i, flush=True)\n    time.sleep(0.05)\nx = 'kept'"
    stream = begin(client, "/sandbox/again/execute", LINES, code=code)
    events = lines_of(stream)
    run = next(events)["run_id"]
    first = next(events)
    stream.close()  # the client is gone; the run is not
    path = f"/sandbox/again/runs/{run}/events"
    rest = client.get(path, {"Accept": "text/event-stream", "Last-Event-ID": str(first["number"])})
    seen = [first, *events_of(rest.body.decode())]
    assert "".join(event.get("text", "") for event in seen) == "".join(f"{i}\n" for i in range(6))
    assert seen[-1]["result"]["status"] == "ok"
    whole = events_of(client.get(path).body.decode())
    assert whole[1] == first and whole[-1] == seen[-1]
    tail = events_of(client.get(f"{path}?from={whole[-1]['number']}").body.decode())
    assert tail[1:] == whole[-1:]
    assert client.get(f"{path}?from=x").status == 400
    assert client.execute("again", "x")["result"]["text/plain"] == "'kept'"


def test_a_run_ends_with_its_client_only_when_asked(service: Service) -> None:
    client = service.client("ann")
    code = "import time\nprint('on', flush=True)\ntime.sleep(600)"
    stream = begin(client, "/sandbox/leave/execute", LINES, code=code, cancel_on_disconnect=True)
    events = lines_of(stream)
    run = next(events)["run_id"]
    assert next(events)["text"] == "on\n"
    stream.close()
    path = f"/sandbox/leave/runs/{run}"
    wait_for("the run's end", lambda: client.get(path).json()["status"] == "interrupted")


def test_a_detached_run_is_read_later(service: Service) -> None:
    client = service.client("ann")
    answer = client.post("/sandbox/later/execute", {"code": "print('done')", "detach": True})
    assert answer.status == 202, answer
    path = f"/sandbox/later/runs/{answer.json()['run_id']}"
    wait_for("the run's end", lambda: client.get(path).json()["status"] == "ok")
    assert client.get(path).json()["stdout"] == "done\n"


def test_a_client_that_never_reads_costs_little(make_service: StartService) -> None:
    """16 MiB are kept of each run: they wait on the disk, not in the daemon, and the sandbox goes on meanwhile."""
    service = make_service()
    client = service.client()
    client.execute("flood", "1")
    before = memory_of(service.daemon.pid)
    lazy = []
    for _ in range(4):
        connection = client.socket()
        code = body(code="print('x' * 12_000_000)", stream=True)
        head = ("Content-Type: application/json", f"Content-Length: {len(code)}")
        connection.sendall(client.head("POST", "/sandbox/flood/execute", *head) + code)
        lazy.append(connection)
    client.execute("flood", "2", timeout=60)
    assert memory_of(service.daemon.pid) - before < 24 << 20
    received = b""
    while not received.endswith(b"\r\n0\r\n\r\n"):
        piece = lazy[0].recv(1 << 16)
        assert piece, "the stream was cut"
        received += piece
    assert received.count(b"x") >= 12_000_000 and received.count(b"event: result") == 1
    for connection in lazy:
        connection.close()


# ---- what the service says of itself ----


def test_health_needs_no_key_and_the_rest_does(service: Service) -> None:
    stranger = service.stranger()
    health = stranger.get("/health")
    assert health.status == 200 and health.json()["status"] == "ok"
    assert health.json()["engines"][0]["name"] == "native" and health.json()["capacity"]["sandboxes_max"] > 0
    assert stranger.get("/openapi.json").status == 200
    for path in ("/sandboxes", "/sandbox/x", "/sandbox/x/runs"):
        answer = stranger.get(path)
        assert answer.status == 401 and answer.headers["WWW-Authenticate"] == "Bearer", answer
    assert ServiceClient(service.port, "gb_" + "0" * 64).get("/sandboxes").status == 401


def test_isolation_is_reported(service: Service) -> None:
    client = service.client("ann")
    client.execute("isolated", "1")
    report = client.get("/sandbox/isolated/isolation").json()
    assert report["weaker"] == [] and "seccomp" in json.dumps(report)
