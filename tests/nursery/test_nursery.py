"""Kernels forked from the nursery: as sealed as any other, sharing nothing that they must not, and not needing it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.glovebox import REPOSITORY, Completed, Glovebox, slowness

# Imported by nurseries here and by nothing else: shows whether a kernel was forked.
MARK = "this"
IS_FORKED = f"import sys; print({MARK!r} in sys.modules)"


def good(done: Completed) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(what: str, happened: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds * slowness()
    while not (answer := happened()):
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.05)
    return answer


class Served:
    """A daemon without a pool, and its nursery."""

    def __init__(self, glovebox: Glovebox) -> None:
        self.glovebox = glovebox
        self.env: dict[str, str] = {}

    def start(self, preload: str = MARK, **env: str) -> Served:
        self.env = env
        good(self.glovebox("serve", "--background", "--pool", "0", "--preload", preload, env=env))
        return self

    def warm(self) -> Served:
        """The first kernel starts the nursery, and may itself be cold."""
        self.execute("first", "pass")
        wait_for("the nursery is ready", lambda: self.nursery().get("state") == "ready")
        return self

    def execute(self, session: str, code: str, *options: str) -> str:
        return good(self.try_execute(session, code, *options))

    def try_execute(self, session: str, code: str, *options: str) -> Completed:
        return self.glovebox("exec", *options, session, "-c", code)

    def log(self) -> str:
        """Why something was not as it should be."""
        return (self.glovebox.place.data / "daemon.log").read_text()

    def status(self) -> dict[str, Any]:
        value = json.loads(good(self.glovebox("status", "--json")))
        assert isinstance(value, dict)
        return value

    def nursery(self) -> dict[str, Any]:
        return self.status()["nursery"] or {}

    def processes(self, name: str) -> list[int]:
        """Processes of this name that were started with our data directory: by their environment, or as an argument."""
        data = f"{self.glovebox.place.data}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "comm").read_text().strip() == name:
                    marks = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if data in marks:
                        found.append(int(entry.name))
        return found


@pytest.fixture
def served(glovebox: Glovebox) -> Iterator[Served]:
    served = Served(glovebox.own_socket())
    yield served
    good(glovebox("stop", "--end-sessions", timeout=90))
    if os.geteuid() == 0:
        wait_for("no supervisor is left", lambda: not served.processes("glovebox-superv"))


@pytest.mark.vm
def test_kernels_are_forked_unless_they_are_to_be_fresh(served: Served) -> None:
    served.start().warm()
    before = served.nursery()["forks"]
    assert served.execute("one", IS_FORKED) == "True\n", served.log()
    assert served.execute("two", IS_FORKED) == "True\n", served.log()
    assert served.execute("own", IS_FORKED, "--mode", "fresh") == "False\n"
    nursery = served.nursery()
    assert nursery["forks"] == before + 2
    assert nursery["preloaded"] == 1 and nursery["failed_imports"] == ""
    assert nursery["memory_bytes"] > 1 << 20


def test_code_without_imports_gets_a_light_kernel(served: Served) -> None:
    def light() -> dict[str, Any]:
        return served.status()["light_nursery"] or {}

    def forks() -> tuple[int, int]:
        status = served.status()
        return status["nursery"]["forks"], status["light_nursery"]["forks"]

    def run(*words: str) -> str:
        return good(served.glovebox("run", *words))

    served.start().warm()
    assert light() == {}, "sessions are forked from the full one"
    assert run("--", "echo", "42") == "42\n"
    wait_for("the light one is ready", lambda: light().get("state") == "ready")
    full_forks, light_forks = forks()
    assert run("--", "echo", "42") == "42\n"
    assert forks() == (full_forks, light_forks + 1)
    assert run("-c", "print(6 * 7)") == "42\n"
    assert forks() == (full_forks, light_forks + 2)
    assert run("-c", "import json; print(6 * 7)") == "42\n"
    assert forks() == (full_forks + 1, light_forks + 2)
    os.kill(killed := light()["pid"], signal.SIGKILL)
    assert run("--", "echo", "42") == "42\n"
    wait_for("another one", lambda: light().get("state") == "ready" and light()["pid"] != killed)


# Cells that end in every way, and in every kind of value.
ALIKE = [
    "1 + 1", "x = 6", "x * 7", "-2.5e300", "float('nan')", "True", "10 ** 400", "10 ** 4000", "None", "'text'",
    "[x, 'é', '\\ud800']", "", "# nothing", "x;", "print('a line')\nprint('no end', end='')\nx",
    "import sys\nprint('to stderr', file=sys.stderr)", "def f(", "1 / 0", "import sys\nsys.exit(3)",
    "raise KeyboardInterrupt", "import asyncio\nawait asyncio.sleep(0)\nx",
    "display('shown')\ndisplay({'text/html': '<b>'}, raw=True)\nx",
    "class Rich:\n    def _repr_html_(self): return '<i>'\n    def __repr__(self): return 'rich'\nRich()",
    "class Bad:\n    def __repr__(self): return 1 / 0\nBad()",
    "class Last:\n    def __del__(self): print('gone')\n    def __repr__(self): return 'last'\nLast()",
    "Last() and None",
    "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\nx",
    "import io, sys\nsys.stdout = io.StringIO()\nprint('kept')\nx", "print(sys.stdout.getvalue(), file=sys.__stdout__)",
    "sys.stdout = sys.__stdout__\nsys.stdout.close()", "print('open again')\nx",
    "import ctypes\nctypes.CDLL(None).printf(b'from C')", "import __main__\n__main__.x is x",
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN);",
    "signal.getsignal(signal.SIGINT) is signal.SIG_IGN", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])",
    "len(signal.pthread_sigmask(signal.SIG_BLOCK, []))", "from __future__ import annotations",
    "def g(a: missing): pass", "input()", "exit", "x" * 5000, "9" * 4000,
    "sum(map(ord, '\t\"/é\U0001f600\x7f\\\\'))", "sum(map(ord, '\x01\x1f'))", "sum(map(ord, '\f\b\v'))",
    "# é\n" * 2000 + "x", "# no escape " * 600 + "\nx",
]  # fmt: skip


def test_a_forked_kernel_answers_as_one_that_was_executed(served: Served) -> None:
    def answered(session: str, code: str) -> dict[str, Any]:
        answer = json.loads(served.glovebox("exec", "--json", session, "-c", code).stdout)
        for key in ("run_id", "session", "duration_ms", "usage"):
            answer.pop(key, None)
        assert isinstance(answer, dict)
        return answer

    served.start().warm()
    good(served.glovebox("session", "new", "forked"))
    good(served.glovebox("session", "new", "fresh", "--mode", "fresh"))
    assert served.execute("forked", IS_FORKED) == "True\n", served.log()
    assert served.execute("fresh", IS_FORKED) == "False\n"
    for code in ALIKE:
        assert answered("forked", code) == answered("fresh", code), code


# A stream of C whose writing, at the end of the run, is a signal.
LATE_INTERRUPT = """
import ctypes
libc = ctypes.CDLL(None)
class Functions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("read", "write", "seek", "close")]
libc.fopencookie.argtypes, libc.fopencookie.restype = [ctypes.c_void_p, ctypes.c_char_p, Functions], ctypes.c_void_p
libc.fputc.argtypes = [ctypes.c_int, ctypes.c_void_p]
stream = libc.fopencookie(2, b"w", Functions(None, ctypes.cast(libc["raise"], ctypes.c_void_p), None, None))
libc.fputc(65, stream);
"""


def test_an_interrupt_that_comes_behind_its_run_does_not_reach_the_next(served: Served) -> None:
    served.start().warm()
    assert served.execute("s", IS_FORKED) == "True\n", served.log()
    served.execute("s", LATE_INTERRUPT)
    for _ in range(3):
        assert served.execute("s", "libc.fputc(65, stream)\nprint('on')") == "on\n"


SEAL = """
import json, os
def link(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}").split(":")[0]
    except OSError:
        return None
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
print(json.dumps({
    "fds": {fd: link(fd) for fd in os.listdir("/proc/self/fd") if link(fd)},
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()],
    "caps": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "walls": [status["NoNewPrivs"].strip(), status["Seccomp"].strip(), status["Threads"].strip()],
    "groups": sorted({line.split(":", 2)[2] for line in open("/proc/self/cgroup").read().splitlines()}),
    "session": os.getsid(0) == os.getpid(),
    "cwd": os.getcwd(),
    "oom": open("/proc/self/oom_score_adj").read().strip(),
    "own": [os.environ.get("MINE"), os.environ["HOME"], os.environ["OMP_NUM_THREADS"]],
    "foreign": ["SECRET" in os.environ, b"sesame" in open("/proc/self/environ", "rb").read()],
    "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
}))
"""

UNSHARE = """
import ctypes
print(ctypes.CDLL(None, use_errno=True).unshare(0x10000000), ctypes.get_errno())
"""


@pytest.mark.vm
def test_a_forked_kernel_is_sealed_and_inherits_nothing(served: Served) -> None:
    served.start(SECRET="sesame").warm()
    assert served.execute("sealed", IS_FORKED, "--env", "MINE=yes", "--cpus", "2") == "True\n", served.log()
    seen = json.loads(served.execute("sealed", SEAL))
    # Standard streams, requests and replies, the kernel's own copies of 1 and 2.
    assert seen["fds"] == {"0": "/dev/null", **{str(fd): "pipe" for fd in range(1, 7)}}
    assert seen["ids"] == [1000] * 4
    assert seen["caps"] == ["0" * 16] * 5
    assert seen["walls"] == ["1", "2", "1"]
    assert seen["groups"] == ["/"]
    assert seen["session"] and seen["cwd"] == "/workspace" and seen["oom"] == "500"
    assert seen["own"] == ["yes", "/home/sandbox", "2"]
    assert seen["foreign"] == [False, False]
    assert seen["pids"] == [2]
    refused = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True); print(libc.unshare(0x10000000), ctypes.get_errno())"
    )
    assert served.execute("sealed", refused) == "-1 1\n"


REPEATS = """
import json, os, random, secrets, sys, tempfile, uuid
values = [random.random(), str(uuid.uuid1()), str(uuid.uuid4()), tempfile.mktemp(), secrets.token_hex(8)]
if "numpy" in sys.modules:
    import numpy
    values += [float(numpy.random.rand()), float(numpy.random.default_rng().random())]
