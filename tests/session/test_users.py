"""Sandboxes with users: root and others in the box, ids without rights on the host."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon

USERS_FIRST, USERS_END = 0x71000000, 0x79000000
DISK_FIRST = 0x7A000000
SIX = 0xEB  # CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run the tests with sudo")


class Box:
    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name

    def run(self, command: str | list[str], user: str | None = None, **fields: Any) -> dict[str, Any]:
        words = {"shell": command} if isinstance(command, str) else {"argv": command}
        who = {} if user is None else {"user": user}
        return self.client.request("command", session=self.name, **words, **who, **fields)

    def said(self, command: str | list[str], user: str | None = None, **fields: Any) -> str:
        answer = self.run(command, user, **fields)
        assert answer["status"] == "ok", answer
        return str(answer["stdout"])

    def root(self, code: str) -> Any:
        """What Python code says as root, as JSON."""
        return json.loads(self.said(["python3", "-c", code], "root"))


@pytest.fixture
def box(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Box]:
    client = daemon.client()
    name = f"users-{abs(hash(request.node.name))}"
    client.request("session.create", session=name, users=True)
    yield Box(client, name)
    client.request("session.remove", session=name)


def status_of(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def test_commands_run_as_the_user_that_they_name(box: Box) -> None:
    assert box.said("id -u; id -g; whoami; echo $HOME $USER; pwd", "root") == "0\n0\nroot\n/root root\n/workspace\n"
    box.said(["useradd", "-m", "-G", "users", "eve"], "root")
    assert box.said("id -un; id -Gn; echo $HOME; touch ~/f", "eve") == "eve\nusers\n/home/eve\n"
    uid = box.said("id -u", "eve").strip()
    assert box.said("id -un", uid) == "eve\n", "by number, too"
    assert box.said("id -un", "sandbox") == box.said("id -un") == "sandbox\n"
    missing = box.run("true", "nonexistent")
    assert missing["exit_code"] == 126 and 'no user "nonexistent"' in missing["stderr"]
    assert box.run(["/no/such/program"], "root")["exit_code"] == 127


def test_code_and_its_commands_have_no_capability_and_are_the_sandbox_user(daemon: Daemon, box: Box) -> None:
    lines = box.client.execute("import json; json.dumps(open('/proc/self/status').read())", box.name)
    said = eval(json.loads(json.dumps(lines["result"]["text/plain"])))
    seen = dict(line.split(":\t", 1) for line in json.loads(said).splitlines() if ":\t" in line)
    assert seen["Uid"].split() == ["1000"] * 4 and seen["Groups"].split() == []
    assert [int(seen[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0, 0, 0, 0]
    assert seen["NoNewPrivs"] == "1" and seen["Seccomp"] == "2"
    # The agent has them, and uses none until it becomes somebody.
    agent = status_of(daemon.agent_of(box.name))
    assert int(agent["CapPrm"], 16) == SIX and int(agent["CapEff"], 16) == 0 and int(agent["CapBnd"], 16) == SIX


def test_root_has_six_capabilities_and_no_way_to_more(box: Box) -> None:
    code = "import json; print(json.dumps(dict(l.split(':\\t', 1) for l in open('/proc/self/status') if ':\\t' in l)))"
    seen = {name: value.strip() for name, value in box.root(code).items()}
    assert [int(seen[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")] == [0, SIX, SIX, SIX, 0]
    assert seen["NoNewPrivs"] == "1" and seen["Seccomp"] == "2"


def test_ids_of_a_box_are_unused_on_the_host_and_in_other_boxes(daemon: Daemon, box: Box) -> None:
    client = daemon.client()
    client.request("session.create", session="other-users", users=True)
    client.execute("1", "other-users")
    box.said("true", "root")
    try:
        ranges = []
        for name in (box.name, "other-users"):
            agent = daemon.agent_of(name)
            inside, outside, count = map(int, Path(f"/proc/{agent}/uid_map").read_text().split())
            assert (inside, count) == (0, 65536) and Path(f"/proc/{agent}/gid_map").read_text().split()[2] == "65536"
            uid = int(status_of(agent)["Uid"].split()[0])
            assert USERS_FIRST <= uid < USERS_END and uid % 65536 == 0 and outside == uid
            assert client.request("session.show", session=name)["isolation"]["uid_map"] == f"0 {uid} 65536"
            ranges.append(uid)
        assert ranges[0] != ranges[1]
    finally:
        client.request("session.remove", session="other-users")


def test_a_box_without_users_has_one_user_and_nothing_more_to_write(daemon: Daemon) -> None:
    client = daemon.client()
    client.request("session.create", session="plain")
    code = (
        "import json, os\n"
        "places = ('/', '/etc', '/home', '/root', '/run', '/var', '/srv', '/mnt', '/media')\n"
        "status = dict(l.split(':\\t', 1) for l in open('/proc/self/status') if ':\\t' in l)\n"
        "print(json.dumps([open('/proc/self/uid_map').read().split(), status['CapBnd'], status['CapPrm'],\n"
        "    [p for p in places if os.access(p, os.W_OK)], os.path.exists('/etc/shadow'),\n"
        "    [l.split()[5] for l in open('/proc/self/mountinfo') if l.split()[4] == '/'],\n"
        "    [p for p in places[1:] if any(l.split()[4] == p for l in open('/proc/self/mountinfo'))]]))"
    )
    seen = json.loads(client.execute(code, "plain")["stdout"])
    assert seen[0] == ["1000", "1000", "1"] and int(seen[1], 16) == int(seen[2], 16) == 0
    assert seen[3:5] == [[], False] and seen[5][0].startswith("ro") and seen[6] == []
    isolation = client.request("session.show", session="plain")["isolation"]
    assert isolation["users"] is False and isolation["capabilities"] == []
    with pytest.raises(DaemonError, match="users"):
        client.request("command", session="plain", shell="id", user="root")
    assert client.request("command", session="plain", shell="id -u", user="sandbox")["stdout"] == "1000\n"
    agent = daemon.agent_of("plain")
    assert int(status_of(agent)["CapPrm"], 16) == 0
    client.request("session.remove", session="plain")


# By root of a box. Each prints a line only if it succeeded, and an error is "blocked".
FORBIDDEN = """
import ctypes, fcntl, json, os, resource, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def check(code):
    if code < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def mount(): check(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None))
