"""One greedy key takes all that it can get of each limited resource; another key's request still succeeds, and soon."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from support.daemon import wait_for
from support.daemons import StartDaemon
from support.glovebox import slowness
from support.service import ServiceClient, StartService, start_service
from support.web import Web, serve_web

SOON_S = 4.0


def soon() -> float:
    return SOON_S * slowness()


def test_one_key_cannot_have_all_sandboxes(make_service: StartService) -> None:
    service = make_service("--max-sandboxes", "16", keys=("ann", "bob", "eve"))
    ann, bob, eve = (service.client(name) for name in ("ann", "bob", "eve"))
    made = [ann.post(f"/sandbox/{n}/create").status for n in range(10)]
    assert made == [201] * 8 + [429] * 2, made
    refused = ann.post("/sandbox/more/create")
    assert refused.headers["Retry-After"] and "8 of 16 sandboxes" in refused.json()["detail"], refused
    assert ann.post("/sandbox/more/execute", {"code": "1"}).status == 429, "nor by running something"
    made = [bob.post(f"/sandbox/{n}/create").status for n in range(8)]
    assert made == [201] * 6 + [429] * 2, "the last ones are for keys that have few"
    assert eve.post("/sandbox/e/create").status == 201
    assert ann.delete("/sandbox/0/destroy").status == 200


def test_the_operator_may_give_a_key_more_than_its_share(make_service: StartService) -> None:
    service = make_service("--max-sandboxes", "8", "--key-share", "75", keys=("ann", "bob"))
    keys = service.daemon.data / "keys"
    keys.write_text(keys.read_text().replace("\n", " sandboxes=8\n", 1))
    ann, bob = service.client("ann"), service.client("bob")
    time.sleep(1.2)  # the file is looked at once in a second
    assert [bob.post(f"/sandbox/{n}/create").status for n in range(7)] == [201] * 6 + [429]
    assert [ann.post(f"/sandbox/{n}/create").status for n in range(3)] == [201] * 2 + [429]


def test_boxes_are_made_for_each_key_in_its_turn(make_service: StartService) -> None:
    service = make_service("--max-sandboxes", "200", "--max-memory", "64g")
    ann, bob = service.client("ann"), service.client("bob")
    bob.execute("warm", "1")
    for n in range(60):
        ann.post(f"/sandbox/{n}/create", {"mode": "fresh"})
    began = time.monotonic()
    for n in range(60):  # each needs a Python that starts from nothing
        assert ann.post(f"/sandbox/{n}/execute", {"code": "1", "detach": True}).status == 202
    flooded = time.monotonic()
    bob.execute("b", "1")
    took = time.monotonic() - flooded

    def is_done() -> bool:
        return b'glovebox_key_runs{key="ann"} 0\n' in ann.get("/metrics").body

    assert not is_done(), "the greedy key was served first"
    wait_for("the greedy key's runs", is_done)
    everything = time.monotonic() - began
    assert took < max(everything / 3, 0.5), (took, everything)


def spilled(client: ServiceClient, path: str) -> socket.socket:
    """A stream that is asked for and not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", client.port))
    connection.sendall(client.head("GET", path))
    return connection


def held(client: ServiceClient) -> int:
    for line in client.get("/metrics").body.decode().splitlines():
        if line.startswith("glovebox_spilled_bytes "):
            return int(float(line.split()[1]))
    raise AssertionError("no metric")


def test_one_key_cannot_have_all_room_for_slow_readers(make_service: StartService) -> None:
    service = make_service()
    ann, bob = service.client("ann"), service.client("bob")
    run_ids = {}
    for name in ("a", "b", "c"):
        run_ids[name] = ann.execute(name, "import os\nfor _ in range(12): os.write(1, b'x' * (1 << 20))")["run_id"]
    bobs = bob.execute("b", "import os\nfor _ in range(12): os.write(1, b'y' * (1 << 20))")["run_id"]
    with contextlib.ExitStack() as stack:
        for n in range(120):
            name = "abc"[n % 3]
            stack.enter_context(spilled(ann, f"/sandbox/{name}/runs/{run_ids[name]}/events"))
        wait_for("her streams to be put aside", lambda: held(ann) > 300 << 20)
        time.sleep(0.3)
        assert held(ann) <= 512 << 20
        before = held(bob)
        stack.enter_context(spilled(bob, f"/sandbox/b/runs/{bobs}/events"))
        wait_for("room for another key's slow reader", lambda: held(bob) > before + (8 << 20), 10)
    wait_for("all of it to be given back", lambda: held(bob) == 0)


# ---- names ----


