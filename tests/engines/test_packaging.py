"""Glovebox in a container: packaging/Dockerfile is built and its compose file is run, by dockerd and by podman."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support import engines
from support.daemon import wait_for
from support.glovebox import REPOSITORY
from support.images import archive

pytestmark = pytest.mark.timeout(1800)  # the image is built with the first test
KEY = "a-key-of-the-tests-alone"
# What packaging/Dockerfile copies.
CONTEXT = "packaging meson.build meson_options.txt src guest images tools web docs/glovebox.1".split()
CONTEXT += ["tests/support", "tests/unit"]
CADDY = ('CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]',)
CADDY += ("ENV XDG_CONFIG_HOME=/config", "ENV XDG_DATA_HOME=/data")


def import_base(engine: engines.Engine, name: str, image: str, changes: tuple[str, ...] = ()) -> None:
    """An image with the name that the files use, which a registry would give elsewhere."""
    repository, tag = image.split(":")
    query = [("fromSrc", "-"), ("repo", f"docker.io/library/{repository}"), ("tag", tag)]
    where = "/images/create?" + urlencode(query + [("changes", text) for text in changes])
    if engine.name == "podman":
        reference = ("reference", f"docker.io/library/{image}")
        where = "/v4.0.0/libpod/images/import?" + urlencode([reference, *(("changes", text) for text in changes)])
    with archive(name).open("rb") as body:
        told = engine.api.ask("POST", where, body, "application/x-tar").read()
    assert b'"error"' not in told, told


def build(engine: engines.Engine) -> None:
    """`docker build --network host -t glovebox -f packaging/Dockerfile .`"""
    context = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the function
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name in CONTEXT:
            tar.add(REPOSITORY / name, name, filter=lambda member: None if "__pycache__" in member.name else member)
    query = {"t": "docker.io/library/glovebox:latest", "dockerfile": "packaging/Dockerfile", "networkmode": "host"}
    for tries_left in (2, 1, 0):  # it fetches packages, and a download may break
        context.seek(0)
        response = engine.api.ask("POST", f"/build?{urlencode(query)}", context, "application/x-tar", timeout=900)
        words = [json.loads(line) for line in response.read().decode().splitlines() if line.strip()]
        if not any("error" in word for word in words):
            return
        said = "".join(word.get("stream", "") for word in words)[-3000:]
        assert tries_left, said + str(words[-1])


@dataclass
class Packaged:
    engine: engines.Engine

    def run(self, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`docker ...` at this engine's socket; podman speaks the same API."""
        program = shutil.which("docker")
        assert program, "docker is missing: run tools/setup.sh test"
        return subprocess.run(
            [program, "-H", f"unix://{self.engine.socket}", *options], capture_output=True, text=True, check=check
        )

    def inside(self, name: str, *words: str, check: bool = True) -> str:
        done = self.run("exec", name, *words, check=False)
        assert done.returncode == 0 or not check, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def pid(self, name: str) -> int:
        return int(self.run("inspect", "--format", "{{.State.Pid}}", name).stdout)

    def logs(self, name: str) -> str:
        told = self.run("logs", name, check=False)
        return told.stdout + told.stderr

    def find_daemon(self, name: str) -> int:
        """The daemon below the container's first process, as the host sees it; 0 between two daemons."""
        children = Path(f"/proc/{(first := self.pid(name))}/task/{first}/children")
        assert children.exists(), f"the container has ended: {self.logs(name)}"
        for child in children.read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"glovebox", b"serve"]:
                return int(child)
        return 0

    def daemon_pid(self, name: str) -> int:
        assert (pid := self.find_daemon(name)), f"no daemon in the container: {self.logs(name)}"
        return pid


@pytest.fixture(scope="module")
def built(service: Callable[[str], engines.Engine]) -> Iterator[dict[str, Future[Packaged]]]:
    """The image at both engines: podman builds its own while the tests of docker's run."""

    def make(engine: engines.Engine) -> Packaged:
        import_base(engine, "debian12-apt", "debian:12-slim")
        build(engine)
        return Packaged(engine)

    with ThreadPoolExecutor(max_workers=1) as pool:
        yield {name: pool.submit(make, service(name)) for name in ("docker", "podman")}