def remount(): check(libc.mount(b"none", b"/usr", None, 32 | 4096, None))
def unmount(): check(libc.umount2(b"/proc/kcore", 2))
def unshare_user(): check(libc.unshare(0x10000000))
def unshare_mounts(): check(libc.unshare(0x20000))
def device(): os.mknod("/root/disk", 0o60666, os.makedev(8, 0))
def whiteout(): os.mknod("/root/whiteout", 0o20666, 0)
def module(): check(libc.syscall(175, b"", 0, b""))
def chroot(): os.chroot("/root")
def set_user_id():
    open("/workspace/suid", "w").close(); os.chmod("/workspace/suid", 0o4755)
def set_group_id_dir(): os.mkdir("/workspace/sgid"); os.chmod("/workspace/sgid", 0o2755)
def created_set_user_id(): os.open("/workspace/suid2", os.O_CREAT | os.O_WRONLY, 0o4755)
def file_capability():
    open("/workspace/cap", "w").close()
    os.setxattr("/workspace/cap", "security.capability", struct.pack("<IIIII", 0x2000001, 0xffffffff, 0, 0, 0))
def raise_limit(): resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))
def raise_core(): resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
def lower_nice(): os.setpriority(os.PRIO_PROCESS, 0, -5)
def oom(): open("/proc/self/oom_score_adj", "w").write("-1000")
def sysctl(): open("/proc/sys/kernel/hostname", "w").write("x")
def namespaces(): open("/proc/sys/user/max_user_namespaces", "w").write("100")
def trace(): check(libc.ptrace(16, 1, 0, 0))
def agent_memory(): open("/proc/1/mem", "rb")
def agent_maps(): open("/proc/1/uid_map", "w").write("0 0 65536")
def kill_agent():
    os.kill(1, signal.SIGKILL); os.kill(1, signal.SIGTERM); os.kill(1, 0); raise OSError("it lives")
