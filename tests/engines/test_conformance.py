"""What every engine gives: the same tests, unchanged, over native and all the others."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from conftest import Bench
from support.client import Client, DaemonError
from support.daemon import wait_for
from support.daemons import make_daemons
from support.web import serve_web
from support.wheels import make_wheel


def value(client: Client, code: str, session: str, **fields: object) -> str:
    done = client.execute(code, session, **fields)
    assert done["status"] == "ok", done
    return done["result"]["text/plain"]


def test_variables_stay_from_run_to_run(client: Client) -> None:
    client.execute("x = 20", "vars")
    assert value(client, "x + 1", "vars") == "21"


def test_results_errors_and_both_streams_are_kept_apart(client: Client) -> None:
    done = client.execute("import sys; print('out'); print('err', file=sys.stderr); 1/0", "streams")
    assert (done["status"], done["stdout"], done["error"]["name"]) == ("error", "out\n", "ZeroDivisionError"), done
    assert "err\n" in done["stderr"]


def test_output_is_streamed_while_the_run_is_on(bench: Bench, client: Client) -> None:
    number = client.begin(
        "execute",
        session="stream",
        code="import time\nprint('first', flush=True)\nwhile True: time.sleep(0.01)",
        stream=True,
    )
    for _, piece in client.output(number):
        assert piece[4:] == b"first\n"
        break
    bench.client().request("session.interrupt", session="stream")


def test_an_interrupt_ends_the_run_and_keeps_the_variables(bench: Bench, client: Client) -> None:
    client.execute("kept = 5", "interrupt")
    number = client.begin("execute", session="interrupt", code="import time; time.sleep(3600)")
    wait_for("the run", lambda: bench.client().request("session.show", session="interrupt")["state"] == "running")
    bench.client().request("session.interrupt", session="interrupt")
    assert client.finish(number)["status"] == "interrupted"
    assert value(client, "kept", "interrupt") == "5"


def test_a_run_over_its_time_is_ended(client: Client) -> None:
    done = client.execute("while True: pass", "slow", timeout_ms=1000)
    assert (done["status"], done["timed_out"]) == ("timeout", True), done
    assert value(client, "1", "slow") == "1"


def test_too_much_memory_is_reported_as_such(bench: Bench, client: Client) -> None:
    limits = {"memory": "256m" if bench.is_gvisor else "128m"}
    client.request("session.create", session="memory", limits=limits)
    done = client.execute("x = bytearray(1 << 30); x[::4096] = b'1' * len(x[::4096])", "memory")
    # gVisor's own kernel may be what the host ends.
    assert done["status"] in (("oom", "error", "killed") if bench.is_gvisor else ("oom",)), done
    assert value(client, "2", "memory") == "2"


def test_a_kernel_that_ends_itself_is_replaced_and_the_loss_is_reported(client: Client) -> None:
    client.execute("x = 1", "dying")
    died = client.execute("import os; os._exit(3)", "dying")
    assert died["status"] in ("error", "killed") and "variables are lost" in str(died["error"]), died
    assert value(client, "'x' in globals()", "dying") == "False"


def test_files_named_as_modules_do_not_harm_a_kernel_that_starts(client: Client) -> None:
    """A kernel starts in the workspace; code there finds its own modules first, as in any Python."""
    client.request("session.create", session="shadow")
    for name in ("random", "typing", "json", "contextlib", "argparse"):
        client.write_file("shadow", f"{name}.py", b"1/0\n")
    client.write_file("shadow", "helper.py", b"x = 3\n")
    assert value(client, "import helper; helper.x", "shadow") == "3"
    client.execute("import os; os._exit(3)", "shadow")
    assert value(client, "import json; json.dumps([1])", "shadow") == "'[1]'"


def test_files_go_both_ways_and_stay_the_owners(bench: Bench, client: Client) -> None:
    client.request("session.create", session="files")
    client.write_file("files", "in/a.txt", b"from outside")
    assert value(client, "open('/workspace/in/a.txt').read()", "files") == "'from outside'"
    client.execute("open('b.txt', 'w').write('from inside'); import os; os.makedirs('d')", "files")
    assert client.read_file("files", "b.txt") == b"from inside"
    workspace = Path(bench.show("files")["workspace"])
    assert {path.stat().st_uid for path in workspace.rglob("*")} == {workspace.stat().st_uid}
    names = "[open(p + '/in/a.txt').read() for p in ('/workspace', '/session', '/sandbox', '/work')]"
    assert value(client, f"set({names})", "files") == "{'from outside'}"


def test_results_are_rich(client: Client) -> None:
    code = "class Table:\n    def _repr_html_(self): return '<b>1</b>'\ndisplay(Table()); display({'a': 1}); Table()"
    done = client.execute(code, "rich")
    assert done["result"]["text/html"] == "<b>1</b>" and "Table object" in done["result"]["text/plain"], done
    shown = done["displays"]
    assert [shown[0]["text/html"], shown[1]["text/plain"]] == ["<b>1</b>", "{'a': 1}"], done


def test_memory_and_time_of_a_run_are_in_its_result(client: Client) -> None:
    done = client.execute("x = b'1' * (64 << 20); sum(range(300000))", "usage")
    usage = done["usage"]
    assert 64 << 20 < usage["memory_peak_bytes"] < 512 << 20 and usage["cpu_ms"] > 0, usage
    assert done["duration_ms"] > 0, done


def test_artifacts_are_listed(client: Client) -> None:
    """The directory for them is there from the start."""
    code = "open('artifacts/r.csv', 'w').write('1')"
    done = client.execute(code, "art")
    assert [item["path"].rpartition("/")[2] for item in done["artifacts"]] == ["r.csv"], done


def test_commands_run(client: Client) -> None:
    done = client.request("command", session="command", argv=["sh", "-c", "echo $0 $1; exit 4", "a", "b"])
    assert (done["stdout"], done["exit_code"]) == ("a b\n", 4), done


def test_env_and_read_only_data(bench: Bench, client: Client, tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("1,2")
    if bench.is_instance:
        with pytest.raises(DaemonError, match="sees none of them"):
            client.request("session.create", session="data", data=str(tmp_path), operator=True)
        client.request("session.create", session="data", env={"COLOUR": "--privileged"})
        assert value(client, "import os; os.environ['COLOUR']", "data") == "'--privileged'"
        return
    client.request("session.create", session="data", env={"COLOUR": "--privileged"}, data=str(tmp_path), operator=True)
    assert value(client, "import os; os.environ['COLOUR'], open('/data/set.csv').read()", "data") == (
        "('--privileged', '1,2')"
    )
    done = client.execute("open('/data/x', 'w')", "data")
    assert done["error"]["name"] in ("OSError", "PermissionError"), done
    assert os.listdir(tmp_path) == ["set.csv"]


def test_an_environment_of_any_text_is_data(client: Client) -> None:
    env = {"OPTION": "--privileged", "PATHLIKE": "../../etc", "LINES": "a\nB=c\n\n", "QUOTES": "\"'`$(id)\\ {}%s"}
    env |= {"LONG": "x" * 4000, "EMPTY": "", "TWO\nLINES": "1", "-e": "2", "ACCENT": "é\u2028"}
    client.request("session.create", session="environment", env=env)
    told = value(
        client, f"import os; [os.environ[name] for name in {list(env)}] == {list(env.values())}", "environment"
    )
    assert told == "True"
    assert value(client, "'B' in os.environ", "environment") == "False"
    for wrong in ({"A=B": "1"}, {"": "1"}, {"A": "x" * 10_000}):
        with pytest.raises(DaemonError) as caught:
            client.request("session.create", session="wrong", env=wrong)
        assert caught.value.code == "usage"


def test_it_sleeps_and_wakes_with_its_variables(client: Client) -> None:
    client.execute("import math\nclass P:\n    x = 3\np = P(); big = list(range(10000))", "sleep")
    told = client.request("session.hibernate", session="sleep")
    assert told["state"] == "asleep", told
    assert value(client, "(p.x, sum(big), math.floor(2.5))", "sleep") == "(3, 49995000, 2)"


def test_it_outlives_a_killed_daemon_in_the_middle_of_a_run(bench: Bench, client: Client) -> None:
    client.execute("n = 7", "adopt")
    client.begin(
        "execute",
        session="adopt",
        code="import time, os\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('through', n)",
    )
    wait_for("the run", lambda: bench.client().request("session.show", session="adopt")["state"] == "running")
    bench.daemon.kill()
    again = bench.daemon.start().client()
    again.write_file("adopt", "go", b"")
    wait_for("the run to end", lambda: again.request("session.show", session="adopt")["state"] == "idle")
    run = again.request("session.log", session="adopt")["runs"][0]
    assert (run["status"], run["stdout_bytes"]) == ("ok", len("through 7\n")), run
    assert value(again, "n", "adopt") == "7"


def test_an_ephemeral_run_leaves_nothing(bench: Bench) -> None:
    client = bench.client()
    before = len(bench.engine.boxes()) if bench.engine else 0
    done = client.execute("open('x', 'w').write('1'); 40 + 2")
    assert done["result"] == {"text/plain": "42"}, done
    if bench.engine:
        engine = bench.engine
        wait_for("its box to go", lambda: len(engine.boxes()) <= before)


def test_a_removed_session_leaves_no_box(bench: Bench, client: Client) -> None:
    client.execute("1", "removed")
    pid = bench.show("removed")["pid"]
    assert pid > 0
    client.request("session.remove", session="removed")
    wait_for("its processes to go", lambda: not Path(f"/proc/{pid}").exists())


LOCKED = """
import ctypes, os, re
status = open('/proc/self/status').read()
field = lambda name: re.search(rf'^{name}:\\s*(\\S+)', status, re.M)[1]
libc = ctypes.CDLL(None, use_errno=True)
def refused(path):
    try:
        open(path, 'w').close()
    except OSError:
        return True
    return False