print(json.dumps(values))
"""


def keys_of_the_supervisor() -> int:
    """How many keys the kernel counts for the user that all supervisors of this host have."""
    for line in Path("/proc/key-users").read_text().splitlines():
        user, _, rest = line.partition(":")
        if int(user) == 0x70000000:
            return int(rest.split()[2].split("/")[0])
    return 0


@pytest.mark.skipif(os.geteuid() != 0, reason="optional: without root all boxes have one user")
def test_each_box_has_its_keyring_from_its_own_user(root_glovebox: Glovebox) -> None:
    """The kernel allows 200 keys to one user: boxes that took theirs from one would be at most so many."""
    served = Served(root_glovebox.own_socket()).start().warm()
    before = keys_of_the_supervisor()
    for i in range(12):
        assert served.execute(f"s{i}", IS_FORKED) == "True\n", served.log()
    after = keys_of_the_supervisor()
    good(root_glovebox("stop", "--end-sessions", timeout=90))
    assert after < before + 8, "twelve boxes took no key of the supervisor's user"


@pytest.mark.skipif(os.geteuid() != 0, reason="optional: bounds a process of another user")
def test_a_box_that_fails_halfway_is_made_another_way(root_glovebox: Glovebox) -> None:
    served = Served(root_glovebox.own_socket()).start().warm()
    (supervisor,) = served.processes("glovebox-superv")
    # Too few for the step that arranges descriptors, which comes after all mounts; enough for the supervisor itself.
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (32, 32))
    said = served.execute("halfway", f"open('kept', 'w').write('x')\n{IS_FORKED}")
    log = served.log()
    again = served.execute("halfway", "print(open('kept').read())")
    good(root_glovebox("stop", "--end-sessions", timeout=90))
    assert (said, again) == ("False\n", "x\n") and "starts cold: no box below" in log, (said, again, log)


def test_nothing_random_repeats_in_the_next_kernel(served: Served) -> None:
    served.start("random,uuid,tempfile,secrets").warm()
    one, two = (json.loads(served.execute(name, REPEATS)) for name in ("one", "two"))
    assert not set(one) & set(two)


# The searched text is put together only when it runs: neither the code nor the pattern contains a match.
SEARCH = """
import re
prefix = b"-".join([b"nursery", b"secret", b""])
found = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        span, rights = line.split()[:2]
        if not rights.startswith("rw") or "[v" in line:
            continue
        start, end = (int(part, 16) for part in span.split("-"))
        memory.seek(start)
        try:
            found += len(re.findall(prefix + b"[0-9]{20}", memory.read(end - start)))
        except OSError:
            pass
