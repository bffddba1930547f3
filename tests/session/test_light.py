"""Kernels forked from the light nursery, which were prepared for the environment that most boxes have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, wait_for
from support.daemons import make_daemons


@pytest.fixture(scope="module")
def daemon(binary: Path) -> Iterator[Daemon]:
    """Without a module to preload there would be one kind of kernel only."""
    for make in make_daemons(binary):
        yield make("--pool", "2", "--preload", "this")


# What a fork must renew, what the box gave it, what a child and a thread of its own may do, and its first cell.
BIRTH = """
import json, os, random, sys, tempfile, threading, time, traceback, uuid
pid = os.fork()
if pid == 0:
    os._exit(7 if random.random() >= 0 else 8)
threads = []
thread = threading.Thread(target=lambda: threads.append(threading.get_native_id()))
thread.start()
thread.join()
try:
    1 / 0
except ZeroDivisionError:
    answered = traceback.format_exc()
print(json.dumps({
    "light": open("/proc/self/cmdline").read().split("\\0")[-2] == "light",
    "repeats": [random.random(), tempfile.mktemp(), str(uuid.uuid1())],
    "ids": [os.getpid(), threading.main_thread().native_id, len(threads)],
    "env": [os.environ.get("MINE"), os.environ["TZ"], time.tzname[0], os.environ["HOME"], os.environ["MPLBACKEND"]],
    "path": [sys.path[0], "/nowhere" in sys.path, len(sys.path) == len(set(sys.path))],
    "child": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]),
    "cell": ["<cell 1>" in answered, "1 / 0" in answered],
}))
"""


def test_a_light_kernel_is_as_new_as_any_other(daemon: Daemon) -> None:
    client = daemon.client()

    def born(**fields: object) -> dict[str, Any]:
        wait_for("light kernels", lambda: client.request("status")["pool"]["light_ready"] == 2)
        done = client.execute(BIRTH, light=True, **fields)
        assert done["status"] == "ok", done
        seen: dict[str, Any] = json.loads(done["stdout"])
        assert seen["light"], "or this test is about something else"
        assert (seen["ids"], seen["child"], seen["cell"]) == ([2, 2, 1], 7, [True, True])
        return seen

    usual, again = born(), born()
    assert not set(usual["repeats"]) & set(again["repeats"])
    assert usual["env"] == [None, "UTC", "UTC", "/home/sandbox", "Agg"]
    assert usual["path"] == ["", False, True]
    other = born(env={"MINE": "yes", "TZ": "XYZ3", "MPLBACKEND": "svg", "PYTHONPATH": "/nowhere"})
    assert other["env"] == ["yes", "XYZ3", "XYZ", "/home/sandbox", "Agg"]
    assert other["path"] == ["", True, True]
    assert born()["env"] == usual["env"], "nothing of it is left for the next"