def mounts():
    return libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) != 0
(os.getuid(), {field(name) for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd')}, libc.prctl(39, 0, 0, 0, 0),
 libc.unshare(0x10000000), mounts(), refused('/usr/x'), refused('/x'), refused('/opt/glovebox/kernel/x'))
"""


def test_code_has_no_privilege_and_cannot_write_where_it_should_not(client: Client) -> None:
    told = value(client, LOCKED, "locked").replace("\n", "")
    assert told == "(1000, {'0000000000000000'}, 1, -1, True, True, True, True)", told


def test_processes_are_bounded(bench: Bench, client: Client) -> None:
    client.request("session.create", session="forks", limits={"pids": 20})
    code = """
import os, time
made = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            time.sleep(3600)
        made += 1
except OSError:
    pass
made < 400
"""
    done = client.execute(code, "forks")
    if bench.is_gvisor:  # its kernel ends when the host gives it no more threads: the box is over, and only the box
        assert done["status"] == "killed" or done["result"] == {"text/plain": "True"}, done
    else:
        assert done["result"] == {"text/plain": "True"}, done
    client.request("session.remove", session="forks")
    assert value(client, "1", "beside") == "1"


def test_packages_are_installed_into_the_session(bench: Bench, binary: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_wheel(tmp_path, "parcel", "1.0", {"parcel.py": "version = '1.0'\n"})
    env = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    for make in make_daemons(binary):
        client = bench.beside(make, tmp_path, env=env)
        client.execute("kept = 1", "packages")
        if bench.is_instance:
            with pytest.raises(DaemonError, match="no network device"):
                client.request("session.install", session="packages", packages=["parcel"])
            client.request("session.remove", session="packages")
            continue
        done = client.request("session.install", session="packages", packages=["parcel"])
        assert done["status"] == "ok", done
        assert value(client, "import parcel; (parcel.version, kept)", "packages") == "('1.0', 1)"


def test_there_is_no_network(client: Client) -> None:
    code = "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as e: print('no')"
    assert client.execute(code, "offline")["stdout"] == "no\n"


def test_a_list_of_hosts_is_reached_through_the_proxy(bench: Bench, binary: Path, tmp_path: Path) -> None:
    code = "import urllib.request, json\nprint(json.load(urllib.request.urlopen('{url}/seen'))['path'])"
    with serve_web() as web:
        for make in make_daemons(binary):
            client = bench.beside(make, tmp_path, *web.pin)
            fetch = code.format(url=web.url)
            fields = {"session": "online", "code": fetch, "network": {"allow": [web.rule]}}
            if bench.is_instance:
                with pytest.raises(DaemonError, match="without a network device"):
                    client.request("execute", **fields)
                continue
            done = client.request("execute", **fields)
            assert done["stdout"] == "/seen\n", done
            refused = client.execute("urllib.request.urlopen('http://other.example/')", "online")
            assert refused["status"] == "error", refused


def test_the_report_names_the_engine_and_what_it_gives(bench: Bench, client: Client) -> None:
    client.execute("1", "report")
    shown = client.request("session.show", session="report")
    report = shown["isolation"]
    assert report["engine"] == client.request("status")["engine"] == bench.engine_name
    assert report["isolation"] == bench.isolation
    assert report["capabilities"] == [] and report["no_new_privs"] is True
    sealed = value(client, "open('/proc/self/status').read().count('Seccomp:\\t2')", "report")
    assert bench.is_gvisor or sealed == "1"
    if bench.is_elsewhere:  # its processes are the other side's
        return
    # What is said about ids is what the host sees: the user of the box, as its first process has it.
    outside = Path(f"/proc/{bench.show('report')['pid']}").stat().st_uid
    if "user" in report["namespaces"]:
        assert report["uid_map"] == f"1000 {outside} 1" and outside > 1000 and report["weaker"] == []
    else:
        assert report["uid_map"] is None and "no user namespace" in report["weaker"][0]


def test_weaker_isolation_than_demanded_is_refused(bench: Bench, client: Client) -> None:
    if bench.isolation != "vm":
        with pytest.raises(DaemonError, match="no engine of this daemon has virtual machines") as caught:
            client.request("session.create", session="vm", isolation="vm")
        assert caught.value.code == "refused"
    if bench.kind == "native":
        with pytest.raises(DaemonError, match="gvisor"):
            client.request("session.create", session="gv", engine="native", isolation="gvisor")
    client.request("session.create", session="fine", isolation="container")


def test_a_warm_run_does_not_go_through_the_engine(bench: Bench, client: Client) -> None:
    """Nothing is started for a run, and no service stands between: hundreds of runs in a second, not ten."""
    client.execute("1", "warm")
    begun = time.monotonic()
    for _ in range(100):
        client.execute("1+1", "warm")
    assert time.monotonic() - begun < 5, "docker exec would take 9 s for as many"
