"""The user of the program in a box, what it can see, and that the isolation report is true."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
from pathlib import Path

import pytest
from support.cgroups import TestGroups
from support.glovebox import Glovebox, slowness
from support.host_count import count_host, left_behind

HOST_NAMESPACES = {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}


def status_of(glovebox: Glovebox) -> dict[str, str]:
    lines = glovebox("run", "--", "cat", "/proc/self/status").stdout.splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.vm
def test_no_capability_is_left_in_any_set(glovebox: Glovebox) -> None:
    status = status_of(glovebox)
    sets = {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert sets == {"0000000000000000"}, status


@pytest.mark.vm
def test_program_is_an_ordinary_user_without_new_privileges(glovebox: Glovebox) -> None:
    status = status_of(glovebox)
    assert status["Uid"].split() == ["1000"] * 4 and status["Gid"].split() == ["1000"] * 4
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    if glovebox.who == "root":
        assert status["Groups"] == "", "supplementary groups of root are given up"


@pytest.mark.vm
def test_every_namespace_is_the_boxs_own(glovebox: Glovebox) -> None:
    code = """if True:
        import json, os
        print(json.dumps({name: os.readlink("/proc/self/ns/" + name) for name in os.listdir("/proc/self/ns")}))
    """
    inside = json.loads(glovebox("run", "-c", code).stdout)
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert inside[name] != HOST_NAMESPACES[name], name


def test_boxes_at_the_same_time_have_users_of_their_own(root_glovebox: Glovebox) -> None:
    words = ["run", "--json", "-c", "input()"]
    processes = [root_glovebox.popen(*words, stdin=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        assert process.stdin
    results = [json.loads(process.communicate("\n", timeout=60 * slowness())[0]) for process in processes]
    uids = {int(result["isolation"]["uid_map"].split()[1]) for result in results}
    assert len(uids) == 3 and min(uids) >= 0x70000000


@pytest.mark.vm
def test_host_sees_the_program_as_the_mapped_user(glovebox: Glovebox) -> None:
    with glovebox.popen("run", "-c", "print('on'); input()", stdin=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        pids = glovebox.groups.processes()
        uids = {Path(f"/proc/{pid}").stat().st_uid for pid in pids if Path(f"/proc/{pid}/exe").exists()}
        status = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
        process.stdin.close()
        process.wait(60 * slowness())
    real = {int(line.split()[1]) for text in status for line in text.splitlines() if line.startswith("Uid:")}
    assert len(pids) >= 2, uids
    if glovebox.who == "user":
        assert real == {glovebox.place.uid}
    else:
        assert min(real) >= 0x70000000


@pytest.mark.vm
def test_agent_cannot_be_read_or_signalled(glovebox: Glovebox) -> None:
    code = """if True:
        import os
        for name in ("environ", "mem", "maps", "root", "cwd", "exe", "fd"):
            try:
                (os.listdir if name == "fd" else os.open)(f"/proc/1/{name}", *([os.O_RDONLY] * (name != "fd")))
                print(name, "opened")
            except OSError:
                pass
        for number in range(1, 65):
            try:
                os.kill(1, number)
            except OSError:
                pass
        print("alive")
    """
    done = glovebox("run", "-c", code)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done


@pytest.mark.vm
def test_no_process_of_the_host_is_visible(glovebox: Glovebox) -> None:
    code = "import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit()), os.getppid())"
    pids, parent = glovebox("run", "-c", code).stdout.rsplit(" ", 1)
    assert json.loads(pids) in ([2], [1, 2]) and parent == "1\n", "the agent itself is hidden by hidepid"


def test_no_descriptor_of_the_caller_gets_in(glovebox: Glovebox) -> None:
    secret = os.open("/", os.O_RDONLY)
    os.set_inheritable(secret, True)
    code = """if True:
        import os
        for fd in range(256):
            try:
                os.fstat(fd)
                print(fd, end=" ")
            except OSError:
                pass
    """
    try:
        with glovebox.popen("run", "-c", code, pass_fds=(secret,)) as process:
            assert process.stdout and process.stdout.read() == "0 1 2 "
    finally:
        os.close(secret)


def test_no_variable_of_the_caller_gets_in(glovebox: Glovebox) -> None:
    code = "import os; print(sorted(os.environ)); print(open('/proc/self/environ').read())"
    done = glovebox("run", "-c", code, env={"CANARY": "yellow-bird", "AWS_SECRET_ACCESS_KEY": "yellow-bird"})
    assert done.returncode == 0 and "yellow-bird" not in done.stdout and "CANARY" not in done.stdout


def test_no_terminal_of_the_caller_gets_in(glovebox: Glovebox) -> None:
    """glovebox has a controlling terminal; the program has none, and its streams are pipes."""
    ours, theirs = pty.openpty()
    code = """if True:
        import os
        print([os.isatty(fd) for fd in range(3)])
        try:
            os.open("/dev/tty", os.O_RDWR)
        except OSError as problem:
            print(problem.errno)
    """
    setsid = Glovebox(Path("/usr/bin/setsid"), glovebox.place, glovebox.groups)
    with setsid.popen("--ctty", "--wait", glovebox.binary, "run", "-c", code, stdin=theirs, stderr=theirs) as process:
        assert process.stdout
        said = process.stdout.read()
    os.close(ours)
    os.close(theirs)
    assert said == "[False, False, False]\n6\n"


@pytest.mark.vm
def test_nothing_reveals_which_host_it_is(glovebox: Glovebox) -> None:
    code = """if True:
        import json, os
        def read(path):
            try:
                return open(path).read()
            except OSError:
                return ""
        etc, proc = ["hostname", "machine-id"], ["sys/kernel/random/boot_id", "cmdline", "self/cgroup"]
        paths = ["/etc/" + name for name in etc] + ["/proc/" + name for name in proc]
        print(json.dumps([os.uname().nodename, *map(read, paths)]))
    """
    name, etc_name, machine, boot, cmdline, groups = json.loads(glovebox("run", "-c", code).stdout)
    assert (name, etc_name, machine.strip("0"), boot, cmdline) == ("sandbox", "sandbox\n", "\n", "", "")
    assert {line.split(":", 2)[2] for line in groups.splitlines()} == {"/"}, groups


def test_files_of_the_host_are_not_there(glovebox: Glovebox) -> None:
    """Not even those that all users may read."""
    visible = glovebox.place.write("everybody", "may read this", 0o644)
    done = glovebox(
        "run", "-l", "bash", "-c", f"cat {visible} /etc/shadow /etc/fstab; ls /root /var /srv; wc -l </etc/passwd"
    )
    assert done.stdout == "3\n" and done.stderr.count("No such file or directory") == 6, done


@pytest.mark.vm
def test_no_network_but_its_own_loopback(glovebox: Glovebox) -> None:
    name = f"\0glovebox-test-{os.getpid()}-{glovebox.who}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.create_server(("127.0.0.1", 0)) as server:
        abstract.bind(name)
        abstract.listen()
        code = f"""if True:
            import errno, socket
            def attempt(family, address):
                with socket.socket(family) as s:
                    s.settimeout(20)
                    return errno.errorcode.get(s.connect_ex(address), "connected")
            print(attempt(socket.AF_INET, ("127.0.0.1", {server.getsockname()[1]})))
            print(attempt(socket.AF_INET, ("192.0.2.1", 80)))
            print(attempt(socket.AF_INET, ("169.254.169.254", 80)))
            print(attempt(socket.AF_UNIX, {name!r}))
            print([name for _, name in socket.if_nameindex()])
            with socket.create_server(("127.0.0.1", 0)) as own:
                print(attempt(socket.AF_INET, own.getsockname()))
        """
        done = glovebox("run", "-c", code)
    outcomes = done.stdout.splitlines()
    assert outcomes[0] == "ECONNREFUSED" and outcomes[1:3] == ["ENETUNREACH"] * 2, done
    assert outcomes[3] in ("ECONNREFUSED", "EPERM") and outcomes[4:] == ["['lo']", "connected"], done


@pytest.mark.vm
def test_isolation_report_is_true(glovebox: Glovebox) -> None:
    code = "import json; print(json.dumps(open('/proc/self/status').read()))"
    result = glovebox.json("--memory", "100m", "--pids", "33", "-c", code)
    report = result["isolation"]
    assert (report["engine"], report["image"], report["network"]) == ("native", "host", "none")
    assert set(report["namespaces"]) == {"user", "mount", "pid", "network", "ipc", "uts", "cgroup"}
    assert (report["capabilities"], report["no_new_privs"], report["weaker"]) == ([], True, [])
    assert report["rootless"] == (glovebox.who == "user") and len(report["seccomp_sha256"]) == 64
    inside, outside, count = map(int, report["uid_map"].split())
    assert (inside, count) == (1000, 1) and (outside == glovebox.place.uid or glovebox.who == "root")
    assert (report["cgroup"]["memory_bytes"], report["cgroup"]["pids"]) == (100 << 20, 33)


class NoGroups(TestGroups):
    """No control group is delegated."""

    def enter(self) -> None:
        pass


@pytest.mark.vm
def test_user_without_control_groups_is_refused_or_gets_a_list_of_what_is_weaker(user_glovebox: Glovebox) -> None:
    bare = Glovebox(user_glovebox.binary, user_glovebox.place, NoGroups("glovebox-test-nobody-made-this"))
    before = count_host(bare)
    refused = bare("run", "-c", "print('ran')")
    assert (refused.returncode, refused.stdout) == (125, ""), refused
    assert "cannot enforce the limits of a box" in refused.stderr and "--allow-weaker" in refused.stderr
    code = "from resource import *; print(getrlimit(RLIMIT_AS)[1], getrlimit(RLIMIT_NPROC)[1])"
    result = bare.json("--allow-weaker", "--pids", "40", "-c", code)
    assert result["stdout"] == f"{4 << 30} 40\n", result
    report = result["isolation"]
    assert [text.split(":")[0] for text in report["weaker"]] == ["memory", "pids", "cpu"]
    assert report["cgroup"]["memory_bytes"] is None and report["cgroup"]["pids"] is None
    told = bare("run", "--allow-weaker", "--memory", "600m", "-c", "print(1)")
    assert told.stdout == "1\n" and "--memory 600 MiB is not kept" in told.stderr, told
    assert bare("run", "--allow-weaker", "-c", "print(1)").stderr == ""
    assert left_behind(bare, before) == {}