print(found)
"""


def test_the_environment_of_one_session_is_not_in_the_memory_of_the_next(served: Served) -> None:
    served.start().warm()
    token = "nursery-secret-" + "12345678901234567890"
    assert int(served.execute("holder", SEARCH, "--env", f"TOKEN={token}")) > 0  # the search does find it
    assert served.execute("next", SEARCH) == "0\n"


def test_killing_the_nursery_ends_no_session(served: Served) -> None:
    served.start().warm()
    served.execute("keeps", "x = 41")
    nursery = served.nursery()["pid"]
    os.kill(nursery, signal.SIGKILL)
    wait_for("the daemon sees it", lambda: served.nursery()["pid"] != nursery)
    assert served.execute("keeps", "x + 1") == "42\n"
    assert served.execute("meanwhile", "1 + 1") == "2\n"  # cold, or forked already from the next one
    wait_for("another nursery", lambda: served.nursery()["state"] == "ready")
    assert served.execute("again", IS_FORKED) == "True\n", served.log()
    assert served.execute("keeps", "x") == "41\n"


@pytest.mark.vm
def test_how_a_forked_kernel_ended_is_known_and_it_can_be_interrupted(served: Served) -> None:
    served.start().warm()
    assert "status 3" in served.try_execute("exits", "import os; os._exit(3)").stderr
    assert "signal 6" in served.try_execute("aborts", "import os; os.abort()").stderr
    served.execute("loops", "x = 7")
    assert "time limit" in served.try_execute("loops", "while True: pass", "--timeout", "1").stderr
    assert served.execute("loops", "x") == "7\n"
    assert "memory limit" in served.try_execute("eats", "len(bytearray(1 << 30))", "--memory", "128m").stderr


def test_forked_kernels_outlive_the_daemon_and_their_end_is_still_known(served: Served) -> None:
    served.start().warm()
    assert served.execute("keeps", "x = 41; " + IS_FORKED) == "True\n", served.log()
    os.kill(served.status()["daemon"]["pid"], signal.SIGKILL)
    wait_for(
        "the daemon is gone",
        lambda: served.glovebox("status", "--json").returncode != 0 or not served.status()["running"],
    )
    served.start()
    assert served.execute("keeps", "x + 1") == "42\n"
    assert "status 5" in served.try_execute("keeps", "import os; os._exit(5)").stderr


def own_kernel(served: Served, files: dict[str, str]) -> str:
    """A copy of the kernel's directory, with these files in it."""
    tree = served.glovebox.place.make("kernel", 0o755)
    shutil.copytree(REPOSITORY / "guest/kernel/glovebox_kernel", tree / "glovebox_kernel")
    for name, text in files.items():
        (tree / name).write_text(text)
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(tree)


