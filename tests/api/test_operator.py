"""The operator: sandboxes of every key, the keys themselves, and the record of what was done."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from support.client import DaemonError
from support.daemon import Daemon, wait_for
from support.service import StartService


def records(daemon: Daemon) -> list[dict[str, Any]]:
    lines = []
    for path in sorted(daemon.data.glob("audit.log*"), reverse=True):
        lines += [json.loads(line) for line in path.read_text().splitlines()]
    return lines


def test_the_operator_handles_sandboxes_of_any_key(make_service: StartService) -> None:
    service = make_service()
    daemon = service.daemon
    ann, bob = service.client("ann"), service.client("bob")
    ann.execute("box", "x = 41")
    bob.execute("box", "x = 1")
    ann.execute("other", "1")
    names = daemon.cli("session", "ls", "--names").stdout.split()
    assert sorted(names) == ["ann/box", "ann/other", "bob/box"]
    shown = json.loads(daemon.cli("session", "show", "--json", "ann/box").stdout)
    assert (shown["name"], shown["key"]) == ("box", "ann")
    assert "ann" in daemon.cli("session", "show", "ann/box").stdout
    done = daemon.cli("exec", "ann/box", "-c", "x + 1")
    assert done.returncode == 0 and done.stdout.strip() == "42", done
    missing = daemon.cli("exec", "ann/none", "-c", "1")
    assert missing.returncode == 2 and "KEY/NAME" in missing.stderr, missing
    with pytest.raises(DaemonError, match="there is no session"):
        daemon.client().request("session.show", session="nobody/box")
    assert ann.get("/sandbox/bob%2Fbox").status == 404, "a key sees nothing of another's"
    file = daemon.glovebox.place.write("in", "copied")
    assert daemon.cli("cp", file, "ann/box:d/").returncode == 0
    assert daemon.cli("cp", "ann/box:d/in", "-").stdout == "copied"
    assert daemon.cli("cp", "bob/box:d/in", "-").returncode == 2, "there is none in that one"
    local = daemon.glovebox.place.home / "ann"
    local.mkdir()
    daemon.glovebox.place.give(local)
    (local / "box:x").write_text("a file of the host")
    assert "both are files of the host" in daemon.cli("cp", "ann/box:x", "-", cwd=daemon.glovebox.place.home).stderr
    assert daemon.cli("session", "rm", "ann/box").returncode == 0
    assert ann.get("/sandbox/box").status == 404 and bob.get("/sandbox/box").status == 200
    wrong = service.client("ann").delete("/sandbox/alice")
    assert wrong.status == 405 and "there is DELETE /sandbox/{user_id}/destroy" in wrong.json()["detail"], wrong
    removed = daemon.cli("session", "rm", "--key", "ann")
    assert removed.returncode == 0 and "1 sandbox of ann" in removed.stdout, removed
    assert ann.get("/sandboxes").json() == {"sandboxes": []}
    assert len(bob.get("/sandboxes").json()["sandboxes"]) == 1
    for arguments in ((), ("--key", "ann", "x")):
        assert daemon.cli("session", "rm", *arguments).returncode == 2


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def test_the_operator_handles_them_over_the_unix_socket_of_the_api(make_service: StartService) -> None:
    service = make_service()
    service.client("ann").execute("box", "x = 41")
    connection = UnixConnection(service.daemon.socket.removesuffix(".sock") + "-api.sock")
    body = json.dumps({"code": "x + 1"})
    connection.request("POST", "/sandbox/ann%2Fbox/execute", body, {"Content-Type": "application/json"})
    assert json.load(connection.getresponse())["result"]["text/plain"] == "42"
    connection.request("DELETE", "/sandbox/ann%2Fbox/destroy")
    assert connection.getresponse().status == 200
    assert service.client("ann").get("/sandbox/box").status == 404


def test_keys_are_made_listed_and_revoked_by_command(make_service: StartService) -> None:
    service = make_service()
    daemon = service.daemon
    assert daemon.cli("key", "ls", "--names").stdout.split() == ["ann", "bob"]
    made = daemon.cli("key", "new", "eve")
    assert made.returncode == 0, made
    service.keys["eve"] = made.stdout.strip()
    eve = service.client("eve")
    wait_for("the new key to count", lambda: eve.get("/sandboxes").status == 200)
    eve.execute("box", "1")
    keys = daemon.data / "keys"
    keys.write_text("# a comment about eve\n" + keys.read_text().replace("bob", "# bob was here\nbob"))
    assert daemon.cli("key", "new", "eve").returncode == 125
    revoked = daemon.cli("key", "rm", "eve")
    assert revoked.returncode == 0 and "session rm --key eve" in revoked.stderr, revoked
    wait_for("the key to be refused", lambda: eve.get("/sandboxes").status == 401, 5)
    text = keys.read_text()
    assert "# a comment about eve" in text and "# bob was here" in text and keys.stat().st_mode & 0o777 == 0o600
    assert daemon.cli("key", "rm", "eve").returncode == 125
    assert [key["name"] for key in json.loads(daemon.cli("key", "ls", "--json").stdout)["keys"]] == ["ann", "bob"]
    assert daemon.cli("session", "ls", "--names").stdout.split() == ["eve/box"], "what it had is the operator's now"


def test_requests_are_recorded_in_the_audit_log(make_service: StartService) -> None:
    service = make_service()
    daemon, ann = service.daemon, service.client("ann")
    ann.execute("box", "1")
    assert ann.post("/sandbox/box/execute", {"code": "1/0"}).json()["status"] == "error"
    assert ann.request("PUT", "/sandbox/box/file?path=f", b"x").status == 201
    assert ann.request("PUT", "/sandbox/none/file?path=f&create=false", b"x").status == 404
    assert ann.request("POST", "/sandbox/box/file?path=d&mkdir=true").status == 201
    assert ann.request("POST", "/sandbox/box/file?path=f&move_to=d/g").status == 200
    assert ann.delete("/sandbox/box/file?path=d&recursive=true").status == 200
    assert ann.delete("/sandbox/box/file?path=d").status == 404
    assert ann.post("/sandbox/box/create", {"limits": {"memory": "99t"}}).status in (400, 200)
    assert ann.post("/sandbox/new/create", {"limits": {"memory": "1000g"}}).status == 403
    assert ann.delete("/sandbox/box/destroy").status == 200
    daemon.cli("exec", "mine", "-c", "1")
    daemon.cli("key", "rm", "bob")

    def has(**wanted: Any) -> bool:
        return any(all(line.get(key) == value for key, value in wanted.items()) for line in records(daemon))

    wait_for("the last line", lambda: has(what="run", session="mine"))
    assert has(who="key", key="ann", what="run", session="box", status="ok")
    assert has(who="key", key="ann", what="run", session="box", status="error")
    assert has(key="ann", via="http", what="file.write", session="box", status="ok"), records(daemon)
    assert has(key="ann", via="http", what="file.write", session="none", status="not_found"), records(daemon)
    for what in ("file.mkdir", "file.move", "file.remove"):
        assert has(key="ann", via="http", what=what, session="box", status="ok"), (what, records(daemon))
    assert has(key="ann", via="http", what="file.remove", session="box", status="not_found")
    assert any(line.get("from", "").startswith("127.0.0.1") for line in records(daemon))
    assert has(key="ann", what="session.create", session="new", status="refused")
    assert has(key="ann", what="session.remove", session="box", status="ok")
    assert has(who="operator", what="run", session="mine", status="ok")
    assert has(who="operator", via="command", what="key.rm", session="bob", status="ok")
    assert all({"time", "status", "duration_ms"} <= line.keys() for line in records(daemon))
    assert (daemon.data / "audit.log").stat().st_mode & 0o777 == 0o600
    keys = set(service.keys.values())
    assert not any(key in json.dumps(line) for line in records(daemon) for key in keys), "no key is in it"


def test_the_record_is_rotated_and_its_writer_replaced(make_service: StartService) -> None:
    service = make_service("--audit-size", "4k")
    daemon, ann = service.daemon, service.client("ann")

    def run_some() -> bool:
        for _ in range(20):
            ann.execute("box", "1")
        return (daemon.data / "audit.log.4").exists()

    wait_for("old files", run_some)
    sizes = [path.stat().st_size for path in daemon.data.glob("audit.log*")]
    assert len(sizes) == 5 and max(sizes) <= 40 << 10, sizes
    children = _children(daemon, "glovebox-audit")
    assert len(children) == 1
    os.kill(children[0], 9)
    ann.execute("late", "1")
    wait_for("a line of the next writer", lambda: any(line.get("session") == "late" for line in records(daemon)))


def _children(daemon: Daemon, name: str) -> list[int]:
    pids = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    return [int(pid) for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == name]


def test_all_that_is_awake_goes_to_sleep_at_once(make_service: StartService) -> None:
    service = make_service()
    daemon, ann = service.daemon, service.client("ann")
    ann.execute("a", "x = 1")
    daemon.cli("exec", "b", "-c", "y = 2")
    assert ann.post("/sandbox/busy/execute", {"code": "import time\ntime.sleep(600)", "detach": True}).status == 202
    wait_for("it to run", lambda: ann.get("/sandbox/busy").json()["state"] == "running")
    done = daemon.cli("session", "hibernate", "--all")
    assert done.returncode == 0 and "ann/busy: " in done.stdout, done
    time.sleep(0.1)
    assert ann.get("/sandbox/a").json()["state"] == "asleep"
    assert daemon.client().request("session.show", session="b")["state"] == "asleep"
    assert ann.execute("a", "x")["result"]["text/plain"] == "1"


def test_names_that_ps_lists_are_names_that_verbs_take(make_service: StartService) -> None:
    service = make_service()
    daemon = service.daemon
    service.client("ann").execute("alice", "x = 1")
    daemon.cli("exec", "alice", "-c", "y = 2")
    for verb in (("ps",), ("top", "--once"), ("session", "ls")):
        listed = daemon.cli(*verb).stdout.splitlines()[1:]
        words = {word for line in listed for word in line.split()[:2]}
        assert words >= {"alice", "ann/alice"} and len(listed) == 2, (verb, listed)
    assert "ann/alice runs nothing now" in daemon.cli("kill", "ann/alice").stderr
    daemon.cli("session", "rm", "alice")
    removed = daemon.cli("session", "rm", "--key", "ann")
    assert removed.stdout == "1 sandbox of ann is removed\n", removed


def test_wrong_members_are_refused_over_http_for_new_and_existing(make_service: StartService) -> None:
    ann = make_service().client("ann")
    assert ann.post("/sandbox/exists/create", {"limits": None}).status == 201
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"limits": {"bogus": 1}}, 400, "there are memory, cpus"),
        ({"limits": {"pids": 1.5}}, 400, "limits.pids must be a whole number from 1 to 32768, for example"),
        ({"network": {"allow": ["169.254.169.254"]}}, 403, "network.allow: no box may reach 169.254.169.254"),
        ({"network": "some"}, 400, "for example"),
        ({"bogus": 1}, 400, "bogus"),
        ({"operator": True}, 400, "operator"),
        ({"workspace": "/tmp"}, 403, "workspace"),
        ({"min_isolation": 1}, 400, "min_isolation"),
        ({"mounts": [{"source": "/usr", "destination": "/mnt"}]}, 403, "/usr"),
    ]
    for body, status, said in wrong:
        for name in ("new", "exists"):
            answer = ann.post(f"/sandbox/{name}/create", body)
            assert answer.status == status and said in answer.json()["detail"], (body, name, answer)
    assert ann.post("/sandbox/exists/create", {}).status == 200 and ann.get("/sandbox/new").status == 404
