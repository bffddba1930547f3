"""Starting, using and stopping the daemon of a project.

Each project has a daemon and a data directory of its own. Its socket is `<project>/.sandbox/kernel.sock`, or
`<socket_dir>/kernel.sock` where the project lies on a file system without UNIX sockets.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import time
from typing import Any

from ..._place import Target
from ..._start import find_program
from ..._sync.client import transport_for
from ..._sync.sandbox import Sandbox
from ...errors import ConnectionLostError, DaemonUnavailableError, GloveboxError, SandboxNotFoundError
from .._common import data_home, engine_of, errors_of, make_directory

SANDBOX_NAME = "kernel"
ORIGINAL_IMAGE = "local/sandbox-py311-rdkit:latest"
STOP_S = 30  # how long a daemon may take to end


def start_container(
    project_dir: str | os.PathLike[str], slug: str, idle_hibernate_sec: int = 900,
    socket_dir: str | os.PathLike[str] | None = None, *, memory: str = "4g", cpus: float = 1.0, pids_limit: int = 256,
    engine: str | None = None, image: str | None = None,
) -> None:  # fmt: skip
    """Starts the project's daemon and its sandbox; returns when both are ready. One that runs already is kept.

    Variables go to disk after `idle_hibernate_sec` idle seconds and are restored with the next call. Large
    tables and arrays are then in the project's `data` directory, too, as `save` would have put them there.

    With `engine="docker"`, or SANDBOX_MODE=docker in the environment, the sandbox is a container of `image`
    (`local/sandbox-py311-rdkit:latest` where none is named).
    """
    project = os.path.realpath(os.fspath(project_dir))
    if not os.path.isdir(project):
        raise FileNotFoundError(f"the project {project} is no directory; make it first, or name another")
    made_by = engine_of(engine, image, ORIGINAL_IMAGE)
    if not ping(project, socket_dir):
        _start_daemon(project, slug, idle_hibernate_sec, socket_dir, made_by["image"])
    _sandbox(project, socket_dir, {"memory": memory, "cpus": cpus, "pids": pids_limit, **made_by})
    _remember(slug, project, socket_dir)


def ping(project_dir: str | os.PathLike[str], socket_dir: str | os.PathLike[str] | None = None) -> bool:
    """Whether the project's daemon answers."""
    try:
        transport_for(_target(project_dir, socket_dir)).ask("ping", {})
    except (GloveboxError, OSError):
        return False
    return True


def exec_code(
    project_dir: str | os.PathLike[str], code: str, socket_dir: str | os.PathLike[str] | None = None, *,
    timeout: float | None = None,
) -> dict[str, str]:  # fmt: skip
    """Runs code in the project's Python, whose variables stay. The answer has `status`, `stdout` and `stderr`.

    `status` is `[OK] exec`, or the word for what happened instead: `[ERROR] exec`, `[TIMEOUT] exec`, `[OOM] exec`,
    `[KILLED] exec`, `[INTERRUPTED] exec`. A traceback is in `stderr`.
    """
    execution = _sandbox(project_dir, socket_dir, engine_of(None, None, ORIGINAL_IMAGE)).run_code(code, timeout=timeout)
    return {
        "status": f"[{execution.status.upper()}] exec",
        "stdout": execution.stdout,
        "stderr": errors_of(execution),
    }


def shutdown(project_dir: str | os.PathLike[str], socket_dir: str | os.PathLike[str] | None = None) -> None:
    """Ends the project's sandbox and its daemon. Files of the project stay; variables do not."""
    transport = transport_for(_target(project_dir, socket_dir))
    try:
        pid = int(transport.ask("ping", {})["pid"])
        transport.ask("shutdown", {"sessions": "end"})
    except (DaemonUnavailableError, ConnectionLostError):
        return
    deadline = time.monotonic() + STOP_S
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)


def stop_container(slug: str) -> None:
    """The same for a project whose name is known and whose directory is not. Nothing happens where nothing runs."""
    path = _record_path(slug)
    try:
        with open(path, encoding="utf-8") as file:
            record: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return
    shutdown(record["project_dir"], record["socket_dir"])
    with contextlib.suppress(OSError):
        os.unlink(path)


# ---- the daemon of a project ----


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _target(project_dir: str | os.PathLike[str], socket_dir: str | os.PathLike[str] | None) -> Target:
    directory = os.fspath(socket_dir) if socket_dir else os.path.join(os.path.realpath(project_dir), ".sandbox")
    # The socket of a project is a link to where no box can see it, and its name is too long for some projects.
    return Target(os.path.realpath(os.path.join(directory, "kernel.sock")), None, None, False)


def _start_daemon(
    project: str, slug: str, idle_s: int, socket_dir: str | os.PathLike[str] | None, image: str | None
) -> None:  # fmt: skip
    program = find_program()
    if program is None:
        raise DaemonUnavailableError(
            "there is no program `glovebox` to start the project's daemon with; install it (`pip install "
            "glovebox-sandbox-runtime`)"
        )
    data = make_directory(_data_directory(project), 0o700)
    command = [program.path, "serve", "--background", "--project", project, "--idle", str(idle_s)]
    if socket_dir:
        command += ["--socket-dir", make_directory(socket_dir, 0o700)]
    environment = {**os.environ, "GLOVEBOX_DATA_DIR": data}
    environment.setdefault("GLOVEBOX_SHARED_DATA_DIR", data_home())  # the images are the user's own
    environment.pop("GLOVEBOX_SOCKET", None)
    if image and os.environ.get("SANDBOX_MODE"):
        environment["DOCKER_SANDBOX_IMAGE"] = image  # of the boxes that it makes ahead
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        check=False, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise DaemonUnavailableError(f"the daemon of {slug} could not be started: {done.stderr.strip()}")


def _data_directory(project: str) -> str:
    """Beside the user's own data directory, which belongs to one daemon at a time."""
    return f"{data_home()}-projects/{hashlib.sha256(project.encode()).hexdigest()[:16]}"


def _sandbox(
    project_dir: str | os.PathLike[str], socket_dir: str | os.PathLike[str] | None, options: dict[str, Any]
) -> Sandbox:
    """The project's sandbox, made where there is none. It is not ours to end: no `with` block."""
    socket = _target(project_dir, socket_dir).socket
    try:
        return Sandbox.connect(SANDBOX_NAME, socket=socket, start=False)
    except SandboxNotFoundError:
        workspace = os.path.realpath(project_dir)
        return Sandbox.create(
            SANDBOX_NAME, workspace=workspace, socket=socket, start=False, exist_ok=True,
            env={"GLOVEBOX_SNAPSHOTS": "1"}, **options,
        )  # fmt: skip


# ---- which project a name stands for ----


def _record_path(slug: str) -> str:
    return f"{data_home()}-projects/{hashlib.sha256(slug.encode()).hexdigest()[:16]}.json"


def _remember(slug: str, project: str, socket_dir: str | os.PathLike[str] | None) -> None:
    path = _record_path(slug)
    make_directory(os.path.dirname(path), 0o700)
    record = {"slug": slug, "project_dir": project, "socket_dir": os.fspath(socket_dir) if socket_dir else None}
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(path + ".new", path)
