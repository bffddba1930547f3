"""The daemon is killed when it is about to make its n-th system call, for every n of a small piece of work.

Between two calls nothing that a daemon does is visible outside, so these are all instants at which it can die. Here
only some of them are tried, spread over the whole. `make soak` (GLOVEBOX_EVERY_CALL_MINUTES=N) tries all, in random
order, as far as it comes in N minutes: a start alone has hundreds of calls, and each takes seconds."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import platform
import random
import subprocess
import time
from collections.abc import Iterator

import pytest
from support.client import Client
from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon
from support.inject import KILL, Inject
from test_restarts import ended, state

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="optional: knows the calls of x86-64 only")

POINTS = 8
KINDS = ("start", "run", "large", "waiting", "trim", "sleep", "wake")
SECONDS_EACH = 60 * float(os.environ.get("GLOVEBOX_EVERY_CALL_MINUTES", "0")) / len(KINDS)  # 0: some points alone
LARGE = "c" * 30000
_controls = itertools.count()


class Trial:
    """One daemon under `inject`, killed at a call of its own choosing."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.injected = Inject(daemon.glovebox.place.path / f"control{next(_controls)}")
        self.process: subprocess.Popen[str] | None = None

    def launch(self) -> None:
        self.daemon.wrapper = self.injected.wrapper
        self.process = self.daemon.launch()
        self.daemon.wrapper = ()

    def wait_until_it_serves(self) -> None:
        wait_for("it to serve, or to be killed", lambda: self.is_killed() or self.daemon._serves_or_died())

    def is_killed(self) -> bool:
        return self.injected.failed() is not None

    def end(self) -> bool:
        """Whether it was killed. `inject` goes on as long as something that was started under it lives."""
        if not self.is_killed():
            self.injected.disarm()
            with contextlib.suppress(OSError), self.daemon._connect() as client:
                client.request("shutdown")
        wait_for("its lock", self.is_unlocked)
        self.daemon.process = None
        return self.is_killed()

    def is_unlocked(self) -> bool:
        with (self.daemon.data / "registry.lock").open("rb") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False


class Work:
    """A session and what it should know: the numbers of the runs that were acknowledged, each once."""

    def __init__(self, daemon: Daemon, kind: str) -> None:
        self.daemon, self.kind = daemon, kind
        self.number = 0
        self.acknowledged: dict[int, str] = {}
        client = daemon.start().client()
        client.execute("import time; done = []; x = 41; big = bytearray(3000000)", "s")
        daemon.terminate()
        daemon.process = None

    def submit(self, client: Client, code: str = "", rest: str = "") -> None:
        self.number += 1
        code = f"{code}\ndone.append({self.number}){rest}"
        run = client.request("execute", session="s", code=code, detach=True)["run_id"]
        self.acknowledged[self.number] = str(run)

    def do(self, client: Client) -> None:
        """What the daemon is killed in."""
        if self.kind == "large":
            self.submit(client, f"display('d' * 100000)#{LARGE}", "\n'r' * 100000")
        elif self.kind == "waiting":
            self.submit(client, "time.sleep(0.05)")
            self.submit(client)
            self.submit(client)
        elif self.kind in ("trim", "sleep"):
            client.request("session.hibernate", session="s", depth=self.kind)
        else:
            self.submit(client)
        wait_for("it to be done", lambda: state(client, "s") in ("idle", "trimmed", "asleep"))

    def try_to_do(self, trial: Trial) -> None:
        with contextlib.suppress(OSError), self.daemon._connect(20.0) as client:
            self.do(client)

    def prepare(self) -> None:
        if self.kind == "wake":
            client = self.daemon.start().client()
            client.request("session.hibernate", session="s", depth="sleep")
            wait_for("it to be asleep", lambda: client.request("session.show", session="s")["pid"] == 0)
            self.daemon.terminate()
            self.daemon.process = None

    def check(self, where: str) -> None:
        client = self.daemon.start().client()
        wait_for("it to be at rest", lambda: state(client, "s") in ("idle", "trimmed", "asleep", "lost"))
        for number, run in self.acknowledged.items():
            done = ended(client, "s", run)
            assert done["status"] == "ok" and "variables_lost" not in done, (where, number, done)
        self.acknowledged.clear()
        done = client.execute("(x, len(big), done)", "s")
        assert "variables_lost" not in done and done["status"] == "ok", (where, done)
        x, size, seen = eval(done["result"]["text/plain"], {})
        assert (x, size, seen) == (41, 3000000, sorted(set(seen))), (where, seen)
        self.daemon.terminate()
        self.daemon.process = None


def points(n_calls: int) -> Iterator[int]:
    choose = random.Random(n_calls)
    spread = [1 + (i * n_calls + choose.randrange(n_calls)) // POINTS for i in range(POINTS)]
    if not SECONDS_EACH:
        yield from spread
        return
    end = time.monotonic() + SECONDS_EACH
    for n_tried, index in enumerate(random.sample(range(1, n_calls + 1), n_calls)):
        if time.monotonic() > end:
            print(f"{n_tried} of {n_calls} calls tried")
            return
        yield index
    print(f"all {n_calls} calls tried")


@pytest.mark.timeout(1200 + 2 * SECONDS_EACH)
@pytest.mark.parametrize("kind", KINDS)
def test_l02_killed_at_any_call_nothing_is_lost_and_nothing_is_done_twice(start_daemon: StartDaemon, kind: str) -> None:
    daemon = start_daemon(start=False)
    work = Work(daemon, kind)
    work.prepare()

    def try_at(index: int) -> tuple[bool, int]:
        trial = Trial(daemon)
        if kind == "start":
            trial.injected.arm("glovebox", index=index, error=KILL)
        trial.launch()
        trial.wait_until_it_serves()
        if kind != "start":
            trial.injected.arm("glovebox", index=index, error=KILL)
        work.try_to_do(trial)
        return trial.end(), len(trial.injected.calls())

    killed, n_calls = try_at(0)
    assert not killed and n_calls > 10, n_calls
    work.check("before")
    hits = 0
    for index in points(n_calls):
        work.prepare()
        killed, _ = try_at(index)
        hits += killed
        work.check(f"{kind}: call {index} of {n_calls}")
    assert hits > 0
    daemon.start()
