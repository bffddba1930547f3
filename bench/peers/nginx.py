"""nginx with one worker: a static file, and files put and fetched."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from context import Bench
from measure import Skipped

CONFIGURATION = """
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    default_type application/json;
    client_max_body_size 1g;
    client_body_temp_path {directory}/body;
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        root {directory}/files;
        location / {{ dav_methods PUT; create_full_put_path on; }}
    }}
}}
"""


class Nginx:
    def __init__(self, bench: Bench) -> None:
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
        if not program:
            raise Skipped("nginx is not installed")
        directory = bench.scratch / "nginx"
        (directory / "files").mkdir(parents=True)
        (directory / "files/health").write_text('{"status":"ok"}')
        directory.chmod(0o755)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        configuration = directory / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(directory=directory, port=self.port))
        self.process = subprocess.Popen(
            [program, "-p", str(directory), "-c", str(configuration)], stdin=subprocess.DEVNULL
        )
        self.files: Path = directory / "files"
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError("nginx did not come up")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def server(bench: Bench) -> Nginx:
    return bench.share("nginx", lambda: Nginx(bench))