def raw_socket(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
def packet_socket(): socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
def interface():
    with socket.socket() as s: fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0))
def host_name(): socket.sethostname("x")
def image(): open("/usr/bin/new", "w")
def image_owner(): os.chown("/usr/bin/env", 0, 0)
def far_id(): os.chown("/root", 70000, 0)
def far_user(): os.setuid(70000)
def to_root_of_box(): open("/new", "w")
def securebits(): check(libc.prctl(28, 0, 0, 0, 0))
def keep_capabilities(): check(libc.prctl(8, 1, 0, 0, 0))
def other_capability(): check(libc.prctl(47, 2, 21, 0, 0))
def immutable():
    with open("/workspace/flags", "w") as f: fcntl.ioctl(f, 0x40086602, struct.pack("l", 0x10))
def project():
    with open("/workspace/project", "w") as f: fcntl.ioctl(f, 0x401c5820, struct.pack("IIIII8x", 0, 0, 0, 77, 0))
def by_handle(): check(libc.syscall(304, 3, b"x" * 16, 0))
def keys(): check(libc.syscall(250, 0, -3, 0))
out = []
for name, attempt in list(globals().items()):
    if callable(attempt) and getattr(attempt, "__module__", "") == "__main__" and name != "check":
        try:
            attempt(); out.append(name)
        except (OSError, ValueError, PermissionError): pass
print(json.dumps(out))
"""


def test_root_of_a_box_cannot_change_its_walls(box: Box) -> None:
    assert box.root(FORBIDDEN) == []
    assert box.said("id -u", "root") == "0\n", "and the box lives"


def test_code_cannot_become_another_user(box: Box) -> None:
    """Neither by itself, nor by the channel over which the kernel has commands started."""
    box.said("echo secret > /root/secret; chmod 700 /etc/shadow", "root")
    code = """
import array, os, socket, subprocess
from glovebox_kernel import user_process
def ask(text):
    r, w = os.pipe()
    channel = user_process._channel
    channel.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [r, w, w]))])
    os.close(w)
    return channel.recv(400).split(b" ")[0].decode()
def fails(action):
    try: action()
    except OSError: return True
    return False
words = [ask(b"start " + b"0" * 32), ask(b"start "), ask(b"start " + last)]
print(words, fails(lambda: os.setuid(0)), fails(lambda: open("/etc/passwd", "a")), fails(lambda: open("/root/secret")),
      subprocess.run(["su", "-c", "id -u", "root"], capture_output=True, stdin=subprocess.DEVNULL).stdout,
      os.access("/root", os.R_OK), fails(lambda: os.kill(1, 9)))