def test_imports_that_start_threads_leave_kernels_cold(served: Served) -> None:
    threaded = "import threading, time\nthreading.Thread(target=time.sleep, args=(9e5,)).start()\n"
    served.start("threaded", GLOVEBOX_KERNEL_DIR=own_kernel(served, {"threaded.py": threaded}))
    assert served.execute("cold", "1 + 1") == "2\n"
    wait_for("the nursery gives up", lambda: served.nursery().get("state") == "down")
    assert served.execute("another", "1 + 1") == "2\n"
    assert served.nursery()["forks"] == 0


def test_an_image_cannot_send_descriptors_to_the_maker(served: Served) -> None:
    """To close a descriptor can take as long as its creator likes: the maker makes the boxes of all images."""
    hostile = (
        "import errno, os, socket\noutcome = []\nfor fd in range(3, 20):\n    try:\n"
        "        sender = socket.socket(fileno=os.dup(fd))\n        socket.send_fds(sender, [b'x'], [0])\n"
        "        outcome.append('sent')\n"
        "    except OSError as error:\n        outcome.append(errno.errorcode[error.errno])\n"
    )
    served.start("hostile", GLOVEBOX_KERNEL_DIR=own_kernel(served, {"hostile.py": hostile})).warm()
    answered = served.execute("kernel", "import sys; print(*sorted(set(sys.modules['hostile'].outcome)))")
    assert "EPIPE" in answered.split() and "sent" not in answered.split()
    assert served.nursery()["forks"] > 0


