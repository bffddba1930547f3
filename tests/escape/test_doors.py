"""The attempts of test_escape.py behind the other doors: in kernels forked from a nursery and in kernels executed.

A forked kernel is sealed by code of its own (guest/nursery/spawn.c), so each attempt is made there again. Those of one
group are one test here: what they are stands in attempts/, and a failure names the ones that got out."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from escapes import harness
from escapes.kernels import NOT_FOR_KERNELS, WHICH_DOOR, KernelRunner, warm_daemon
from escapes.users import RootRunner
from escapes.world import World
from support.daemon import Daemon, process_state, wait_for
from support.daemons import StartDaemon, make_daemons
from support.glovebox import USER_ID

ATTEMPTS = {name: item for name, item in harness.attempts().items() if item.only in ("", "glovebox")}
FINGERPRINT = Path(__file__).resolve().parents[1] / "support/fingerprint.py"
ASKED = [name for name in ATTEMPTS if name not in NOT_FOR_KERNELS]
# What root of a box with users may do, as it concerns nothing but the box; or what has to be tried otherwise there.
ROOT_IS_ROOT = "it is root, with six capabilities in the namespace of the box"
OWN_LAYER = "/etc, /home, /run and the like are a private layer of the box"
NAMED = "in a directory that a caller named root makes no file: EOVERFLOW"
ON_DISK = "a session's own directory is on disk, and its limit is watched: test_disk.py"
OWN_TO_ROOT = {
    "mounts-find-the-host-s-file-systems-still-mounted": OWN_LAYER,
    "kernel-have-any-capability": ROOT_IS_ROOT,
    "kernel-become-root-with-setuid": ROOT_IS_ROOT,
    "kernel-be-root": ROOT_IS_ROOT,
    "processes-run-a-program-from-memory-with-more-rights": ROOT_IS_ROOT,
    "files-give-a-file-to-root": ROOT_IS_ROOT,
    "files-create-a-file-in-each-read-only-place": OWN_LAYER,
    "files-write-to-a-file-of-the-image": OWN_LAYER,
    "files-write-to-a-file-of-the-image-by-its-descriptor": OWN_LAYER,
    "files-write-to-a-file-of-the-image-through-another-root-link": OWN_LAYER,
    "files-make-a-nameless-file-in-the-image-and-link-it": OWN_LAYER,
    "files-change-the-mode-time-or-attributes-of-the-image": OWN_LAYER,
    "files-map-a-file-of-the-image-shared-and-writable": OWN_LAYER,
    "files-read-the-shadow-file": OWN_LAYER,
    "files-leave-a-set-user-id-program-in-the-workspace": NAMED,
    "files-swap-the-artifacts-directory-for-a-link": NAMED,
    "resources-fill-the-workspace-with-many-files": ON_DISK,
    "resources-find-a-writable-place-without-bounds": ON_DISK,
}
FOR_ROOT = [name for name in ASKED if name not in OWN_TO_ROOT]


@dataclass
class House:
    """A daemon, and the world that it stands in."""

    daemon: Daemon
    world: World


@pytest.fixture(scope="module", params=["root", "user"])
def house(request: pytest.FixtureRequest, binary: Path) -> Iterator[House]:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("needs root: run the tests with sudo")
    # The world is older than the daemon and outlives it, so that it is not taken for something that was left.
    world = World(USER_ID if request.param == "user" and os.geteuid() == 0 else os.geteuid())
    try:
        canary = world.process.pid if world.process else 0
        wait_for("the canary to be at rest", lambda: process_state(canary) == "S")  # it is known by its state, too
        for make in make_daemons(binary):
            daemon = make(who=request.param, start=False)
            warm_daemon(daemon, world)
            yield House(daemon, world)
    finally:
        world.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", harness.bundle.load().GROUPS)
@pytest.mark.parametrize("mode", ["fast", "fresh"])
def test_kernel_holds(house: House, mode: str, group: str) -> None:
    if mode == "fresh" and house.daemon.glovebox.who == "user":
        pytest.skip("optional: sealed by the code of `run`, which test_escape.py tries as a user")
    verdicts = harness.run_group(KernelRunner(house.daemon, mode), house.world, group, ASKED)
    assert set(verdicts) == {name for name in ASKED if ATTEMPTS[name].group == group}
    wrong = [f"{name}: {verdict}: {why}" for name, (verdict, why) in verdicts.items() if verdict != "BLOCKED"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", harness.bundle.load().GROUPS)
def test_root_of_a_box_with_users_holds(house: House, group: str) -> None:
    """All attempts again, by root of a box with users, who has six capabilities there."""
    if house.daemon.glovebox.who == "user":
        pytest.skip("optional: only a daemon of root gives a sandbox users")
    verdicts = harness.run_group(RootRunner(house.daemon), house.world, group, FOR_ROOT)
    assert set(verdicts) == {name for name in FOR_ROOT if ATTEMPTS[name].group == group}
    wrong = [f"{name}: {verdict}: {why}" for name, (verdict, why) in verdicts.items() if verdict != "BLOCKED"]
    assert not wrong, "\n".join(wrong)


@contextlib.contextmanager
def session(house: House, name: str, mode: str, **options: Any) -> Iterator[Callable[[str], str]]:
    """Gives a function that executes code in a session of its own and returns what it printed."""

    def execute(code: str) -> str:
        answer = client.execute(code, name)
        assert answer["status"] == "ok", answer
        return str(answer["stdout"])

    with house.daemon._connect() as client:
        client.request("session.create", session=name, mode=mode, **options)
        try:
            yield execute
        finally:
            client.request("session.remove", session=name)


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"/a/b": 1}."""
    if not isinstance(value, dict):
        return {name: value}
    return {key: item for part in value for key, item in flat(value[part], f"{name}/{part}").items()}


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (one.get(name), other.get(name)) for name in {*one, *other} if one.get(name) != other.get(name)}


