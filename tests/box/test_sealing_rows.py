"""Every row of the sealing has an effect: without it a box does not start, or differs visibly.

build/tests/support/glovebox-leave-out is glovebox, but for leaving out the row that an environment variable names. The
oracle is what a box sees of its sealing (tests/support/fingerprint.py) and what the host sees of the box: its keys.
A row without a test could be lost unnoticed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from support.client import DaemonError
from support.daemon import Daemon, wait_for
from support.glovebox import REPOSITORY, Glovebox, find_binary, reachable_binary, slowness

FINGERPRINT = (REPOSITORY / "tests/support/fingerprint.py").read_text()


def rows_of(source: str, pattern: str) -> list[str]:
    """Of the table in a source; where there are no sources (the virtual machine), none of this runs."""
    path = REPOSITORY / source
    return re.findall(pattern, path.read_text(), re.MULTILINE) if path.exists() else []


ROWS = rows_of("src/box/seal/stage.c", r'^        \{ "(\w+)", \w+, "')
FORK_ROWS = rows_of("guest/nursery/spawn.c", r'^        \{ \w+, "([^"]+)", [\w, ]+ \},')

Seen = dict[str, Any]


def leave_out(glovebox: Glovebox) -> Glovebox:
    program = find_binary().parent / "tests/support/glovebox-leave-out"
    assert program.exists(), f"{program} is missing: run make"
    return Glovebox(reachable_binary(program, glovebox.place), glovebox.place, glovebox.groups)


def keys() -> dict[int, int]:
    """How many keys each user has."""
    rows = [line.split() for line in Path("/proc/key-users").read_text().splitlines()]
    return {int(row[0].rstrip(":")): int(row[2].partition("/")[0]) for row in rows}


# Also prints who it is on the host, which its mounts tell, and stays until it was looked at.
CODE = """
import re, sys
print(re.findall(r"uid=(\\d+)", open("/proc/self/mountinfo").read())[0], flush=True)
sys.stdin.readline()
"""


def look(glovebox: Glovebox, row: str) -> Seen | None:
    """What is seen of a box without this row; None when there is no box."""
    shown = glovebox.place.path / "shown"
    shown.mkdir(exist_ok=True)
    glovebox.place.give(shown)
    words = ("--mount", f"{shown}:/mnt/shown", "--allow-host", "host.example", "-c", FINGERPRINT + CODE)
    with glovebox.popen("run", *words, env={"GLOVEBOX_LEAVE_OUT": row}, stdin=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        lines = [process.stdout.readline(), process.stdout.readline()]
        own_keys = keys().get(int(lines[1]), 0) if lines[1] else 0
        process.communicate("\n", timeout=60 * slowness())
    if not all(lines) or process.returncode != 0:
        return None
    # An ordinary user has keys of other boxes as well; a box of root is a user of its own.
    return {**json.loads(lines[0]), "keys": own_keys > 0 if glovebox.who == "root" else None}


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 24 and {"keyring", "landlock", "seccomp", "lock", "rlimits", "oom"} <= set(ROWS), ROWS
    assert len(FORK_ROWS) >= 11 and "joining a fresh keyring" in FORK_ROWS, FORK_ROWS


def test_a_box_without_any_row_is_missed(glovebox: Glovebox) -> None:
    program = leave_out(glovebox)
    whole = look(program, "")
    assert whole is not None and whole["keys"] is not False, whole
    unnoticed = [row for row in ROWS if look(program, row) == whole]
    only_root_sees = ["keyring"] if glovebox.who == "user" else []
    assert unnoticed == only_root_sees, "no test would fail without these rows of src/box/seal/stage.c"
    assert look(program, "") == whole


def look_at_kernel(daemon: Daemon, row: str) -> Seen | None:
    """What is seen of a kernel that was forked without this row; None when there is none."""
    name = re.sub(r"\W+", "-", row) or "whole"
    client = daemon.client()
    client.request("session.create", session=name, env={"GLOVEBOX_LEAVE_OUT": row})
    try:
        answer = client.execute(FINGERPRINT, name)
        if answer["status"] != "ok":
            return None
        agent, kernel = daemon.agent_of(name), daemon.kernel_of(name)
        uid = int(re.findall(r"^Uid:\t(\d+)", Path(f"/proc/{kernel}/status").read_text(), re.MULTILINE)[0])
        groups = [Path(f"/proc/{pid}/cgroup").read_text() for pid in (agent, kernel)]
        return {
            **json.loads(answer["stdout"]),
            "keys": keys().get(uid, 0),
            "in the groups of its agent": groups[0] == groups[1],
            "forked": client.execute("import os; os.getppid()", name)["result"],
        }
    except (DaemonError, AssertionError):  # gone, or in none of the groups that a kernel is looked for in
        return None
    finally:
        client.request("session.remove", session=name)


def test_a_forked_kernel_without_any_row_is_missed(root_glovebox: Glovebox) -> None:
    daemon = Daemon(leave_out(root_glovebox), env={"GLOVEBOX_KERNEL_DIR": str(REPOSITORY / "guest/kernel")})
    daemon.start()
    try:
        client = daemon.client()
        client.execute("pass")
        wait_for("the nursery to be ready", lambda: (client.request("status")["nursery"] or {}).get("state") == "ready")
        whole = look_at_kernel(daemon, "")
        unnoticed = [row for row in FORK_ROWS if look_at_kernel(daemon, row) == whole]
    finally:
        daemon.stop()
    assert whole is not None and whole["forked"] == {"text/plain": "0"} and whole["in the groups of its agent"], whole
    assert unnoticed == [], "no test would fail without these rows of guest/nursery/spawn.c"
