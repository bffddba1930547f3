"""A kernel without a box: the process, its channel and its two pipes, as a host sees them."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2] / "guest" / "kernel"
EXECUTE, PING, TRIM, SLEEP, WAKE, CONTEXT, PIECE = 1, 2, 3, 4, 5, 6, 8
READY, RESULT, DISPLAY, PONG, ANSWER, REPEATED = 128, 129, 130, 131, 132, 133
WAIT_SECONDS = 120


class KernelProcess:
    """Every wait has a limit that only a hang can reach."""

    def __init__(self, workspace: Path, environ: dict[str, str] | None = None) -> None:
        requests_read, requests_write = os.pipe()
        replies_read, replies_write = os.pipe()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(workspace),
            # Behind the package: where numpy and the rest are installed on this machine.
            "PYTHONPATH": os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "WORKSPACE_DIR": str(workspace),
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            **(environ or {}),
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "glovebox_kernel",
                "--requests",
                str(requests_read),
                "--replies",
                str(replies_write),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out_write,
            stderr=err_write,
            pass_fds=[requests_read, replies_write],
            cwd=workspace,
            env=environ,
        )
        for fd in (out_write, err_write, requests_read, replies_write):
            os.close(fd)
        self.requests_fd, self.replies_fd = requests_write, replies_read
        self.pipes = {out_read: bytearray(), err_read: bytearray()}
        self._out_fd, self._err_fd = out_read, err_read
        for fd in (*self.pipes, self.replies_fd):
            os.set_blocking(fd, False)
        self._received = b""
        self.displays: list[dict[str, Any]] = []
        self._next_id = 0
        self.ready = self.wait_for(READY)

    # Frames

    def send(self, kind: int, payload: bytes) -> None:
        data = memoryview(struct.pack("<IB3x", len(payload), kind) + payload)
        while data:
            data = data[os.write(self.requests_fd, data) :]

    def wait_for(self, kind: int) -> Any:
        """The next frame of this type; DISPLAY frames and output are gathered on the way."""
        while True:
            frame = self._next_frame()
            if frame[0] == DISPLAY:
                self.displays.append(json.loads(frame[1]))
                continue
            assert frame[0] == kind, f"frame {frame[0]} instead of {kind}: {frame[1][:2000]!r}"
            return frame[1] if kind in (PONG, REPEATED) else json.loads(frame[1])

    def _next_frame(self) -> tuple[int, bytes]:
        while True:
            if len(self._received) >= 8:
                length, kind = struct.unpack_from("<IB3x", self._received)
                if len(self._received) >= 8 + length:
                    payload = self._received[8 : 8 + length]
                    self._received = self._received[8 + length :]
                    return kind, payload
            self._wait_readable()
            self.drain()
            try:
                data = os.read(self.replies_fd, 1 << 20)
            except BlockingIOError:
                continue
            if not data:
                raise EOFError(f"the kernel closed the channel; stderr: {bytes(self.pipes[self._err_fd])!r}")
            self._received += data

    def _wait_readable(self) -> None:
        readable, _, _ = select.select([self.replies_fd, *self.pipes], [], [], WAIT_SECONDS)
        assert readable, "the kernel is silent"

    def drain(self) -> None:
        """As the host does: read until the pipes are empty; after a RESULT that is all there is."""
        for fd, gathered in list(self.pipes.items()):
            while True:
                try:
                    data = os.read(fd, 1 << 16)
                except BlockingIOError:
                    break
                if not data:
                    break
                gathered += data
                if len(data) < 1 << 16:
                    break

    # Requests

    def start(self, code: str, **fields: Any) -> int:
        self._next_id += 1
        self.displays = []
        for gathered in self.pipes.values():
            gathered.clear()
        self.send(EXECUTE, json.dumps({"id": self._next_id, "code": code, **fields}).encode())
        return self._next_id

    def finish(self) -> dict[str, Any]:
        result = self.wait_for(RESULT)
        assert result["id"] == self._next_id
        self.drain()
        return result

    def run(self, code: str, **fields: Any) -> dict[str, Any]:
        self.start(code, **fields)
        return self.finish()

    def value(self, code: str, **fields: Any) -> str:
        """The text of the last expression of code that must succeed."""
        result = self.run(code, **fields)
        assert result["status"] == "ok", result["error"]["traceback"]
        return result["result"]["text/plain"] if result["result"] else ""

    def request(self, kind: int, **fields: Any) -> dict[str, Any]:
        self._next_id += 1
        self.send(kind, json.dumps({"id": self._next_id, **fields}).encode())
        answer = self.wait_for(ANSWER)
        assert answer["id"] == self._next_id
        return answer

    @property
    def out(self) -> str:
        return self.pipes[self._out_fd].decode()

    @property
    def err(self) -> str:
        return self.pipes[self._err_fd].decode()

    def wait_for_output(self, text: str) -> None:
        while text not in self.out:
            self._wait_readable()
            self.drain()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def resident_bytes(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait_end(self) -> int:
        status = self.process.wait(WAIT_SECONDS)
        self.drain()
        return status

    def close_now(self) -> None:
        """End it as the host does; `close` may follow."""
        self.process.kill()
        self.wait_end()

    def close_requests(self) -> None:
        if self.requests_fd >= 0:
            os.close(self.requests_fd)
        self.requests_fd = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_SECONDS)
        self.close_requests()
        for fd in (self.replies_fd, *self.pipes):
            os.close(fd)
