#!/usr/bin/env python3
"""Makes the attempts of tests/escape in several places and prints how each fared.

    tools/compare-escapes.py --runner glovebox --runner bwrap        a table on standard output, in Markdown
    tools/compare-escapes.py --weak                                  shows that each attempt can succeed somewhere
    tools/compare-escapes.py --runner host -k uring -v               a few attempts, with the evidence

Runners: host, host-root, userns, bwrap, docker, docker-hardened, glovebox (as root), glovebox-user. Run as root: the
others are run as an ordinary user by it. For Docker a daemon of our own is started with its data in a temporary
directory (no bridge, no firewall rules) and ended again; the image is made of this host's Python. --docker-bin names
directories in which dockerd, containerd, runc and docker are looked for before $PATH."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests/escape"), str(REPOSITORY / "tests")]

from escapes import harness  # noqa: E402
from escapes.judges import Verdict  # noqa: E402
from escapes.runners import (  # noqa: E402
    Bubblewrap,
    Docker,
    DockerHardened,
    GloveboxRunner,
    HostRoot,
    Runner,
    UserNamespace,
)
from escapes.world import World  # noqa: E402

# Of its own: an attempt kills every process of its user.
WEAK_USER = 62000 + os.getpid() % 3000
IMAGE = "escape-python"
SIGNS = {"BLOCKED": "blocked", "ESCAPED": "REACHED", "NO_TOOL": "no tool", "BROKEN": "broken"}


# --- Docker -------------------------------------------------------------------------------------------------------


def libraries_of(program: str) -> set[str]:
    found = set()
    for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout.splitlines():
        found.update(word for word in line.split() if word.startswith("/"))
    return found


def make_image_tar(path: Path) -> None:
    """Python with its library, su (for the set-user-ID attempt) and an /etc of its own."""
    files = {"/usr/bin/python3", os.path.realpath("/usr/bin/python3"), "/usr/bin/su", "/usr/bin/passwd"}
    for program in list(files):
        files |= libraries_of(program)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(os.path.realpath("/usr/bin/python3")).name
    stdlib = Path("/usr/lib", library if library.startswith("python3.") else version)
    for extension in (stdlib / "lib-dynload").glob("*.so"):
        files |= libraries_of(str(extension))
    names = {real for name in files for real in real_names(name)}
    with tarfile.open(path, "w") as tar:
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        for name in sorted(names):
            tar.add(name, name.lstrip("/"))
        tar.add(stdlib, str(stdlib).lstrip("/"))
        for name in ("tmp", "workspace", "etc", "proc", "dev", "sys"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777 if name in ("tmp", "workspace") else 0o755
            tar.addfile(directory)
        with tempfile.NamedTemporaryFile() as passwd:
            passwd.write(b"root:x:0:0:root:/root:/bin/sh\nsandbox:x:65000:65000::/workspace:/bin/sh\n")
            passwd.flush()
            os.chmod(passwd.name, 0o644)
            tar.add(passwd.name, "etc/passwd")


def real_names(name: str) -> set[str]:
    """A file below /usr and what it is a link to."""
    below = name if name.startswith("/usr") else "/usr" + name
    return {path for path in (below, os.path.realpath(below)) if os.path.lexists(path)}


def run_or_exit(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"compare-escapes: {' '.join(command)}: {done.stderr}")


@contextlib.contextmanager
def docker_daemon(directories: list[str]) -> Iterator[list[str]]:
    """A daemon of our own; gives the client's command line."""
    path = os.pathsep.join([*directories, os.environ["PATH"]])
    if not shutil.which("dockerd", path=path):
        sys.exit("compare-escapes: dockerd is not installed; apt-get install docker.io, or name it with --docker-bin")
    top = Path(tempfile.mkdtemp(prefix="escape-docker-", dir="/tmp"))
    address = f"unix://{top}/docker.sock"
    log = (top / "log").open("wb")
    daemon = subprocess.Popen(
        [
            "dockerd", "--data-root", str(top / "data"), "--exec-root", str(top / "exec"), "--host", address,
            "--pidfile", str(top / "pid"), "--iptables=false", "--ip6tables=false", "--bridge=none",
            "--cgroup-parent", f"/{top.name}",
        ],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": path}, start_new_session=True,
    )  # fmt: skip
    client = [shutil.which("docker", path=path) or "docker", "--host", address]
    try:
        for _ in range(120):
            if subprocess.run([*client, "version"], capture_output=True, check=False).returncode == 0:
                break
            if daemon.poll() is not None:
                sys.exit("compare-escapes: dockerd ended:\n" + (top / "log").read_text()[-2000:])
            time.sleep(0.5)
        make_image_tar(top / "image.tar")
        run_or_exit([*client, "import", str(top / "image.tar"), IMAGE])
        yield client
    finally:
        daemon.terminate()
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        log.close()
        shutil.rmtree(top, ignore_errors=True)
        for group in [*Path("/sys/fs/cgroup").glob(f"*/{top.name}"), *Path("/sys/fs/cgroup").glob(top.name)]:
            with contextlib.suppress(OSError):
                group.rmdir()


