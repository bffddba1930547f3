"""Sessions and ephemeral runs, and where their artifacts lie on the host.

| mode | the box | artifacts inside | on the host |
|---|---|---|---|
| session | one for each session id; variables and files stay | `/session/artifacts` | `<sessions_dir>/<id>/artifacts` |
| ephemeral | a fresh one for each run | `/work/artifacts` | `<outputs_dir>/<run id>` |
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..._options import Network, Size
from ..._sync.sandbox import Sandbox, run
from ...models import Artifact, Execution
from .._common import ALIASES, engine_of, errors_of, make_directory, name_for

ORIGINAL_IMAGE = "py-sandbox:latest"


class ArtifactMap(Mapping[str, str]):
    """Paths in the box to paths on the host. A file is found by whatever name of the workspace is used."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)
        self._by_canonical = {canonical(path): host for path, host in self._paths.items()}

    def __getitem__(self, path: str) -> str:
        return self._by_canonical[canonical(path)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return repr(self._paths)


def canonical(path: str) -> str:
    """The same path with the workspace's own name: /session/a is /workspace/a."""
    for alias in ALIASES:
        if path == alias or path.startswith(alias + "/"):
            return "/workspace" + path[len(alias) :]
    return path


@dataclass
class SandboxRun:
    """How a run ended. `artifact_map` leads from paths in the box, as the code wrote them, to paths on the host."""

    status: str
    stdout: str
    stderr: str
    exit_code: int
    run_id: str
    session_id: str | None
    artifact_map: ArtifactMap = field(default_factory=lambda: ArtifactMap({}))

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "artifact_map": dict(self.artifact_map)}


class SessionManager:
    """Runs code for the conversations of an agent.

    `mode` is `session` or `ephemeral`; a call with a `session_id` is a session's in both. Datasets in `datasets_dir`
    are /data inside, read-only. Sessions end with the manager; their files stay. With `engine="docker"`, or
    SANDBOX_MODE=docker in the environment, boxes are containers of `image` (`py-sandbox:latest` where none is named).
    """

    def __init__(
        self, mode: str = "session", *, sessions_dir: str | os.PathLike[str] = "sessions",
        outputs_dir: str | os.PathLike[str] = "outputs", datasets_dir: str | os.PathLike[str] | None = None,
        memory: Size | None = None, cpus: float | None = None, timeout: float | None = None,
        network: Network | None = None, image: str | None = None, engine: str | None = None,
    ) -> None:  # fmt: skip
        if mode not in ("session", "ephemeral"):
            raise ValueError(f"mode is 'session' or 'ephemeral', not {mode!r}")
        self.mode = mode
        self.sessions_dir = os.path.abspath(os.fspath(sessions_dir))
        self.outputs_dir = os.path.abspath(os.fspath(outputs_dir))
        self.datasets_dir = os.path.abspath(os.fspath(datasets_dir)) if datasets_dir is not None else None
        self.timeout = timeout
        self._options: dict[str, Any] = {"memory": memory, "cpus": cpus, "network": network}
        self._options |= engine_of(engine, image, ORIGINAL_IMAGE)
        self._sessions: dict[str, Sandbox] = {}

    def exec(self, code: str, session_id: str | None = None, timeout: float | None = None) -> SandboxRun:
        """Runs code in this session, or in a fresh box. In mode `session` one without an id is called `default`."""
        seconds = timeout or self.timeout
        if session_id is None and self.mode == "ephemeral":
            execution = run(code, timeout=seconds, data=self.datasets_dir, **self._options)
            return _result(execution, None, self._promote(execution, code))
        name = session_id or "default"
        execution = self._session(name).run_code(code, timeout=seconds)
        artifacts = _written(execution.artifacts, code, "/session")
        return _result(execution, name, ArtifactMap({path: self._host_path(name, path) for path in artifacts}))

    def close(self, session_id: str | None = None) -> None:
        """Ends one session, or all. Their files stay."""
        for name in [session_id] if session_id is not None else list(self._sessions):
            sandbox = self._sessions.pop(name, None)
            if sandbox is not None:
                sandbox.kill(keep_files=True)

    def __enter__(self) -> SessionManager:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def session_dir(self, session_id: str) -> str:
        """Where the files of a session lie. An id that cannot be the name of a directory gets one made of it."""
        return os.path.join(self.sessions_dir, name_for(session_id))

    def _session(self, name: str) -> Sandbox:
        sandbox = self._sessions.get(name)
        if sandbox is None or not sandbox.is_running():
            directory = make_directory(self.session_dir(name))
            make_directory(os.path.join(directory, "artifacts"))
            sandbox = Sandbox.create(workspace=directory, data=self.datasets_dir, **self._options)
            self._sessions[name] = sandbox
        return sandbox

    def _host_path(self, name: str, path: str) -> str:
        return self.session_dir(name) + canonical(path)[len("/workspace") :]

    def _promote(self, execution: Execution, code: str) -> ArtifactMap:
        """Copies the artifacts of an ephemeral run to a directory that is not removed."""
        paths: dict[str, str] = {}
        written = _written(execution.artifacts, code, "/work")
        for artifact, path in zip(execution.artifacts, written):
            if artifact.host_path is None:
                continue
            relative = canonical(path)[len("/workspace/artifacts/") :]
            target = os.path.join(self.outputs_dir, execution.run_id, relative)
            make_directory(os.path.dirname(target))
            shutil.copyfile(artifact.host_path, target)
            paths[path] = target
        return ArtifactMap(paths)


def _written(artifacts: Iterable[Artifact], code: str, usual: str) -> list[str]:
    """The paths with the name of the workspace that the code uses; where it uses none of them, the usual one."""
    used = [alias for alias in ALIASES if f"{alias}/artifacts" in code]
    alias = usual if usual in used or not used else used[0]
    return [alias + canonical(artifact.path)[len("/workspace") :] for artifact in artifacts]


def _result(execution: Execution, session_id: str | None, artifacts: ArtifactMap) -> SandboxRun:
    stdout = execution.stdout
    if execution.text is not None:
        stdout += f"{execution.text}\n"
    return SandboxRun(
        execution.status, stdout, errors_of(execution), execution.exit_code, execution.run_id, session_id, artifacts
    )