class SlowNames:
    """A name server that answers for fast.example and for nothing else."""

    count = 0

    def __init__(self) -> None:
        SlowNames.count += 1  # a thread may still hold the socket of the one before
        self.address = f"127.{os.getpid() >> 8 & 255}.{os.getpid() & 255}.{52 + SlowNames.count}"
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((self.address, 53))
        self.asked = 0
        self.names: set[bytes] = set()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                question, peer = self.socket.recvfrom(4096)
                self.asked += 1
                self.names.add(question[12 : question.index(b"\x00", 12)])
                if b"\x04fast\x07example\x00" not in question:
                    continue
                end = question.index(b"\x00", 12) + 5
                is_ipv4 = question[end - 4 : end - 2] == b"\x00\x01"
                head = question[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if is_ipv4 else 0, 0, 0)
                record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x7f\x00\x00\x01" if is_ipv4 else b""
                self.socket.sendto(head + question[12:end] + record, peer)


@contextlib.contextmanager
def slow_names(path: Path) -> Iterator[tuple[SlowNames, tuple[str, ...]]]:
    """The server, and a program that starts another one which asks it for names."""
    names = SlowNames()
    path.write_text(f"nameserver {names.address}\n")
    path.chmod(0o644)
    mount = f'mount --bind {path} /etc/resolv.conf && exec "$@"'
    try:
        yield names, ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh")
    finally:
        names.socket.close()


ASK_SLOWLY = """
import socket
held = []
for n in range(4):
    to = socket.create_connection(("127.0.0.1", 3128))
    to.sendall(f"CONNECT slow{n}.{name}.example:443 HTTP/1.1\\r\\n\\r\\n".encode())
    held.append(to)
"""


def test_one_key_cannot_have_all_threads_that_look_names_up(start_daemon: StartDaemon) -> None:
    with serve_web() as web, contextlib.ExitStack() as stack:
        daemon = start_daemon("--egress-allow-private", "fast.example", start=False)
        names, daemon.wrapper = stack.enter_context(slow_names(daemon.glovebox.place.path / "resolv.conf"))
        service = start_service(daemon)
        ann, bob = service.client("ann"), service.client("bob")
        network = {"allow": [".example", f".example:{web_port(web)}"]}
        assert bob.post("/sandbox/b/create", {"network": network}).status == 201
        bob.execute("b", "1")
        for n in range(9):
            assert ann.post(f"/sandbox/a{n}/create", {"network": network}).status == 201
            ann.execute(f"a{n}", f"name = 'n{n}'")
        for n in range(9):
            ann.execute(f"a{n}", ASK_SLOWLY)
        wait_for("her names to be asked for", lambda: names.asked >= 16)
        began = time.monotonic()
        fetch = f"import urllib.request\nurllib.request.urlopen('http://fast.example:{web_port(web)}/x').status"
        assert bob.execute("b", fetch)["result"]["text/plain"] == "200"
        assert time.monotonic() - began < soon(), "it waited for the greedy key's names"


GIVE_UP = """
import socket, struct, time
for n in range(40):
    with socket.create_connection(("127.0.0.1", 3128)) as to:
        to.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves with a reset
        to.sendall(f"CONNECT given-up{n}.example:443 HTTP/1.1\\r\\n\\r\\n".encode())
        time.sleep(0.02)
"""


def test_names_that_a_box_gives_up_still_count_for_it(start_daemon: StartDaemon) -> None:
    """A thread cannot be called back from its look-up; a box that leaves again and again gets no further ones."""
    with serve_web() as web, contextlib.ExitStack() as stack:
        daemon = start_daemon("--egress-allow-private", "fast.example", start=False)
        names, daemon.wrapper = stack.enter_context(slow_names(daemon.glovebox.place.path / "resolv.conf"))
        ann = start_service(daemon).client("ann")
        network = {"allow": [".example", f".example:{web_port(web)}"]}
        for name in ("greedy", "other"):
            assert ann.post(f"/sandbox/{name}/create", {"network": network}).status == 201
            ann.execute(name, "1")
        ann.execute("greedy", GIVE_UP)
        began = time.monotonic()
        fetch = f"import urllib.request\nurllib.request.urlopen('http://fast.example:{web_port(web)}/x').status"
        assert ann.execute("other", fetch)["result"]["text/plain"] == "200"
        assert time.monotonic() - began < soon(), "it waited for names that another box had given up"
        assert 1 <= sum(b"given-up" in name for name in names.names) <= 8


def web_port(web: Web) -> int:
    return int(web.url.rsplit(":", 1)[1])