# --- runners ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def glovebox_runner(who: str) -> Iterator[Runner]:
    from support.cgroups import TestGroups
    from support.glovebox import USER_ID, Glovebox, Place, find_binary, reachable_binary

    groups, place = TestGroups(f"glovebox-compare-{os.getpid()}-{who}"), Place(who)
    try:
        if who == "user":
            groups.delegate(USER_ID, USER_ID)
        yield GloveboxRunner(Glovebox(reachable_binary(find_binary(), place), place, groups))
    finally:
        place.remove()
        groups.remove()


@contextlib.contextmanager
def make_runner(name: str, client: Callable[[], list[str]]) -> Iterator[Runner]:
    if name.startswith("glovebox"):
        with glovebox_runner("user" if name == "glovebox-user" else "root") as runner:
            yield runner
    elif name in ("docker", "docker-hardened"):
        kind = Docker if name == "docker" else DockerHardened
        yield kind(WEAK_USER, client(), IMAGE)
    else:
        kinds = {"host": Runner, "host-root": HostRoot, "userns": UserNamespace, "bwrap": Bubblewrap}
        yield kinds[name](WEAK_USER)


def run_named(name: str, wanted: list[str], client: Callable[[], list[str]]) -> dict[str, Verdict]:
    begin = time.monotonic()
    with make_runner(name, client) as runner:
        world = World(runner.uid if name != "host-root" else 0)
        try:
            verdicts = harness.run_all(runner, world, wanted)
        finally:
            world.close()
    print(f"{name}: {len(verdicts)} attempts in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return verdicts


# --- tables -------------------------------------------------------------------------------------------------------


def print_table(columns: dict[str, dict[str, Verdict]], wanted: list[str]) -> None:
    table = harness.attempts()
    print(f"| attempt | promise | {' | '.join(columns)} |")
    print("|---|---|" + "---|" * len(columns))
    group = ""
    for name in wanted:
        item = table[name]
        if item.group != group:
            group = item.group
            print(f"| **{group}** | |" + " |" * len(columns))
        cells = [SIGNS[column[name][0]] if name in column else "–" for column in columns.values()]
        print(f"| {item.title} | {item.promise} | {' | '.join(cells)} |")
    totals = []
    for column in columns.values():
        totals.append(f"{sum(verdict == 'BLOCKED' for verdict, _ in column.values())} of {len(column)}")
    print(f"| **blocked** | | {' | '.join(totals)} |")


def print_evidence(columns: dict[str, dict[str, Verdict]]) -> None:
    for runner, verdicts in columns.items():
        for name, (verdict, why) in verdicts.items():
            print(f"{runner:16} {verdict:8} {name}: {why}", file=sys.stderr)


def show_weak(wanted: list[str], client: Callable[[], list[str]]) -> int:
    """Runs each attempt in the weak place it names; gives how many do not escape there."""
    table, wrong = harness.attempts(), 0
    places: dict[str, list[str]] = {}
    for name in wanted:
        places.setdefault(table[name].weak, []).append(name)
    for place, names in places.items():
        if place.startswith("-"):
            for name in names:
                print(f"not shown  {name} ({place[3:]})")
            continue
        for name, (verdict, why) in run_named(place, names, client).items():
            wrong += verdict != "ESCAPED"
            print(f"{'shown' if verdict == 'ESCAPED' else 'NOT SHOWN: ' + verdict}  {name} in {place}: {why}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", action="append", default=[], metavar="NAME")
    parser.add_argument("--weak", action="store_true", help="run each attempt where it should succeed")
    parser.add_argument("--docker-bin", action="append", default=[], metavar="DIR")
    parser.add_argument("-k", default="", metavar="WORD", help="only attempts with this word in their name")
    parser.add_argument("-v", action="store_true", help="print the evidence of each on standard error")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    if os.geteuid() != 0:
        sys.exit("compare-escapes: needs root, since it starts the others as another user")
    wanted = [name for name in harness.attempts() if options.k in name]
    with contextlib.ExitStack() as stack:
        cached: list[list[str]] = []

        def client() -> list[str]:
            if not cached:
                cached.append(stack.enter_context(docker_daemon(options.docker_bin)))
            return cached[0]

        if options.weak:
            return 1 if show_weak(wanted, client) else 0
        columns = {name: run_named(name, wanted, client) for name in options.runner or ["glovebox"]}
    if options.v:
        print_evidence(columns)
    print(f"{len(wanted)} attempts, Linux {os.uname().release}, {datetime.date.today().isoformat()}.\n")
    print_table(columns, wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
