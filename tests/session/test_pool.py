"""Ephemeral runs: fast because a kernel waits, and alone all the same."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.client import OUT, Client, DaemonError
from support.daemon import Daemon, wait_for


@pytest.fixture(scope="module")
def daemon(pool_daemon: Daemon) -> Daemon:
    return pool_daemon


def ready(client: Client) -> int:
    return int(client.request("status")["pool"]["ready"])


def test_the_pool_is_filled_used_and_refilled(daemon: Daemon) -> None:
    client = daemon.client()
    wait_for("a full pool", lambda: ready(client) == 2)
    assert client.execute("6 * 7")["result"] == {"text/plain": "42"}
    wait_for("a full pool again", lambda: ready(client) == 2)


def test_ephemeral_runs_share_no_state_and_no_files(daemon: Daemon) -> None:
    client = daemon.client()
    places = "places = ('/workspace', '/tmp', __import__('os').environ['HOME'])\n"
    leave = places + "mark = [open(place + '/mark', 'w').close() for place in places]"
    look = places + "import os\n('mark' in globals(), [place for place in places if os.path.exists(place + '/mark')])"
    for _ in range(4):
        assert client.execute(leave)["status"] == "ok"
        assert client.execute(look)["result"] == {"text/plain": "(False, [])"}


def test_ephemeral_runs_make_no_files_and_use_their_journals_again(daemon: Daemon) -> None:
    client = daemon.client()
    before = set(os.listdir(daemon.data / "state"))
    for turn in range(12):
        assert client.execute(f"print('{turn:04}')")["stdout"] == f"{turn:04}\n"
        assert client.execute("1")["stdout"] == ""  # nothing of the one before
        assert set(os.listdir(daemon.data / "state")) <= before
        wait_for("their journals to be empty", lambda: set(daemon.nameless()) == {0})
    assert client.execute("print('x' * 1_000_000)")["status"] == "ok"  # its journal is too large to be used again
    # Three files for each kernel that is there, and eight journals at most that wait.
    wait_for("the others to be closed", lambda: 0 < len(daemon.nameless()) <= 3 * (len(daemon.kernels()) + 8))


def test_random_numbers_and_ids_do_not_repeat_between_kernels(daemon: Daemon) -> None:
    client = daemon.client()
    code = "import random, tempfile, uuid\n(random.random(), str(uuid.uuid4()), tempfile.mktemp())"
    seen = [client.execute(code)["result"]["text/plain"] for _ in range(4)]
    assert len(set(seen)) == 4, seen


def user_ids(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            found.add(int(next(line for line in lines if line.startswith("Uid:")).split()[1]))
        except OSError:
            continue
    return found


def test_each_run_is_another_user_of_the_host_and_ends_with_its_caller(daemon: Daemon) -> None:
    callers = [daemon.client() for _ in range(2)]
    for caller in callers:
        number = caller.begin(
            "execute",
            ephemeral=True,
            stream=True,
            cancel_on_disconnect=True,
            code="import time\nprint('on', flush=True)\ntime.sleep(3600)",
        )
        kind, payload = next(caller.output(number))
        assert (kind, payload[4:]) == (OUT, b"on\n")
    users = user_ids(daemon.kernels())
    assert len(users) >= 2 and os.getuid() not in users, users
    for caller in callers:
        caller.close()
    status = daemon.client()
    wait_for("only the pool to be left", lambda: len(daemon.kernels()) == 2 * ready(status) == 4)


def test_a_run_whose_caller_leaves_before_it_has_a_kernel_never_runs(daemon: Daemon) -> None:
    status = daemon.client()
    wait_for("a full pool", lambda: ready(status) == 2)
    outputs = set(os.listdir(daemon.data / "outputs"))
    code = "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/ran', 'w').close()"
    clients = status.request("status")["daemon"]["clients"]
    maker = daemon.maker()
    os.kill(maker, signal.SIGSTOP)
    try:
        caller = daemon.client()
        caller.begin("execute", ephemeral=True, cancel_on_disconnect=True, code=code, limits={"tmp": "20m"})
        caller.begin("ping")
        caller.finish()
        caller.close()
        wait_for("the daemon to notice", lambda: status.request("status")["daemon"]["clients"] == clients)
    finally:
        os.kill(maker, signal.SIGCONT)
    # Another run with a /tmp of its own is made after it: when that one is done, the first has had its chance.
    assert status.execute("1", limits={"tmp": "21m"})["status"] == "ok"
    wait_for("only the pool to be left", lambda: len(daemon.kernels()) == 2 * ready(status) == 4)
    assert set(os.listdir(daemon.data / "outputs")) == outputs


def test_artifacts_are_copied_to_outputs(daemon: Daemon) -> None:
    code = "import os\nos.makedirs('artifacts/deep', exist_ok=True)\nopen('artifacts/deep/a.csv', 'w').write('1,2')"
    done = daemon.client().execute(code)
    expected = daemon.data / "outputs" / done["run_id"] / "deep/a.csv"
    assert done["artifacts"] == [
        {"path": "/workspace/artifacts/deep/a.csv", "host_path": str(expected), "size": 3, "mime": "text/csv"}
    ], done
    assert expected.read_text() == "1,2"


def test_nothing_of_the_daemon_is_inside(daemon: Daemon) -> None:
    code = """
