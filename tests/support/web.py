"""A small web server on the host's loopback, and code that talks to the proxy of a box."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME = "index.example"

# In a box: sends something to the proxy, reads everything until it hangs up.
ASK = """
import json, os, socket, sys
def ask(text, port=3128):
    with socket.create_connection(("127.0.0.1", port), 60) as to:
        to.sendall(text.encode())
        answer = b""
        while piece := to.recv(65536):
            answer += piece
    return answer.decode(errors="replace")
"""


class Web:
    """Answers every request with a JSON description of it, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                seen = {
                    "method": self.command,
                    "path": self.path,
                    "headers": [[name.lower(), value] for name, value in self.headers.items()],
                    "body": body.decode(),
                }
                web.seen.append(seen)
                text = json.dumps(seen).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = answer  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{NAME}:{self.port}"

    @property
    def pin(self) -> tuple[str, str]:
        """The option by which an operator directs the name here."""
        return ("--egress-host", f"{NAME}=127.0.0.1")

    @property
    def rule(self) -> str:
        return f"{NAME}:{self.port}"


@contextlib.contextmanager
def serve_web() -> Iterator[Web]:
    web = Web()
    yield web
    web.server.shutdown()
    web.server.server_close()
