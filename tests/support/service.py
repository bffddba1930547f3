"""The REST service of a daemon of the tests' own, and a small client for it.

    service = start_service(daemon, keys=("ann", "bob"))
    answer = service.client("ann").get("/sandbox/me/file?path=x")
    assert answer.status == 200, answer

The port is whatever was free; it is read from the daemon's log. Keys are made before the daemon starts."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.daemon import Daemon, wait_for
from support.glovebox import slowness

TIMEOUT_S = 100.0
IDLE_S = 20.0  # the server closes a connection that was idle for a minute: do not race with it


class Answer:
    """Status, headers and body of one answer; its text form says all there is to know about a failure."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<{self.status} {dict(self.headers)} {self.body[:2000]!r}>"


class ServiceClient:
    """One keep-alive connection with one key. `key` None sends none."""

    def __init__(self, port: int, key: str | None) -> None:
        self.port = port
        self.key = key
        self._connection: http.client.HTTPConnection | None = None
        self._used_s = 0.0

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**({"Authorization": f"Bearer {self.key}"} if self.key else {}), **(more or {})}

    def connect(self) -> http.client.HTTPConnection:
        """A connection of its own, for what `request` does not do; the caller closes it."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S * slowness())

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """`body` is bytes, a file or an iterable (sent chunked)."""
        if self._connection is None or time.monotonic() - self._used_s > IDLE_S:
            self.close()
            self._connection = self.connect()
        try:
            self._connection.request(method, path, body, self.headers(headers))
            answer = Answer(self._connection.getresponse())
        except BaseException:
            self.close()
            raise
        self._used_s = time.monotonic()
        return answer

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.request("GET", path, headers=headers)

    def delete(self, path: str) -> Answer:
        return self.request("DELETE", path)

    def post(self, path: str, value: Any = None) -> Answer:
        """JSON; None sends no body."""
        if value is None:
            return self.request("POST", path)
        return self.request("POST", path, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def execute(self, user_id: str, code: str, **more: Any) -> dict[str, Any]:
        """Runs Python; the result, which must be a good one."""
        answer = self.post(f"/sandbox/{quote(user_id)}/execute", {"code": code, **more})
        assert answer.status == 200, answer
        result = answer.json()
        assert result["status"] == "ok", result
        return result

    def socket(self) -> socket.socket:
        """A bare connection, for what no decent client sends."""
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S * slowness())

    def head(self, method: str, path: str, *lines: str) -> bytes:
        """The head of a request, for `socket`."""
        head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        head += [f"{name}: {value}" for name, value in self.headers().items()]
        return "\r\n".join([*head, *lines, "", ""]).encode()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Service:
    """A daemon that listens on a TCP port, with its keys."""

    def __init__(self, daemon: Daemon, keys: Mapping[str, str]) -> None:
        self.daemon = daemon
        self.keys = dict(keys)
        self.port = self.find_port()

    def find_port(self) -> int:
        """The last one in the log: a daemon that was started again may have another."""
        found = wait_for(
            "the port in the log",
            lambda: re.findall(r"the API is at http://127\.0\.0\.1:(\d+)", self.daemon.words()),
        )
        return int(found[-1])

    def client(self, name: str | None = None) -> ServiceClient:
        """For one of the keys, the first without a name. The caller need not close it."""
        return ServiceClient(self.port, self.keys[name or next(iter(self.keys))])

    def stranger(self) -> ServiceClient:
        """A client without a key."""
        return ServiceClient(self.port, None)

    def workspace(self, client: ServiceClient, user_id: str) -> Path:
        """Where a sandbox's files are on the host."""
        answer = client.get(f"/sandbox/{quote(user_id)}")
        assert answer.status == 200, answer
        return self.daemon.data / "sessions" / answer.json()["id"]


StartService = Callable[..., Service]


def start_service(daemon: Daemon, keys: Sequence[str] = ("ann", "bob")) -> Service:
    """Makes the keys and starts a daemon that was made with `start=False`."""
    made = {}
    for name in keys:
        done = daemon.glovebox("serve", "--new-key", name)
        assert done.returncode == 0, done.stderr
        made[name] = done.stdout.strip()
    daemon.options = (*daemon.options, "--port", "0")
    daemon.start()
    return Service(daemon, made)