@pytest.mark.layer
def test_the_scientific_stack_is_there_at_once_and_its_numbers_do_not_repeat(layer_glovebox: Glovebox) -> None:
    socket = {"GLOVEBOX_SOCKET": str(layer_glovebox.place.home / "layer.sock")}
    good(layer_glovebox("serve", "--background", "--pool", "0", env=socket))
    try:

        def execute(session: str, code: str) -> str:
            return good(layer_glovebox("exec", session, "-c", code, env=socket))

        def nursery() -> dict[str, Any]:
            return json.loads(good(layer_glovebox("status", "--json", env=socket)))["nursery"] or {}

        execute("first", "pass")
        wait_for("the nursery is ready", lambda: nursery().get("state") == "ready", 100)
        assert execute("one", "import sys; print('pandas' in sys.modules)") == "True\n"
        one, two = (json.loads(execute(name, REPEATS)) for name in ("one", "two"))
        assert len(one) == len(two) == 7 and not set(one) & set(two)
        assert execute("two", "import pandas as pd; int(pd.DataFrame({'a': [1, 2]}).a.sum())") == "3\n"
    finally:
        good(layer_glovebox("stop", "--end-sessions", env=socket, timeout=90))


# Pages of the nursery's snapshot that this kernel has a copy of; with `touch`, after writing to every one what it
# holds already.
COPIES = """
import ctypes, struct
def copies(touch):
    count = 0
    with open("/proc/self/pagemap", "rb", 0) as pagemap:
        for line in list(open("/proc/self/maps")):
            if "memfd:snapshot" not in line or " rw-p " not in line:
                continue
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            for page in range(start, end, 4096) if touch else ():
                byte = ctypes.c_ubyte.from_address(page)
                byte.value = byte.value
            pagemap.seek(start // 4096 * 8)
            entries = struct.unpack(f"{(end - start) // 4096}Q", pagemap.read((end - start) // 4096 * 8))
            count += sum(entry >> 63 and not entry >> 61 & 1 for entry in entries)
    return count
"""


def test_an_idle_kernel_gives_back_pages_that_hold_what_the_nursery_had(served: Served) -> None:
    served.start().warm()
    assert served.execute("rests", f"{COPIES}\nkept = [1, 2, 3]\nimport this, gc") == ""
    touched = int(served.execute("rests", "print(copies(True))"))
    assert touched > 1000

    def given_back() -> bool:
        time.sleep(2)  # a kernel that is asked does not rest
        return int(served.execute("rests", "print(copies(False))")) < touched / 2

    wait_for("its pages are given back", given_back)
    assert served.execute("rests", "print(kept, this.s[:4], gc.collect() >= 0)") == "[1, 2, 3] Gur  True\n"


