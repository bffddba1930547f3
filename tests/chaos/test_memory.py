"""The host runs out of memory: boxes are killed first, Glovebox's own processes last."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.daemon import Daemon, _named, _parent, memory_of, wait_for
from support.daemons import StartDaemon

LOWER = "import sys; open(f'/proc/{sys.argv[1]}/oom_score_adj', 'wb', 0).write(sys.argv[2].encode())"


def score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def may_be_lowered(pid: int, to: int, uid: int) -> bool:
    """Could the process's own user, without a privilege, do it?"""
    command = [sys.executable, "-c", LOWER, str(pid), str(to)]
    done = subprocess.run(command, user=uid, group=uid, extra_groups=[], capture_output=True, check=False, cwd="/")
    return done.returncode == 0


def spared() -> int:
    """What this host lets root give to a daemon: -900, or the default where root lacks the privilege."""
    done = subprocess.run([sys.executable, "-c", LOWER, "self", "-900"], capture_output=True, check=False)
    return -900 if done.returncode == 0 else score(os.getpid())


def supervisor_of(daemon: Daemon) -> int:
    def find() -> int:
        return next(_named("glovebox-superv", lambda pid: _parent(pid) == daemon.maker()), 0)

    return int(wait_for("a supervisor", find))


@pytest.mark.vm  # where root has every privilege
def test_l08_boxes_are_offered_first_and_the_daemon_last(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--preload", "this")
    client = daemon.client()
    client.execute("1", "cold", mode="fresh")
    client.execute("1", "first")
    nursery = wait_for(
        "the nursery", lambda: (n := client.request("status")["nursery"]) and n["state"] == "ready" and n["pid"]
    )
    client.execute("1", "forked")
    for pid in (daemon.pid, daemon.maker(), supervisor_of(daemon), *daemon.vaults()):
        assert score(pid) == spared(), Path(f"/proc/{pid}/comm").read_text()
    assert score(nursery) == (0 if spared() == -900 else spared())
    for name in ("cold", "forked"):
        for pid in (daemon.agent_of(name), daemon.kernel_of(name)):
            assert score(pid) == 500
        # Neither by the code itself nor by another process of its user.
        done = client.execute("open('/proc/self/oom_score_adj', 'w').write('-900')", name)
        assert done["status"] == "error" and done["error"]["name"] in ("PermissionError", "OSError"), done
        kernel = daemon.kernel_of(name)
        uid = os.stat(f"/proc/{kernel}").st_uid
        assert uid != 0 and not may_be_lowered(kernel, -900, uid) and score(kernel) == 500
        assert may_be_lowered(kernel, 501, uid)  # the question was put to the right file


def test_a_daemon_short_of_memory_waits_and_does_not_blame_the_code(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    client.execute("kept = 1", "s")
    kernel = daemon.kernel_of("s")
    answer = "for _ in range(3): display({'text/html': 'y' * 900_000}, raw=True)\nkept"
    no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    before = memory_of(daemon.pid, "VmSize")
    # It has what it has, and gets no more from now on.
    number = client.begin("execute", session="s", code="import time; time.sleep(1)\n" + answer)
    wait_for("the run", lambda: client_state(daemon) == "running")
    resource.prlimit(daemon.pid, resource.RLIMIT_AS, (before, resource.RLIM_INFINITY))
    try:
        wait_for("the daemon to say so", lambda: "short of memory" in daemon.words())
    finally:
        resource.prlimit(daemon.pid, resource.RLIMIT_AS, no_limit)
    done = client.finish(number)
    assert (done["status"], len(done["displays"])) == ("ok", 3), done["error"]
    assert daemon.kernel_of("s") == kernel and client.execute("kept", "s")["result"] == {"text/plain": "1"}


def client_state(daemon: Daemon) -> str:
    return str(daemon.client().request("session.show", session="s")["state"])