@pytest.fixture(scope="module", params=["docker", "podman"])
def packaged(request: pytest.FixtureRequest, built: dict[str, Future[Packaged]]) -> Packaged:
    return built[request.param].result()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def container(packaged: Packaged) -> Iterator[Callable[..., str]]:
    """Starts a container of the image with these options; it is removed at the end."""
    names: list[str] = []

    def start(*options: str, words: tuple[str, ...] = (), entry: str = "") -> str:
        name = f"gb-{os.getpid()}-{len(names)}"
        names.append(name)
        entrypoint = ("--entrypoint", entry) if entry else ()
        packaged.run("run", "-d", "--name", name, "--network", "none", *options, *entrypoint, "glovebox", *words)
        return name

    yield start
    for name in names:
        packaged.run("rm", "-f", "-v", name, check=False)


OPTIONS = ("--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined")


def serves(packaged: Packaged, name: str) -> None:
    wait_for("the daemon", lambda: packaged.run("exec", name, "glovebox", "status", check=False).returncode == 0)


def test_a_session_outlives_its_daemon_and_nothing_is_weaker(packaged: Packaged, container: Callable[..., str]) -> None:
    name = container(*OPTIONS, "-e", f"SANDBOX_API_KEY={KEY}")
    serves(packaged, name)
    packaged.inside(name, "glovebox", "exec", "s", "-c", "x = 41")
    shown = json.loads(packaged.inside(name, "glovebox", "session", "show", "s", "--json"))
    assert shown["isolation"]["weaker"] == [] and shown["isolation"]["rootless"] is False, shown["isolation"]
    os.kill(packaged.daemon_pid(name), signal.SIGKILL)
    serves(packaged, name)
    assert packaged.inside(name, "glovebox", "exec", "s", "-c", "x + 1") == "42\n"
    before = packaged.daemon_pid(name)
    os.kill(packaged.pid(name), signal.SIGHUP)  # `docker kill --signal HUP`
    wait_for("another daemon", lambda: packaged.find_daemon(name) not in (0, before))
    serves(packaged, name)
    assert packaged.inside(name, "glovebox", "exec", "s", "-c", "x + 2") == "43\n"
    zombies = [path for path in Path("/proc").glob("[0-9]*/stat") if f" Z {packaged.pid(name)} " in read(path)]
    assert not zombies
    begun = time.monotonic()
    packaged.run("stop", "-t", "60", name)
    assert time.monotonic() - begun < 30
    assert packaged.run("inspect", "--format", "{{.State.ExitCode}}", name).stdout == "0\n"


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_without_the_capability_boxes_without_proc_can_be_asked_for(
    packaged: Packaged, container: Callable[..., str]
) -> None:
    """The defaults of a container, but for the filter that forbids namespaces."""
    name = container("--security-opt", "seccomp=unconfined", entry="sleep", words=("1000",))
    refused = packaged.inside(name, "glovebox", "run", "-c", "print(1)", check=False)
    assert "--allow-weaker" in refused, refused
    doctor = packaged.inside(name, "glovebox", "doctor", check=False)
    assert "a new /proc was refused" in doctor and "only with --allow-weaker" in doctor, doctor
    code = (
        "import os, json, subprocess, threading, tempfile, asyncio, sqlite3, multiprocessing as m\n"
        "print(os.getuid(), os.listdir('/proc'), subprocess.check_output(['echo', 'hi']),"
        " m.get_context('fork').Pool(2).map(abs, [-1, -2]), open(tempfile.mkstemp()[1], 'w').write('abc'))"
    )
    told = json.loads(packaged.inside(name, "glovebox", "run", "--allow-weaker", "--json", "-c", code))
    assert told["stdout"] == "1000 [] b'hi\\n' [1, 2] 3\n", told
    assert any(text.startswith("proc: none") for text in told["isolation"]["weaker"]), told["isolation"]
    escapes = (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "print(libc.unshare(0x10000000), libc.unshare(0x20000), libc.mount(b'proc', b'/tmp', b'proc', 0, None),"
        " libc.umount2(b'/usr', 2))"
    )
    told = json.loads(packaged.inside(name, "glovebox", "run", "--allow-weaker", "--json", "-c", escapes))
    assert told["stdout"] == "-1 -1 -1 -1\n", told


