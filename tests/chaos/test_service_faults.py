"""The service under faults: crowds of silent connections, a full disk, a daemon that is killed under load."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import resource
import socket
import threading
import time
from typing import Any

import pytest
from support.daemon import memory_of, wait_for
from support.daemons import StartDaemon
from support.service import Service, ServiceClient, start_service
from test_resources import MIB, fill, small_disk


def make_service(start_daemon: StartDaemon, *options: str) -> Service:
    return start_service(start_daemon(*options, start=False), keys=("ann",))


@pytest.mark.timeout(200)
def test_l15_two_thousand_silent_connections_delay_no_other(start_daemon: StartDaemon) -> None:
    """Half a head, then silence: they get an error or are closed, and other clients are served meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    service = make_service(start_daemon)
    client = service.client()
    client.execute("fast", "x = 1")
    before = memory_of(service.daemon.pid)
    silent: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for _ in range(2000):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 60))
            with contextlib.suppress(OSError):  # turned away already
                connection.sendall(b"POST /sandbox/fast/execute HTTP/1.1\r\nHost: loc")
            silent.append(connection)

        def serves() -> bool:
            fresh = ServiceClient(service.port, service.keys["ann"])
            try:
                return fresh.post("/sandbox/fast/execute", {"code": "x"}).status == 200
            except (OSError, http.client.HTTPException):
                return False
            finally:
                fresh.close()

        assert client.execute("fast", "x")["result"]["text/plain"] == "1", "who was there stays"
        assert memory_of(service.daemon.pid) - before < 64 * MIB
        assert serves(), "a new client need not wait until they are sent away"
        wait_for("the silent ones to be sent away", serves)
        for connection in silent:
            connection.settimeout(60)
            with contextlib.suppress(ConnectionError):
                answer = connection.recv(64)
                assert answer == b"" or answer.split()[1] in (b"408", b"503"), answer
    assert client.execute("fast", "x")["result"]["text/plain"] == "1"
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_l09_an_upload_to_a_full_disk_answers_507_and_leaves_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(start=False)
    daemon.socket = str(daemon.glovebox.place.path / "d.sock")
    with small_disk(daemon.data, "16m"):
        daemon.data.chmod(0o700)
        service = start_service(daemon, keys=("ann",))
        client = service.client()
        client.execute("full", "open('/workspace/old', 'w').write('kept')")
        workspace = service.workspace(client, "full")
        filler = fill(daemon.data / "filler")
        answer = client.request("POST", "/sandbox/full/file?path=new", bytes(4 * MIB))
        assert answer.status == 507 and answer.json()["code"] == "no_space", answer
        assert sorted(os.listdir(workspace)) == ["artifacts", "old"]
        filler.unlink()
        assert client.request("POST", "/sandbox/full/file?path=new", b"fits").status in (200, 201)
        assert client.get("/sandbox/full/file?path=new").body == b"fits"
        daemon.stop()


class Worker:
    """Runs and uploads, one after the other, until the daemon is gone."""

    def __init__(self, client: ServiceClient, turn: int) -> None:
        self.client = client
        self.turn = turn
        self.results: list[Any] = []
        self.files: dict[str, bytes] = {}
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
            for step in range(1000):
                self.results.append(self.client.execute("k", f"total += 1\nprint('{self.turn}.{step}')\ntotal"))
                name = f"f{self.turn}.{step}"
                answer = self.client.request("POST", f"/sandbox/k/file?path={name}", name.encode())
                if answer.status in (200, 201):
                    self.files[name] = name.encode()


@pytest.mark.timeout(300)
def test_l02_what_the_service_acknowledged_is_there_after_every_kill(start_daemon: StartDaemon) -> None:
    """Thirty times `kill -9` under requests: what was answered with 200 is found again, variables and files too."""
    choose = random.Random(7)
    service = make_service(start_daemon, "--pool", "0")
    service.client().execute("k", "total = 0")
    workers: list[Worker] = []
    for turn in range(30):
        worker = Worker(service.client(), turn)
        workers.append(worker)
        enough = choose.randrange(1, 5)
        wait_for("some answers", lambda worker=worker, enough=enough: len(worker.results) >= enough)
        service.daemon.kill()
        worker.thread.join(60)
        service.daemon.start()
        service.port = service.find_port()
    client = service.client()
    results = [result for worker in workers for result in worker.results]
    assert int(client.execute("k", "total")["result"]["text/plain"]) >= int(results[-1]["result"]["text/plain"])
    printed = {result["run_id"]: result["stdout"] for result in results}
    kept = {run["run_id"] for run in client.get("/sandbox/k/runs?limit=100").json()["runs"]}
    assert set(list(printed)[-20:]) <= kept, "the last runs are among those that are kept"
    for run in kept & set(printed):
        assert client.get(f"/sandbox/k/runs/{run}").json()["stdout"] == printed[run]
    for worker in workers:
        for name, content in worker.files.items():
            assert client.get(f"/sandbox/k/file?path={name}").body == content


def test_l26_a_daemon_that_is_stopped_twice_stops_at_once(start_daemon: StartDaemon) -> None:
    service = make_service(start_daemon, "--drain", "1h")
    client = service.client()
    client.execute("d", "import time")
    stream = threading.Thread(target=_swallow, args=(client, "time.sleep(600)"))
    stream.start()
    wait_for("the run", lambda: service.client().get("/sandbox/d").json()["state"] == "running")
    assert service.daemon.process is not None
    service.daemon.process.terminate()
    time.sleep(0.3)
    assert service.daemon.process.poll() is None, "it waits for the answer"
    service.daemon.process.terminate()
    assert service.daemon.process.wait(60) == 0
    stream.join(60)
    service.daemon.start()


def _swallow(client: ServiceClient, code: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
        client.post("/sandbox/d/execute", {"code": code})