# Where a forked kernel may differ from an executed one: its parent is outside, the nursery's filter is below its own.
OF_A_FORK = {"/ids", "/status/Seccomp_filters"}
# Where a kernel may differ from a run: channel and copies of 1 and 2, own files, thresholds of trimming, a watchdog.
OF_A_KERNEL = {"/descriptors", "/mounts", "/places//", "/environment", "/timers"}


def test_every_door_leads_into_the_same_box(house: House) -> None:
    """What a kernel sees of its own sealing is what a run sees, but for the differences listed above."""
    place = house.daemon.glovebox.place
    code = FINGERPRINT.read_text()
    run = house.daemon.glovebox("run", place.write("fingerprint.py", code))
    assert run.returncode == 0, run.stderr
    seen = {"run": flat(json.loads(run.stdout))}
    for mode in ("fast", "fresh"):
        with session(house, f"fingerprint-{mode}", mode) as execute:
            seen[mode] = flat(json.loads(execute(code)))
    assert set(differences(seen["fresh"], seen["run"])) <= OF_A_KERNEL
    assert set(differences(seen["fast"], seen["fresh"])) <= OF_A_FORK
    fast = seen["fast"]
    assert fast["/descriptors"] == [0, 1, 2, 3, 4, 5, 6]
    assert fast["/status/Seccomp_filters"] in ([], ["2"])
    assert fast["/ids"][:3] == [2, 0, 2]
    assert set(fast["/environment"]) - set(seen["run"]["/environment"]) <= {"DF_BYTES", "NP_BYTES"}
    assert set(fast["/places//"]) - set(seen["run"]["/places//"]) <= {"opt"}
    points = {mount[0] for mount in fast["/mounts"]} - {mount[0] for mount in seen["run"]["/mounts"]}
    assert points <= {"/opt/glovebox/kernel", "/opt/glovebox/packages", "/run/session"}
    # Equal is not enough where all could be wrong together.
    assert bytes.fromhex(fast["/priority"][2]) == b"500\n"
    assert fast["/status/SigIgn"] == ["0000000001001000"]  # SIGPIPE and SIGXFSZ, by Python itself
    assert fast["/status/SigBlk"] == ["0000000000000000"] and fast["/status/Threads"] == ["1"]
    assert fast["/status/Umask"] == ["0022"] and fast["/here"][:2] == ["/workspace", "/"]


def test_a_forked_kernel_is_where_its_agent_is(house: House) -> None:
    """Namespaces and control groups, as the host sees them."""
    with session(house, "place", "fast") as execute:
        assert json.loads(execute(WHICH_DOOR)) == {"forked": True}
        agent, kernel = house.daemon.agent_of("place"), house.daemon.kernel_of("place")
        names = sorted(os.listdir(f"/proc/{agent}/ns"))
        where = {pid: {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in names} for pid in (agent, kernel)}
        groups = {pid: Path(f"/proc/{pid}/cgroup").read_text() for pid in (agent, kernel)}
        assert len(names) >= 8 and where[kernel] == where[agent]
        ours = {name for name in names if os.readlink(f"/proc/self/ns/{name}") == where[kernel][name]}
        assert ours <= {"time", "time_for_children"}
        assert groups[kernel] == groups[agent]
        mine = [line for line in groups[kernel].splitlines() if house.daemon.glovebox.groups.name in line]
        # On a host that has v1 as well, a daemon's boxes are in the v1 hierarchies alone: memory, pids, cpu, cpuacct.
        groups_of_tests = house.daemon.glovebox.groups
        v1 = {path for path in groups_of_tests.directories if path.parent != groups_of_tests.v2}
        assert len(mine) >= (len(v1) or 1)