"""
    run = box.run("true", "root")["run_id"]
    answer = box.client.execute(f"last = {run.encode()!r}\n{code}", box.name)
    assert answer["stdout"] == "['failed', 'failed', 'failed'] True True True b'' False True\n", answer
    assert box.said("echo still there", "root") == "still there\n"


def test_the_environment_of_the_kernel_does_not_reach_a_command_of_root(box: Box) -> None:
    box.client.execute("import os; os.environ.update(LD_PRELOAD='/workspace/x.so', BASH_ENV='/workspace/x', PATH='/x')",
                       box.name)  # fmt: skip
    said = box.said("echo $LD_PRELOAD,$BASH_ENV,$PATH,$GIVEN", "root", env={"GIVEN": "by the caller"})
    assert said.startswith(",,/") and said.endswith(",by the caller\n") and "/x" not in said.split(":")


def test_files_of_users_belong_on_disk_to_unused_ids(daemon: Daemon, box: Box) -> None:
    box.said(["useradd", "-m", "eve"], "root")
    box.said("mkdir -m 700 rooms; echo x > rooms/mine; mkdir -m 777 open", "root")
    box.said("echo x > open/hers; mkdir open/deep; echo y > open/deep/y", "eve")
    box.client.execute("open('own', 'w').close()", box.name)
    workspace = Path(box.client.request("session.show", session=box.name)["workspace"])
    owners = {name: (workspace / name).stat().st_uid for name in ("rooms/mine", "open/hers", "own")}
    eve = int(box.said("id -u", "eve"))
    assert owners == {"rooms/mine": DISK_FIRST, "open/hers": DISK_FIRST + eve, "own": workspace.stat().st_uid}
    for path in workspace.rglob("*"):
        assert not path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID), path
    assert box.client.read_file(box.name, "rooms/mine") == b"x\n", "the caller reads what root made"
    box.client.request("session.restart", session=box.name)
    assert box.said("stat -c %u rooms/mine open/hers own", "root") == f"0\n{eve}\n1000\n", "another box, the same ids"
    assert box.run("true", "eve")["exit_code"] == 126, "users are the box's, not the session's"
    box.client.request("session.create", session="goes", users=True)
    goes = Box(box.client, "goes")
    goes.said("mkdir -m 700 a; mkdir -m 0 a/b; touch a/c; chmod 0 a/c; chown 77:88 a", "root")
    place = Path(box.client.request("session.show", session="goes")["workspace"])
    box.client.request("session.remove", session="goes")
    wait_for("its files to be gone", lambda: not place.exists())


def test_users_share_what_linux_counts_for_a_user(box: Box) -> None:
    """A signal that is queued counts for its user: root could be sixty thousand of them."""
    code = """
import ctypes, json, os, signal, time
libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
total = 0
for uid in range(2000, 2003):
    r, w = os.pipe()
    if os.fork() == 0:
        os.setresuid(uid, uid, uid)
        n = 0
        while n < 3000 and libc.sigqueue(os.getpid(), 40, 0) == 0: n += 1
        os.write(w, str(n).encode()); time.sleep(5); os._exit(0)
    total += int(os.read(r, 20))
print(json.dumps(total))
"""
    assert 500 < box.root(code) <= 1100


def test_a_command_of_a_user_ends_at_its_time_limit_and_takes_input(box: Box) -> None:
    box.said(["useradd", "-m", "eve"], "root")
    box.client.execute("x = 7", box.name)
    answer = box.run("trap '' INT; sleep 60", "eve", timeout_ms=500)
    assert answer["status"] == "timeout" and "variables are kept" in answer["error"]["message"], answer
    assert box.client.execute("x", box.name)["result"]["text/plain"] == "7"
    box.client.execute("open('/workspace/in', 'w').write('typed')", box.name)
    assert box.said("cat; whoami", "eve", stdin="/workspace/in") == "typedeve\n"


def test_a_sandbox_with_users_is_trimmed_and_not_put_to_sleep(box: Box) -> None:
    box.said(["useradd", "eve"], "root")
    with pytest.raises(DaemonError, match="has users"):
        box.client.request("session.hibernate", session=box.name)
    box.client.request("session.hibernate", session=box.name, depth="trim")
    assert box.said("id -un", "eve") == "eve\n"


def test_a_permit_outlives_the_daemon_that_gave_it(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--preload", "")
    client = daemon.client()
    client.request("session.create", session="s", users=True)
    run = client.request("command", session="s", shell="sleep 2; whoami", user="root", detach=True)["run_id"]
    wait_for("its start", lambda: client.request("session.show", session="s")["state"] == "running")
    daemon.kill()
    daemon.start()
    client = daemon.client()
    done = wait_for("its end", lambda: (a := client.request("run.show", session="s", run=run))["status"] == "ok" and a)
    assert done["stdout"] == "root\n"
    assert Box(client, "s").said("whoami", "root") == "root\n"


def test_a_host_that_cannot_have_users_reports_why(start_daemon: StartDaemon) -> None:
    client = start_daemon("--preload", "", who="user").client()
    with pytest.raises(DaemonError, match="run it as root") as refused:
        client.request("session.create", session="s", users=True)
    assert refused.value.code == "unsupported"
    client.request("session.create", session="s", users=False)
    assert client.execute("1 + 1", "s")["result"]["text/plain"] == "2"