SCRIBBLE = """
import ctypes, os
def span(line):
    start, end = (int(part, 16) for part in line.split()[0].split("-"))
    return end - start, start
snapshot = [line for line in open("/proc/self/maps") if "memfd:snapshot" in line]
start = max(span(line) for line in snapshot if " r--p " in line)[1]
if WRITE:
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), 4096, 3) == 0
    ctypes.memmove(start, b"scribbled", 9)
print(ctypes.string_at(start, 9) == b"scribbled", {line.split()[1][3] for line in snapshot})
for line in snapshot:
    try:
        os.open(f"/proc/self/map_files/{line.split()[0]}", os.O_RDWR)
        print("opened")
    except OSError:
        pass
"""


def test_no_kernel_writes_to_what_all_of_them_have_from_the_nursery(served: Served) -> None:
    served.start().warm()
    assert served.execute("one", f"WRITE = True\n{SCRIBBLE}") == "True {'p'}\n"
    assert served.execute("two", f"WRITE = False\n{SCRIBBLE}") == "False {'p'}\n"


HAS_SNAPSHOT = "print('memfd:snapshot' in open('/proc/self/maps').read())"


def test_with_a_python_that_was_not_tried_kernels_are_forked_without_a_snapshot(served: Served) -> None:
    source = (REPOSITORY / "guest/kernel/glovebox_kernel/cow_snapshot.py").read_text()
    untried = source.replace("TRIED_PYTHONS = ((3, 11), (3, 12), (3, 13))", "TRIED_PYTHONS = ()")
    assert untried != source
    served.start(GLOVEBOX_KERNEL_DIR=own_kernel(served, {"glovebox_kernel/cow_snapshot.py": untried})).warm()
    assert served.execute("plain", f"x = 41\n{IS_FORKED}\n{HAS_SNAPSHOT}") == "True\nFalse\n", served.log()
    time.sleep(1.5)  # long enough for an idle kernel to return memory
    assert served.execute("plain", "x + 1") == "42\n"
    for _ in range(3):  # in light kernels, one of them forked in any case
        assert good(served.glovebox("run", "--", "echo", "42")) == "42\n"
        wait_for("the light nursery", lambda: (served.status()["light_nursery"] or {}).get("state") == "ready")


def test_the_snapshot_is_for_the_allocators_that_it_was_tried_with(served: Served) -> None:
    """The system's Python is one of them; with another allocator the same Python is not."""

    def is_tried(**env: str) -> str:
        program = "from glovebox_kernel.cow_snapshot import is_tried; print(is_tried())"
        environment = {"PYTHONPATH": str(REPOSITORY / "guest/kernel"), "PYTHONDONTWRITEBYTECODE": "1", **env}
        return subprocess.run(
            ["/usr/bin/python3", "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert is_tried() == "True"
    assert is_tried(PYTHONMALLOC="malloc") == is_tried(PYTHONDEVMODE="1") == "False"
    assert is_tried(GLIBC_TUNABLES="glibc.malloc.mmap_threshold=1") == is_tried(LD_PRELOAD="libdl.so.2") == "False"
    served.start().warm()
    assert served.execute("shared", f"{IS_FORKED}\n{HAS_SNAPSHOT}") == "True\nTrue\n", served.log()


WARMED_UP = """
code, is_warm = set(), False
for line in open("/proc/self/smaps"):
    words = line.split()
    if not words[0].endswith(":"):
        rights = words[1]
        code.add(rights)
    elif words[0] == "Anonymous:" and rights == "r-xp" and int(words[1]) > 0:
        is_warm = True
print(is_warm, "rwxp" in code)
"""


def test_a_kernel_begins_with_the_pages_that_all_of_them_read(served: Served) -> None:
    """Its nursery found code that kernels run, and made none of it writable."""
    served.start().warm()
    assert served.execute("one", WARMED_UP) == "True False\n", served.log()