def memory_of_process(pid: int) -> bytes:
    """Everything that it can write, joined: where a secret could have been copied to."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            region, rights = line.split()[:2]
            start, end = (int(number, 16) for number in region.split("-"))
            if rights.startswith("rw"):
                memory.seek(start)
                found.append(memory.read(end - start))
    return b"\0".join(found)


MAPPED = """
lines = [line.split(None, 5) for line in open("/proc/self/maps")]
print({(fields[1], fields[5].strip()) for fields in lines if len(fields) == 6})
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="optional: reading another process's memory needs root")
def test_a_forked_kernel_inherits_no_secret(house: House) -> None:
    """Neither the daemon's environment, nor that of the session forked before it."""
    own, other = f"own-{secrets.token_hex(8)}", f"other-{secrets.token_hex(8)}"
    padding = "x" * 4096  # what comes after it is not covered by the next, shorter environment
    with session(house, "before", "fast", env={"PADDING": padding, "SECRET": other}) as execute:
        execute("pass")
    with session(house, "after", "fast", env={"SECRET": own}) as execute:
        mapped = ast.literal_eval(execute(MAPPED))
        kernel = house.daemon.kernel_of("after")
        memory = memory_of_process(kernel)
        for file in ("environ", "cmdline", "auxv", "comm"):
            memory += Path(f"/proc/{kernel}/{file}").read_bytes()
    assert own.encode() in memory, "the search finds nothing"
    for secret in (other, house.world.secret, house.world.token, str(house.daemon.data)):
        assert secret.encode() not in memory, secret
    known = ("/usr/", "/opt/glovebox/", "/memfd:spawn", "/memfd:snapshot", "[")
    assert all(path.startswith(known) for _, path in mapped), mapped
    shared = [(mode, path) for mode, path in mapped if mode[3] == "s"]
    assert not [one for one in shared if "w" in one[0] or "memfd" in one[1]], "whatever it writes is its own"


# What a run finds in its network namespace: its cookie, what was ever sent there, and names that are taken.
LOOK_AROUND = """
import json, os, socket
def counters(name):
    return open(f"/proc/self/net/{name}").read()
dev = [line.split()[1:] for line in counters("dev").splitlines() if line.strip().startswith("lo:")]
tcp = [line.split()[1:] for line in counters("snmp").splitlines() if line.startswith("Tcp:")]
tcp = dict(zip(*tcp))
names = [line.split()[-1] for line in counters("unix").splitlines()[1:]]
bound = []
for port in (8100,):
    with socket.socket() as one:
        one.bind(("127.0.0.1", port))
        bound.append(port)
labels = counters("ip6_flowlabel").splitlines()[1:]
with socket.socket() as one:  # SO_NETNS_COOKIE: no two namespaces ever have the same, unlike inode numbers
    cookie = one.getsockopt(socket.SOL_SOCKET, 71, 8).hex()
print(json.dumps([cookie, dev, tcp["ActiveOpens"], names, bound, labels]))
"""

# Traffic, a connection that is left to its TIME_WAIT, and a name that is bound when the process is killed.
LEAVE_TRACES = """
import os, signal, socket
named = socket.socket(socket.AF_UNIX)
named.bind("\\0traces")
named.listen()
door = socket.create_server(("127.0.0.1", 8100))
caller = socket.create_connection(("127.0.0.1", 8100))
called = door.accept()[0]
caller.send(b"x")
called.close()
os.kill(os.getpid(), signal.SIGKILL)
"""

