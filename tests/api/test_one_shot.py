"""`POST /run`: one request that runs code in a box of its own, which is gone afterwards."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.daemon import wait_for
from support.service import Answer, Service, ServiceClient, StartService

JSON = {"Content-Type": "application/json"}
LINES = {"Accept": "application/x-ndjson", **JSON}


def run(client: ServiceClient, **fields: Any) -> dict[str, Any]:
    answer = client.post("/run", fields)
    assert answer.status == 200, answer
    result = answer.json()
    assert isinstance(result, dict)
    return result


@pytest.fixture
def client(service: Service) -> ServiceClient:
    return service.client("ann")


def ephemeral(service: Service) -> list[Any]:
    return [one for one in service.daemon.client().request("ps")["processes"] if one["ephemeral"]]


# ---- what it does ----


def test_a_run_reports_everything_and_leaves_nothing(service: Service, client: ServiceClient) -> None:
    before = client.get("/sandboxes").json()
    first = run(client, code="print('out'); import sys; print('err', file=sys.stderr); kept = 1\nopen('x', 'w')\n6 * 7")
    assert (first["status"], first["exit_code"], first["stdout"], first["stderr"]) == ("ok", 0, "out\n", "err\n")
    assert first["result"] == {"text/plain": "42"} and first["artifacts"] == [] and not first["timed_out"]
    again = run(client, code="import os\n'kept' in globals(), os.path.exists('x')")
    assert again["result"] == {"text/plain": "(False, False)"}
    failed = run(client, code="1 / 0")
    assert (failed["status"], failed["exit_code"], failed["error"]["name"]) == ("error", 1, "ZeroDivisionError")
    late = run(client, code="import time; time.sleep(60)", timeout=0.2)
    assert late["status"] == "timeout" and late["timed_out"]
    assert client.get("/sandboxes").json() == before
    assert ephemeral(service) == []


PROGRAMS = {
    "input": "print(input('name? '), repr(__import__('sys').stdin.read()))",
    "standard input of a child": "import subprocess; subprocess.run(['cat'])",
    "arguments": "import sys; print(sys.argv, __name__, '__file__' in globals())",
    "exit status": "import sys; print('on'); sys.exit(3)",
    "exit status below zero": "raise SystemExit(-1)",
    "exit status beyond a byte": "raise SystemExit(256 + 5)",
    "exit with a text": "raise SystemExit('no')",
    "exit handlers": "import atexit; atexit.register(print, 'bye'); print('on')",
    "exit handlers after an error": "import atexit; atexit.register(print, 'bye'); raise SystemExit(7)",
    "threads": (
        "import threading, time\ndef late():\n    time.sleep(.1); print('late')\n"
        "threading.Thread(target=late).start(); print('on')"
    ),
    "__main__": "import sys; print(sys.modules['__main__'].__dict__ is globals())",
    "pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
        "_ = pool.submit(lambda: print('done'))"
    ),
    "a child": "import os\nif os.fork() == 0:\n    print('child'); os._exit(0)\n_ = os.wait(); print('parent')",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_code_runs_as_python_runs_a_program(client: ServiceClient, name: str) -> None:
    arguments, text = ["a", "-b", "ü"], "first ü\nsecond\nthird"
    plain = subprocess.run(
        [sys.executable, "-c", PROGRAMS[name], *arguments],
        input=text,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    done = run(client, code=PROGRAMS[name], args=arguments, stdin=text)
    assert (done["stdout"], done["stderr"], done["exit_code"]) == (plain.stdout, plain.stderr, plain.returncode), done


def test_without_input_a_run_reads_its_end(client: ServiceClient) -> None:
    assert run(client, code="import sys\nrepr(sys.stdin.read())")["result"] == {"text/plain": "\"''\""}
    assert run(client, code="input()")["error"]["name"] == "EOFError"
    assert run(client, command="cat; echo end")["stdout"] == "end\n"


def test_a_thread_that_never_ends_is_ended_by_the_time_limit(client: ServiceClient) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"
    done = run(client, code=code, timeout=0.5)
    assert done["status"] == "timeout" and done["duration_ms"] < 30_000


def test_bash_and_commands(client: ServiceClient) -> None:
    code = 'read line; echo "$0 $1 $line $COLOUR"; exit 5'
    bash = run(client, code=code, language="bash", args=["one"], stdin="text\n", env={"COLOUR": "blue"})
    assert (bash["stdout"], bash["exit_code"], bash["status"]) == ("bash one text blue\n", 5, "error")
    shell = run(client, command="cat | tr a-z A-Z", stdin="text")
    assert shell["stdout"] == "TEXT"
    words = run(client, argv=["sh", "-c", "pwd; printenv COLOUR"], cwd="/tmp", env={"COLOUR": "red"})
    assert words["stdout"] == "/tmp\nred\n"
    assert run(client, argv=["no-such-command"])["exit_code"] == 127
    root = run(client, command="id -un; cat", user="root", users=True, stdin="text")
    assert root["stdout"] == "root\ntext", root


def test_files_come_with_the_request_and_artifacts_with_the_answer(service: Service, client: ServiceClient) -> None:
    binary = bytes(range(256))
    files = {"in/a.txt": "grün\n", "b.bin": {"base64": base64.b64encode(binary).decode()}}
    code = (
        "import os\nos.makedirs('artifacts/deep', exist_ok=True)\n"
        "open('artifacts/deep/both', 'wb').write(open('in/a.txt', 'rb').read() + open('b.bin', 'rb').read())\n"
        "open('artifacts/large', 'wb').truncate(5 << 20)\nopen('artifacts/z.csv', 'w').write('1,2')\n"
        "os.symlink('/etc/passwd', 'artifacts/link')"
    )
    artifacts = run(client, code=code, files=files)["artifacts"]
    assert [(one["path"], one["size"], one["mime"]) for one in artifacts] == [
        ("/workspace/artifacts/deep/both", 262, "application/octet-stream"),
        ("/workspace/artifacts/large", 5 << 20, "application/octet-stream"),
        ("/workspace/artifacts/z.csv", 3, "text/csv"),
    ]
    contents = [one["content"] and base64.b64decode(one["content"]) for one in artifacts]
    assert contents == ["grün\n".encode() + binary, None, b"1,2"]
    assert str(service.daemon.data) not in json.dumps(artifacts), "the host's paths are the operator's business"
    assert list((service.daemon.data / "outputs").iterdir()) == [], "nothing of it stays on the host"
    small = run(client, command="cat in/a.txt > artifacts/copy", files=files)["artifacts"]
    assert base64.b64decode(small[0]["content"]) == "grün\n".encode() and not small[0].get("host_path")


def test_artifacts_that_do_not_fit_together_are_listed(client: ServiceClient) -> None:
    code = "for name in 'abc':\n    with open('artifacts/' + name, 'wb') as f: f.write(name.encode() * (3 << 19))"
    artifacts = run(client, code=code)["artifacts"]
    assert [one["content"] and len(base64.b64decode(one["content"])) for one in artifacts] == [3 << 19, 3 << 19, None]
    many = "import os\nfor n in range(1000): open(f'artifacts/{n:04}', 'w').write(str(n))"
    listed = run(client, code=many)["artifacts"]
    assert [base64.b64decode(one["content"]) for one in listed] == [str(n).encode() for n in range(1000)]


def test_a_run_streams(client: ServiceClient) -> None:
    connection = client.connect()
    body = json.dumps({"code": "print('on')\nimport sys\nprint('off', file=sys.stderr)", "stream": True})
    connection.request("POST", "/run", body, client.headers(LINES))
    response = connection.getresponse()
    events = [json.loads(line) for line in response.read().splitlines()]
    connection.close()
    assert response.status == 200 and response.headers["X-Run-Id"] == events[0]["run_id"]
    assert [event["event"] for event in events] == ["start", "stdout", "stderr", "result"]
    assert events[-1]["result"]["status"] == "ok"


def test_the_answer_has_the_first_megabyte_and_a_stream_16(client: ServiceClient) -> None:
    done = run(client, code="print('x' * 20_000_000)")
    assert len(done["stdout"]) == 1 << 20
    assert done["stdout_cut_bytes"] == 20_000_001 - (1 << 20), done["stdout_cut_bytes"]


def test_the_box_has_the_options_of_a_sandbox(client: ServiceClient) -> None:
    code = "import resource, os\nos.environ['TZ'], os.environ['A']"
    done = run(client, code=code, env={"TZ": "UTC-3", "A": "1"}, limits={"memory": "256m", "tmp": "20m"})
    assert done["result"] == {"text/plain": "('UTC-3', '1')"}
    big = run(client, code="x = bytearray(1 << 30)", limits={"memory": "256m"})
    assert big["status"] in ("oom", "error") and (big["oom_killed"] or big["error"]["name"] == "MemoryError")


# ---- what it refuses ----


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "one of"),
        ({"code": "1", "command": "ls"}, 400, "one of"),
        ({"code": "1", "timeuot": 1}, 400, "timeuot"),
        ({"code": "1", "operator": True}, 400, "operator"),
        ({"code": "1", "session": "me"}, 400, "session"),
        ({"code": "1", "ephemeral": False}, 400, "ephemeral"),
        ({"code": "1", "detach": True}, 400, "detached"),
        ({"code": "1", "cancel_on_disconnect": False}, 400, "connection"),
        ({"code": "1", "language": "cobol"}, 400, "cobol"),
        ({"code": "1", "language": 7}, 400, "language"),
        ({"code": 1}, 400, "code"),
        ({"code": "1", "stdin": 1}, 400, "stdin"),
        ({"code": "1", "args": "a"}, 400, "args"),
        ({"code": "1", "args": [1]}, 400, "args"),
        ({"code": "1", "cwd": "/tmp"}, 400, "cwd"),
        ({"command": "ls", "args": ["a"]}, 400, "args"),
        ({"argv": []}, 400, "argv"),
        ({"argv": ["a", 1]}, 400, "argv"),
        ({"command": "id", "user": "root"}, 501, "users"),
        ({"code": "1", "env": {"A": 1}}, 400, "env"),
        ({"code": "1", "timeout": "long"}, 400, "timeout"),
        ({"code": "1", "files": ["a"]}, 400, "files"),
        ({"code": "1", "files": {"../a": ""}}, 400, "file name"),
        ({"code": "1", "files": {"/etc/a": ""}}, 400, "file name"),
        ({"code": "1", "files": {"a/": ""}}, 400, "file name"),
        ({"code": "1", "files": {"a//b": ""}}, 400, "file name"),
        ({"code": "1", "files": {"": ""}}, 400, "file name"),
        ({"code": "1", "files": {"a": 1}}, 400, "base64"),
        ({"code": "1", "files": {"a": {"base64": "?"}}}, 400, "base64"),
        ({"code": "1", "files": {str(n): "" for n in range(101)}}, 400, "files"),
        ({"code": "1", "workspace": "/etc"}, 403, "workspace"),
        ({"code": "1", "allow_weaker": True}, 403, "allow_weaker"),
        ({"code": "1", "mounts": [{"source": "/etc", "destination": "/host"}]}, 403, ""),
        ({"code": "1", "limits": {"speed": 1}}, 400, "speed"),
        ({"code": "1", "min_isolation": "extreme"}, 400, "min_isolation"),
        ({"code": "1", "image": "no-such-image"}, 404, "image"),
    ],
)
def test_a_wrong_request_is_refused_with_a_reason(
    service: Service, client: ServiceClient, body: dict[str, Any], status: int, words: str
) -> None:
    answer = client.post("/run", {**body, "stream": True})
    assert answer.status == status and answer.headers["Content-Type"] == "application/problem+json", answer
    assert words in answer.json()["detail"], answer
    assert ephemeral(service) == []


def test_files_that_cannot_be_placed_are_refused(client: ServiceClient) -> None:
    answer = client.post("/run", {"code": "print('ran')", "files": {"a": "", "a/b": ""}})
    assert answer.status >= 400 or answer.json()["status"] != "ok", answer
    assert b"ran\\n" not in answer.body


# ---- keys ----


def test_quotas_ceilings_and_the_record_count_as_for_any_run(make_service: StartService, tmp_path: Path) -> None:
    service = make_service("--key-sandboxes", "1", "--key-runs", "2", "--max-memory", "1g", "--max-timeout", "1m")
    ann, bob = service.client("ann"), service.client("bob")
    assert ann.post("/sandbox/only/create").status == 201
    assert run(ann, code="1")["status"] == "ok", "a run that leaves nothing is no sandbox"
    assert ann.post("/run", {"code": "1", "limits": {"memory": "2g"}}).status == 403
    assert ann.post("/run", {"code": "1", "limits": {"timeout": 61}}).status == 403
    assert ann.post("/run", {"code": "1", "timeout": 61}).status == 403
    held = [begin(ann, code="print('on')\nimport time; time.sleep(600)") for _ in range(2)]
    over = ann.post("/run", {"code": "1"})
    assert over.status == 429 and over.headers["Retry-After"], over
    assert run(bob, code="1")["status"] == "ok"
    for connection, _ in held:
        connection.close()
    wait_for("room for a run", lambda: ann.post("/run", {"code": "1"}).status == 200)

    def recorded(**wanted: Any) -> int:
        path = service.daemon.data / "audit.log"  # written a moment later
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return sum(all(line.get(key) == value for key, value in wanted.items()) for line in lines)

    wait_for("the record", lambda: recorded(key="bob", what="run", status="ok") == 1)
    assert recorded(key="ann", via="http", what="execute", status="refused") == 2
    wait_for("the record of both", lambda: recorded(key="ann", what="run", status="interrupted") == 2)


def begin(client: ServiceClient, **fields: Any) -> tuple[http.client.HTTPConnection, str]:
    """A stream whose first output has come, and that."""
    connection = client.connect()
    connection.request("POST", "/run", json.dumps({**fields, "stream": True}), client.headers(LINES))
    response = connection.getresponse()
    while True:
        event = json.loads(response.readline())
        if event["event"] == "stdout":
            return connection, event["text"]


# ---- hostile clients ----


def test_a_run_whose_client_leaves_is_cancelled(service: Service, client: ServiceClient) -> None:
    connection, _ = begin(client, code="print('on', flush=True)\nimport time; time.sleep(600)")
    assert len(ephemeral(service)) == 1
    connection.close()
    wait_for("the run to be gone", lambda: ephemeral(service) == [])
    plain = client.socket()  # and one that waits for a whole answer
    body = json.dumps({"code": "import time; time.sleep(600)"}).encode()
    plain.sendall(client.head("POST", "/run", "Content-Type: application/json", f"Content-Length: {len(body)}") + body)
    wait_for("the run", lambda: len(ephemeral(service)) == 1)
    plain.close()
    wait_for("the run to be gone", lambda: ephemeral(service) == [])
    own = json.dumps({"code": "import time; time.sleep(600)", "limits": {"tmp": "20m"}}).encode()  # no box is ready
    for n in range(12):
        with client.socket() as hasty:
            length = len(own) + (n % 2)  # every other one leaves in the middle of its body
            head = client.head("POST", "/run", "Content-Type: application/json", f"Content-Length: {length}")
            hasty.sendall(head + own)
    wait_for("all to be gone", lambda: ephemeral(service) == [])
    assert run(client, code="1")["status"] == "ok"


def test_input_has_a_bound(client: ServiceClient) -> None:
    size = 1 << 20
    assert run(client, code="import sys\nlen(sys.stdin.read())", stdin="x" * size)["result"] == {
        "text/plain": str(size)
    }
    assert run(client, command="wc -c", stdin="x" * size)["stdout"].strip() == str(size)
    assert run(client, command="true", stdin="x" * size)["status"] == "ok", "what is not read is dropped"
    assert client.post("/run", {"code": "1", "stdin": "x" * (2 << 20)}).status == 413
    assert run(client, code="1")["status"] == "ok"


def test_many_at_once_beside_a_quota(make_service: StartService) -> None:
    service = make_service("--key-runs", "8", "--pool", "2", keys=("ann", "bob"))
    answers: list[Answer] = []

    def one(number: int) -> None:
        client = service.client("ann")
        answers.append(client.post("/run", {"code": f"import time; time.sleep(.5); print({number})"}))
        client.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    assert run(service.client("bob"), code="1 + 1")["result"] == {"text/plain": "2"}
    took_s = time.monotonic() - began
    for thread in threads:
        thread.join()
    assert {answer.status for answer in answers} <= {200, 429} and len(answers) == 50
    good = [answer.json()["stdout"] for answer in answers if answer.status == 200]
    assert len(good) >= 8 and len(set(good)) == len(good) and took_s < 30
    wait_for("all boxes to be gone", lambda: ephemeral(service) == [])
    assert run(service.client("ann"), code="1")["status"] == "ok", "what was refused holds no share"


# ---- the pool ----


AGE = """
import os, time
with open("/proc/self/stat") as file:
    started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
print(time.clock_gettime(time.CLOCK_BOOTTIME) - started, flush=True)
time.sleep(600)
"""


def test_a_run_takes_a_kernel_of_the_pool(make_service: StartService) -> None:
    service = make_service("--pool", "2")
    ann, daemon = service.client("ann"), service.daemon.client()

    def ready() -> int:
        return int(daemon.request("status")["pool"]["ready"])

    wait_for("the nursery", lambda: (daemon.request("status")["nursery"] or {}).get("state") == "ready")
    for _ in range(2):  # kernels that were made before there was a nursery
        run(ann, code="1")
        wait_for("a full pool", lambda: ready() == 2)
    time.sleep(0.5)
    connection, age_s = begin(ann, code=AGE, args=["a"], stdin="text", files={"a": "b"}, env={"A": "1"})
    assert float(age_s) >= 0.4, "it waited in the pool"
    assert len(ephemeral(service)) == 1
    connection.close()
    wait_for("a full pool, and nothing else", lambda: ready() == 2 and ephemeral(service) == [])