import os
print(os.environ)
for fd in range(64):
    try: print(os.readlink(f'/proc/self/fd/{fd}'))
    except OSError: pass
"""
    printed = daemon.client().execute(code)["stdout"]
    assert "sesame" not in printed and str(daemon.data) not in printed, printed
    assert "glovebox-test" not in printed


def test_a_run_with_limits_of_its_own_or_in_fresh_mode_works(daemon: Daemon) -> None:
    client = daemon.client()
    assert client.execute("1", limits={"pids": 16, "memory_bytes": 128 << 20})["result"] == {"text/plain": "1"}
    assert client.execute("1", mode="fresh")["result"] == {"text/plain": "1"}


AGE = """
import os, time
with open("/proc/self/stat") as file:
    started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
print(round(time.clock_gettime(time.CLOCK_BOOTTIME) - started, 2))
"""


@pytest.mark.parametrize(
    ("options", "is_ready"),
    [
        ({}, True),
        ({"env": {"COLOUR": "teal"}}, True),
        ({"limits": {"memory": "300m", "pids": 30}}, True),
        ({"workspace": True}, True),
        ({"data": True}, True),
        ({"env": {"COLOUR": "teal"}, "workspace": True, "limits": {"memory": "300m"}}, True),
        ({"mounts": True}, False),
        ({"limits": {"tmp": "20m"}}, False),
    ],
    ids=str,
)
def test_options_that_a_pooled_kernel_can_take_on(daemon: Daemon, options: dict[str, Any], is_ready: bool) -> None:
    client = daemon.client()
    wait_for("the nursery", lambda: client.request("status")["nursery"]["state"] == "ready")
    for _ in range(2):  # kernels that were made before there was a nursery
        client.execute("1")
        wait_for("a full pool", lambda: ready(client) == 2)
    time.sleep(0.5)
    shown = daemon.glovebox.place.path / "shown"
    if not shown.exists():
        daemon.glovebox.place.make("shown")
    (shown / "here.txt").write_text("seen")
    fields: dict[str, Any] = {**options, "operator": True}
    for name, path in (("workspace", "/workspace"), ("data", "/data"), ("mounts", "/mnt/x")):
        if name in options:
            fields[name] = str(shown)
            code = f"print(open('{path}/here.txt').read(), end=' ')"
            break
    else:
        code = "print('seen', end=' ')"
    if "mounts" in options:
        fields["mounts"] = [{"source": str(shown), "destination": "/mnt/x"}]
    variables = "import os\nprint(os.environ.get('COLOUR'), end=' ')\n"
    done = client.execute(variables + code + AGE, **fields)
    assert done["status"] == "ok", done
    colour, seen, age_s = done["stdout"].split()
    assert (colour, seen) == (options.get("env", {}).get("COLOUR", "None"), "seen")
    assert (float(age_s) >= 0.4) == is_ready, age_s


def test_variables_of_an_ephemeral_run_are_checked(daemon: Daemon) -> None:
    for env in ({"a=b": "c"}, {"a": 1}, []):
        with pytest.raises(DaemonError, match="env"):
            daemon.client().execute("1", env=env)


def test_many_at_once_all_come_out_right(daemon: Daemon) -> None:
    callers = [daemon.client() for _ in range(8)]
    numbers = [caller.begin("execute", ephemeral=True, code=f"print({i} ** 2)") for i, caller in enumerate(callers)]
    outputs = [caller.finish(number)["stdout"] for caller, number in zip(callers, numbers)]
    assert outputs == [f"{i**2}\n" for i in range(8)]


def test_the_command_line_uses_the_pool_and_prints_the_same(daemon: Daemon) -> None:
    done = daemon.cli("run", "-c", "print(6 * 7)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
    done = daemon.cli("run", "--timeout", "500ms", "-c", "while True: pass")
    assert done.returncode == 124, done.stderr
