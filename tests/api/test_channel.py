"""The socket's protocol on a connection of a key: its rights and quotas hold as for REST."""

from __future__ import annotations

import socket

import pytest
from support.client import Client, DaemonError
from support.daemon import wait_for
from support.service import Service, StartService


class Channel(Client):
    """A client whose connection was upgraded."""

    def __init__(self, service: Service, key: str, head: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", service.port), 60)
        lines = ["GET /channel HTTP/1.1", "Host: localhost", f"Authorization: Bearer {service.keys[key]}"]
        lines += [head or "Connection: Upgrade\r\nUpgrade: glovebox", "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = self.socket.recv(1)
            assert piece, answer
            answer += piece
        self.status = int(answer.split()[1])
        self.reader = self.socket.makefile("rb")
        self.number = 0
        self.out = self.err = self.data = b""
        self.waiting: dict[int, list[tuple[int, bytes]]] = {}
        self.received = bytearray()


def test_a_channel_is_the_socket_s_protocol_for_a_key(service: Service) -> None:
    with Channel(service, "ann") as channel:
        assert channel.status == 101
        channel.execute("x = 20", "chan")
        assert channel.execute("x + 1", "chan")["result"] == {"text/plain": "21"}
        channel.write_file("chan", "a.txt", b"bytes")
        assert channel.read_file("chan", "a.txt") == b"bytes"
    assert service.client("ann").get("/sandbox/chan").status == 200, "it is the key's sandbox"


def test_a_key_sees_its_own_and_nothing_of_the_host(service: Service) -> None:
    with Channel(service, "ann") as ann, Channel(service, "bob") as bob:
        ann.execute("1", "mine")
        shown = ann.request("session.show", session="mine")
        assert "workspace" not in shown and "pid" not in shown and str(service.daemon.data) not in str(shown)
        assert "mine" not in [item["name"] for item in bob.request("session.list")["sessions"]]
        for name in ("mine", "ann/mine", shown["id"]):
            with pytest.raises(DaemonError) as caught:
                bob.request("session.show", session=name)
            assert caught.value.code == "not_found"
        left = ann.request("execute", ephemeral=True, code="_ = open('artifacts/a', 'w').write('x')")["artifacts"]
        assert left[0]["host_path"] is None and str(service.daemon.data) not in str(left)


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("shutdown", {}),
        ("status", {}),
        ("ps", {}),
        ("kill", {"session": "x"}),
        ("program", {}),
        ("mcp", {}),
        ("session.move", {"session": "x", "engine": "native"}),
        ("execute", {"session": "x", "code": "1", "operator": True}),
        ("execute", {"session": "x", "code": "1", "script": "/etc/passwd"}),
        ("session.create", {"session": "x", "workspace": "/etc"}),
        ("session.create", {"session": "x", "allow_weaker": True}),
        ("session.create", {"session": "x", "data": "/etc"}),
    ],
)
def test_operations_of_the_operator_are_refused(service: Service, op: str, fields: dict) -> None:
    with Channel(service, "ann") as channel:
        with pytest.raises(DaemonError) as caught:
            channel.request(op, **fields)
        assert caught.value.code == "refused"
        assert channel.request("ping")["ok"]


@pytest.mark.parametrize(("head", "status"), [("Accept: */*", 426), ("Connection: Upgrade\r\nUpgrade: h2c", 426)])
def test_other_protocols_are_refused(service: Service, head: str, status: int) -> None:
    with Channel(service, "ann", head) as channel:
        assert channel.status == status


def test_quotas_hold_on_a_channel_also_for_runs_whose_connection_is_gone(make_service: StartService) -> None:
    service = make_service("--key-sandboxes", "2", "--key-runs", "1", "--max-timeout", "100s", keys=("ann",))
    with Channel(service, "ann") as channel:
        channel.begin("execute", session="one", code="import time, os\nwhile not os.path.exists('go'): time.sleep(.01)")
        operator = service.daemon.client()
        wait_for("the run", lambda: operator.request("session.show", session="ann/one")["state"] == "running")
    with Channel(service, "ann") as channel:
        with pytest.raises(DaemonError, match="runs at a time"):
            channel.execute("1", "two")
        operator.write_file("ann/one", "go", b"")
        wait_for("its end", lambda: operator.request("session.show", session="ann/one")["state"] == "idle")
        channel.execute("1", "two")
        with pytest.raises(DaemonError, match="sandboxes"):
            channel.execute("1", "three")
        with pytest.raises(DaemonError, match="timeout_ms"):
            channel.execute("1", "two", timeout_ms=200_000)


def test_a_removed_key_closes_what_is_open(make_service: StartService) -> None:
    service = make_service(keys=("ann", "bob"))
    with Channel(service, "ann") as channel:
        channel.request("ping")
        keys = service.daemon.data / "keys"
        keys.write_text("".join(line for line in keys.read_text().splitlines(True) if not line.startswith("ann")))

        def is_refused() -> bool:
            try:
                channel.request("ping")
            except DaemonError as error:
                return error.code == "refused"
            return False

        wait_for("the key to be refused", is_refused)


def test_a_run_asked_for_again_under_its_id_is_joined(service: Service) -> None:
    run_id = "0123456789abcdef" * 2
    with Channel(service, "ann") as first, Channel(service, "ann") as second:
        code = "open('n', 'a').write('x'); import time; time.sleep(1); print('told'); 5"
        first.begin("execute", session="joined", code=code, run_id=run_id)
        second.begin("execute", session="joined", code=code, run_id=run_id)
        for channel in (first, second):
            assert channel.finish()["stdout"] == "told\n"
        again = second.request("execute", session="joined", code=code, run_id=run_id)
        assert (again["stdout"], again["result"]) == ("told\n", {"text/plain": "5"})
        assert second.request("execute", session="joined", code=code, run_id=run_id, stream=True)["run_id"] == run_id
        assert second.out == b"told\n"
        assert second.read_file("joined", "n") == b"x"
        with pytest.raises(DaemonError, match="32 hexadecimal"):
            second.execute("1", "joined", run_id="../x")