def test_a_first_process_that_reaps_nothing_does_no_harm(packaged: Packaged, container: Callable[..., str]) -> None:
    name = container(*OPTIONS, "-e", f"SANDBOX_API_KEY={KEY}", entry="sleep", words=("1000",))
    packaged.inside(name, "glovebox", "serve", "--background")
    packaged.inside(name, "glovebox", "exec", "s", "-c", "x = 1")
    status = json.loads(packaged.inside(name, "glovebox", "status", "--json"))
    inside = str(status["daemon"]["pid"])
    packaged.inside(name, "python3", "-c", f"import os; os.kill({inside}, 9)")
    packaged.inside(name, "glovebox", "serve", "--background")
    assert packaged.inside(name, "glovebox", "exec", "s", "-c", "x + 1") == "2\n"
    packaged.inside(name, "glovebox", "session", "rm", "s")
    assert "no sessions" in packaged.inside(name, "glovebox", "session", "ls") or "s  " not in packaged.inside(
        name, "glovebox", "session", "ls"
    )
    packaged.inside(name, "glovebox", "stop", "--end-sessions")


def request(port: int, context: ssl.SSLContext, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"{}")  # a front whose service is not there yet says nothing


def test_the_compose_file_serves_behind_tls(packaged: Packaged, tmp_path: Path) -> None:
    compose = shutil.which("docker-compose")
    assert compose, "docker-compose is missing: run tools/setup.sh test"
    import_base(packaged.engine, "caddy", "caddy:2", CADDY)
    for file in ("docker-compose.yml", "Caddyfile"):
        shutil.copy(REPOSITORY / "packaging" / file, tmp_path)
    port, project = free_port(), f"gb{os.getpid()}"
    lines = {"SITE": "localhost", "SANDBOX_API_KEY": KEY, "HTTP_PORT": free_port(), "HTTPS_PORT": port}
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    environment = {**os.environ, "DOCKER_HOST": f"unix://{packaged.engine.socket}", "COMPOSE_PROJECT_NAME": project}

    def call(*words: str) -> None:
        done = subprocess.run([compose, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    call("up", "-d", "--no-build")
    try:
        names = packaged.run("ps", "-a", "--filter", f"name={project}", "--format", "{{.Names}}").stdout.split()
        (front,) = [name for name in names if "caddy" in name]
        (behind,) = [name for name in names if "glovebox" in name]
        root = "/data/caddy/pki/authorities/local/root.crt"
        wait_for("Caddy's certificate", lambda: "BEGIN" in packaged.inside(front, "cat", root, check=False))
        context = ssl.create_default_context(cadata=packaged.inside(front, "cat", root))

        def is_well() -> bool:
            try:
                return request(port, context, "GET", "/health")[0] == 200
            except OSError:
                return False

        wait_for("the service behind TLS", is_well)
        status, told = request(port, context, "POST", "/sandbox/alice/execute", {"code": "x = 41; print(x)"})
        assert (status, told["stdout"]) == (200, "41\n"), told
        os.kill(packaged.daemon_pid(behind), signal.SIGKILL)
        wait_for("the next daemon", is_well)
        status, told = request(port, context, "POST", "/sandbox/alice/execute", {"code": "print(x + 1)"})
        assert (status, told["stdout"]) == (200, "42\n"), told
    finally:
        for name in packaged.run("ps", "-a", "--format", "{{.Names}}").stdout.split():
            print(name, packaged.logs(name)[-1500:])
        call("down", "-v")
