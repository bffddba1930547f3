"""The attempts of tests/escape, inside boxes of other engines.

A container of docker or podman has no user namespace of its own, and gVisor is another kernel: what the attempts find
there that native boxes do not show is listed here, each with the reason. An attempt that is not listed must be
blocked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import engines
from support.daemons import make_daemons

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "escape"))

from conftest import options_of  # noqa: E402
from escapes import harness  # noqa: E402
from escapes.runners import EngineRunner  # noqa: E402
from escapes.world import World  # noqa: E402

_CONTAINER = {
    "mounts-read-host-paths-in-mountinfo": "a bind mount of a container shows where on its file system it comes from",
    "proc-read-the-host-s-resolver-and-tables-in-etc": "the image's own /etc is shown",
    "files-see-what-is-in-var-and-run": "the image's own /var is shown",
    "proc-find-a-cgroup-file-system": "listed in mountinfo, below a /sys that is covered",
    "files-find-glovebox-s-own-state": "/run/glovebox: an empty directory once the agent is connected",
    "processes-find-an-open-descriptor-beyond-the-three": "the pipes of a kernel; these attempts run as a cell",
}
_PODMAN = {
    "mounts-find-the-host-s-file-systems-still-mounted": "podman mounts a tmpfs of its own at /run",
    "proc-read-the-control-group-s-path-on-the-host": "on cgroup v1 podman gives no cgroup namespace",
}
# Another kernel: what it shows is its own. It does not know PR_SET_DUMPABLE, but the agent has nothing to be read: no
# secret is in its memory, which cannot be opened (/proc/1/mem), and its one socket cannot be opened through /proc.
_GVISOR = {
    "mounts-join-a-namespace-of-pid-1-through-proc": "can be opened, not joined",
    "mounts-find-the-host-s-file-systems-still-mounted": "its root is a 9p file system",
    "kernel-take-a-better-nice-value": "of gVisor's own scheduler",
    "proc-find-a-sysfs": "gVisor's own",
    "proc-find-more-devices-than-a-box-has": "gVisor's own /dev",
    "proc-open-a-device-of-the-machine": "gVisor's own /dev",
    "proc-be-exempt-from-the-memory-killer": "gVisor's own oom_score_adj",
    **{f"processes-read-{file}-of-pid-1": "no PR_SET_DUMPABLE" for file in ("environ", "maps", "smaps", "auxv")},
    "processes-list-the-descriptors-of-pid-1": "no PR_SET_DUMPABLE",
    "network-mark-packets": "on a network that has no way out",
    "network-bind-to-a-foreign-address": "on a network that has no way out",
}
KNOWN: dict[str, dict[str, str]] = {
    "incus": {name: why for name, why in _CONTAINER.items() if name != "proc-find-a-cgroup-file-system"},
    "incus-remote": {name: _CONTAINER[name] for name in ("processes-find-an-open-descriptor-beyond-the-three",)},
    "docker": _CONTAINER,
    "podman": _CONTAINER | _PODMAN,
    "docker-gvisor": _CONTAINER | _GVISOR,
}

GROUPS = ("files", "kernel", "mounts", "network", "proc", "processes")
NATIVE_ONLY = {"artifacts", "terminal", "json", "stdin_file", "stdout_file"}  # options of `glovebox run` itself


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["docker", "podman", "docker-gvisor", "incus", "incus-remote"])
def test_attempts_fail_inside(binary: Path, service: Callable[[str], engines.Engine], kind: str) -> None:
    table = harness.attempts()
    names = [
        name
        for name, item in table.items()
        if item.only == "" and item.group in GROUPS and not item.alone and not NATIVE_ONLY & set(item.box)
    ]
    assert len(names) > 100
    engine, options = options_of(service, kind)
    world = World(0)
    try:
        for make in make_daemons(binary):
            daemon = make(*options, env=getattr(engine, "remote_env", None))
            verdicts = harness.run_all(EngineRunner(daemon.glovebox, daemon.socket), world, names)
    finally:
        world.close()
    reached = {name: why for name, (verdict, why) in verdicts.items() if verdict == "ESCAPED"}
    broken = {name: why for name, (verdict, why) in verdicts.items() if verdict == "BROKEN"}
    print(kind, len(verdicts), "attempts;", reached, broken)
    # What gVisor does not implement, it answers with errors that the attempts do not expect.
    assert not set(reached) - set(KNOWN[kind]) and (not broken or kind == "docker-gvisor")
