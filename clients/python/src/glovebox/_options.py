"""Translates the options of `create` into the daemon's request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Union

from .errors import InvalidArgumentError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._place import Target

ENGINES = ("auto", "native", "docker", "podman", "remote")

Size = Union[int, str]
Network = Union[bool, str, Sequence[str], Mapping[str, Any]]
Mount = Union[str, Mapping[str, Any], "tuple[str, str]", "tuple[str, str, str]"]
Mounts = Union[Sequence[Mount], Mapping[str, str]]


def create_fields(
    memory: Size | None, cpus: float | None, timeout: float | None, network: Network | None, mounts: Mounts | None,
    env: Mapping[str, str] | None, engine: str | None, image: str | None, mode: str | None, pids: int | None,
    disk: Size | None, tmp: Size | None, workspace: str | os.PathLike[str] | None,
    data: str | os.PathLike[str] | None, allow_weaker: bool | None, users: bool | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The members of `session.create`; what is None is the daemon's to choose."""
    if engine is not None and engine not in ENGINES:
        raise UnsupportedError(f"there is no engine {engine!r}; leave engine= out, or say one of {', '.join(ENGINES)}")
    limits = {"memory": memory, "cpus": cpus, "timeout": timeout, "pids": pids, "disk": disk, "tmp": tmp}
    fields: dict[str, Any] = {
        "limits": {name: value for name, value in limits.items() if value is not None} or None,
        "network": None if network is None else network_of(network),
        "mounts": None if mounts is None else mounts_of(mounts),
        "env": None if env is None else env_of(env),
        "engine": engine,
        "image": image,
        "mode": mode,
        "workspace": None if workspace is None else os.path.abspath(os.fspath(workspace)),
        "data": None if data is None else os.path.abspath(os.fspath(data)),
        "allow_weaker": allow_weaker,
        "users": users,
    }
    return {name: value for name, value in fields.items() if value is not None}


def as_owner(fields: dict[str, Any], target: Target) -> dict[str, Any]:
    """On the owner's own socket, a directory that the program names is the owner's to show, as at the command line.

    What the mount policy forbids stays forbidden. A service judges by what its operator allows for keys.
    """
    shows = any(name in fields for name in ("mounts", "workspace", "data"))
    return {**fields, "operator": True} if shows and target.socket else fields


def env_of(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"env holds texts only, and {name!r} is {value!r}; write str({value!r})")
    return dict(env)


def network_of(network: Network) -> Any:
    """True: every public host; False: none; a list: hosts that may be reached; else as the daemon takes it."""
    if isinstance(network, bool):
        return "full" if network else "none"
    if isinstance(network, (str, Mapping)):
        return network if isinstance(network, str) else dict(network)
    return {"allow": list(network)}


def mounts_of(mounts: Mounts) -> list[dict[str, Any]]:
    """`{"/srv/data": "/data"}`, `["/srv/data:/data:rw"]`, `[("/srv/data", "/data", "ro")]` or the daemon's own."""
    if isinstance(mounts, Mapping):
        return [_mount_of(f"{source}:{destination}") for source, destination in mounts.items()]
    return [_mount_of(mount) for mount in mounts]


def _mount_of(mount: Any) -> dict[str, Any]:
    if isinstance(mount, Mapping):
        return dict(mount)
    parts = mount.split(":") if isinstance(mount, str) else [os.fspath(part) for part in mount]
    if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        raise InvalidArgumentError(f'{mount!r} is no mount; write "SOURCE:DESTINATION" or "SOURCE:DESTINATION:rw"')
    source = os.path.abspath(parts[0])
    return {"source": source, "destination": parts[1], "writable": len(parts) == 3 and parts[2] == "rw"}


def timeout_ms(timeout: float | None) -> dict[str, int]:
    """The member that a run's own time limit is, or none."""
    if timeout is None or timeout == 0:
        return {}
    if timeout < 0:
        raise InvalidArgumentError("timeout is a number of seconds, larger than 0")
    return {"timeout_ms": max(1, round(timeout * 1000))}