# Nothing is sent, no socket is left; and the kernel keeps the label, with an address of the run's choice, for a minute.
LEAVE_LABEL = """
import os, signal, socket, struct
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
where = socket.inet_pton(socket.AF_INET6, "2001:db8::1234") + struct.pack("!I", 0x12345)
one.setsockopt(socket.IPPROTO_IPV6, 32, where + struct.pack("=BBHHHI", 0, 255, 1, 60, 60, 0))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("traces", [LEAVE_TRACES, LEAVE_LABEL], ids=["traffic", "label"])
@pytest.mark.parametrize("who", ["root", "user"])
def test_each_run_has_a_network_of_its_own(start_daemon: StartDaemon, who: str, traces: str) -> None:
    daemon = start_daemon("--pool", "0", "--preload", "", who=who)
    client = daemon.client()
    client.execute("1")
    wait_for("the nursery", lambda: client.request("status")["nursery"]["state"] == "ready")

    def look() -> list[Any]:
        seen: list[Any] = json.loads(client.execute(LOOK_AROUND)["stdout"])
        return seen

    runs = [look() for _ in range(6)]
    for _ in range(3):
        assert client.execute(traces)["status"] == "killed"
    runs += [look() for _ in range(12)]
    assert len({seen[0] for seen in runs}) == len(runs), "a network namespace was used twice"
    for seen in runs:
        assert seen[1:] == [[["0"] * 16], "0", [], [8100], []], seen


def walls(seen: dict[str, Any]) -> list[list[str]]:
    """All mounts; what is said of the file system only where it can be written to."""
    return [mount if "rw" in mount[1].split(",") else mount[:3] for mount in seen["/mounts"]]


STARTED = "print(open('/proc/self/stat').read().rpartition(')')[2].split()[19])"


# Where a module is preloaded there are light kernels, too. They are recognised by what their nursery was started with.
IS_LIGHT = "\nprint('light' in open('/proc/self/cmdline').read().split('\\0'))"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("preload", ["", "colorsys"], ids=["full", "light"])
def test_a_kernel_that_waited_in_the_pool_is_sealed_as_any(start_daemon: StartDaemon, preload: str) -> None:
    daemon = start_daemon("--pool", "1", "--preload", preload, who="user")
    client = daemon.client()

    def is_full() -> bool:
        pool = client.request("status")["pool"]
        return bool(pool["ready"] == 1 and pool["light_ready"] == pool["light_wanted"] == (1 if preload else 0))

    code = FINGERPRINT.read_text()
    made_for_it = flat(json.loads(client.execute(code, operator=True)["stdout"]))
    wait_for("the pool to be full", is_full)
    now = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    answer = client.execute(code + STARTED + IS_LIGHT, light=bool(preload))
    printed, started, is_light = answer["stdout"].splitlines()
    assert is_light == str(bool(preload))
    assert int(started) <= now, "the kernel did not wait in the pool"
    waited = flat(json.loads(printed))
    assert set(differences(waited, made_for_it)) - OF_A_FORK <= {"/mounts"}
    assert walls(waited) == walls(made_for_it)
    if not preload:
        return  # it did not wait for a nursery, and so has a box of its own from the ground up
    # What it shares with other boxes is read-only twice: the mounts, and the file systems that were made for them.
    shared = {mount[0]: mount[3] for mount in waited["/mounts"] if mount[0] in ("/", "/dev", "/proc/acpi")}
    assert {"/", "/dev"} <= set(shared) and set(shared.values()) == {"ro"}, shared


@pytest.mark.timeout(300)
def test_a_box_that_waited_in_the_pool_is_sealed_as_any_and_used_once(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--box-pool", "1", who="root")
    client = daemon.client()
    code = FINGERPRINT.read_text()

    def boxes() -> set[str]:
        return {path.name for path in daemon.glovebox.groups.boxes()}

    def waiting() -> set[str]:
        ready = (client.request("status")["nursery"] or {}).get("box_pool")
        return boxes() if ready == 1 == len(boxes()) else set()

    client.execute("1")
    wait_for("the nursery", lambda: client.request("status")["nursery"]["state"] == "ready")
    made_for_it = flat(json.loads(client.execute(code)["stdout"]))
    client.execute("1")  # the second of its kind in a row: from now on one is kept
    before = wait_for("a box in the pool and no other", waiting)
    taken = flat(json.loads(client.execute(code)["stdout"]))
    wait_for("its end", lambda: not boxes() & before)
    assert not set(differences(taken, made_for_it)) - OF_A_FORK


def test_every_attempt_left_out_exists_and_there_are_few() -> None:
    assert set(NOT_FOR_KERNELS) <= set(ATTEMPTS) and len(NOT_FOR_KERNELS) < 10
    assert set(OWN_TO_ROOT) <= set(ASKED) and len(OWN_TO_ROOT) < 20
