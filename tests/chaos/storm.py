"""A storm: the daemon is killed and stopped again and again, at random moments, while sessions work.

Each session has a worker, which hands in detached runs and writes every acknowledgement into the ledger, a file of JSON
lines, before it goes on. A run appends its number to a list in the session. Afterwards each acknowledged run must have
ended well, the list must have each number once and in order, and no result may speak of a loss.

`make soak MINUTES=N` runs it at full size; test_storm.py runs a small one. A kill in a trim, a sleep or a wake counts
if a session was in the middle of that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "bench")]

from support.client import Client, DaemonError
from support.daemon import Daemon, wait_for
from support.daemons import make_daemons
from support.glovebox import find_binary

KINDS = ("run", "trim", "sleep", "wake")
LONGEST = {"run": 0.3, "trim": 0.02, "sleep": 0.3, "wake": 0.3}  # pauses before a kill, at most
STYLES = {"alone": (), "forked": ("--pool", "2", "--box-pool", "2", "--preload", "decimal")}  # the kernels
ENDINGS = (signal.SIGKILL, signal.SIGTERM)


class Ledger:
    """Every acknowledgement, every check, every kill."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO = path.open("a")
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.hits: Counter[str] = Counter()  # kills in the middle of a trim, a sleep, a wake; of runs: all

    def note(self, event: str, **fields: Any) -> None:
        with self._lock:
            self.counts[event] += 1
            self._file.write(json.dumps({"t": round(time.time(), 4), "event": event, **fields}) + "\n")
            self._file.flush()

    def fault(self, what: str, **fields: Any) -> None:
        self.note(what, **fields)
        with self._lock:
            self.faults.append(f"{what}: {fields}")


class Worker(threading.Thread):
    """One session and its client. What fails because the daemon is gone is tried again."""

    def __init__(self, daemon: Daemon, ledger: Ledger, name: str, kind: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.host, self.ledger, self.session, self.kind = daemon, ledger, name, kind
        self.choose = random.Random(seed)
        self.client: Client | None = None
        self.number = 0
        self.expected: list[int] = []  # acknowledged
        self.possible: set[int] = set()  # handed in, and the answer never came
        self.ending = threading.Event()
        self.acts = False  # its trim, sleep or wake has been asked for, and has not been answered

    def is_in_the_act(self) -> bool:
        return self.acts and self.client is not None

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Until there is an answer. Only for what may be asked twice."""
        while True:
            with contextlib.suppress(OSError):
                return self.connected().request(op, **fields)
            self.disconnect()

    def connected(self) -> Client:
        while self.client is None:
            try:
                self.client = self.host._connect(30.0)
            except OSError:
                time.sleep(0.005)
        return self.client

    def disconnect(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None
        time.sleep(0.002)

    def submit(self) -> str | None:
        """The id of a run that was acknowledged; None when that is unknown."""
        self.number += 1
        size = self.choose.choice((0, 0, 10, 3000, 90000))
        pause = self.choose.choice((0, 0, 0.02, 0.2))
        code = (
            f"done.append({self.number})\ntime.sleep({pause})\nprint('p' * {size})\n"
            f"display('d' * {size})\n('r' * {size}, {self.number})#" + "c" * self.choose.choice((0, 20000))
        )
        try:
            run = self.connected().request("execute", session=self.session, code=code, detach=True)["run_id"]
        except OSError:
            self.possible.add(self.number)
            self.disconnect()
            return None
        except DaemonError as error:
            if error.code not in ("busy", "limit"):
                self.ledger.fault("refused", session=self.session, why=str(error))
            return None
        self.ledger.note("acknowledged", session=self.session, run=run, number=self.number, size=size)
        self.expected.append(self.number)
        return str(run)

    def check(self, run: str, number: int) -> None:
        while True:
            try:
                shown = self.ask("run.show", session=self.session, run=run)
            except DaemonError as error:
                self.ledger.fault("unknown run", session=self.session, run=run, number=number, why=str(error))
                return
            if shown["status"] not in ("running", "waiting"):
                break
            time.sleep(0.01)
        value = (shown.get("result") or {}).get("text/plain", "")
        if shown["status"] != "ok" or not value.endswith(f"{number})"):
            self.ledger.fault("wrong result", session=self.session, run=run, number=number, shown=str(shown)[:500])
        elif shown.get("variables_lost"):
            self.ledger.fault("false report", session=self.session, run=run, number=number)
        else:
            self.ledger.note("checked", session=self.session, run=run)

    def disturb(self) -> None:
        """Asks for a trim or a sleep; whether that is answered is of no interest. What follows a sleep is a wake."""
        if self.kind == "run":
            return
        with contextlib.suppress(OSError, DaemonError):
            client = self.connected()
            depth = "trim" if self.kind == "trim" else "sleep"
            self.acts = self.kind != "wake"
            number = client.begin("session.hibernate", session=self.session, depth=depth)
            if self.kind == "wake" or self.choose.random() < 0.7:
                client.finish(number)
                self.acts = self.kind == "wake"
                return
            time.sleep(self.choose.random() * 0.05)
        self.acts = False
        self.disconnect()

    def run(self) -> None:
        try:
            self.ask("execute", session=self.session, code="import time, array\ndone = []\nborn = 'here'\n"
                     "big = [array.array('d', [1.0]) * 100000 for _ in range(4)]")  # fmt: skip
            while not self.ending.is_set():
                self.disturb()
                runs = []
                for _ in range(self.choose.randrange(1, 4)):
                    run = self.submit()
                    if run:
                        runs.append((run, self.number))
                for run, number in runs:
                    self.check(run, number)
                    self.acts = False
            self.conclude()
        except Exception as error:
            self.ledger.fault("worker failed", session=self.session, why=repr(error))
        finally:
            if self.client is not None:
                self.client.close()

    def conclude(self) -> None:
        """Each acknowledged one once, in order; of the others none twice."""
        self.wait_idle()
        done = self.ask("execute", session=self.session, code="(globals().get('born'), done, len(big))")
        try:
            born, seen, large = eval(done["result"]["text/plain"], {})
        except Exception:
            self.ledger.fault("lost kernel", session=self.session, shown=str(done)[:500])
            return
        if done.get("variables_lost") or born != "here" or large != 4:
            self.ledger.fault("lost kernel", session=self.session, shown=str(done)[:500])
        doubled = [number for number, times in Counter(seen).items() if times > 1]
        missing = [number for number in self.expected if number not in set(seen)]
        strangers = set(seen) - set(self.expected) - self.possible
        for what, numbers in (("doubled run", doubled), ("lost run", missing), ("unasked run", sorted(strangers))):
            if numbers:
                self.ledger.fault(what, session=self.session, numbers=numbers)
        if seen != sorted(seen):
            self.ledger.fault("out of order", session=self.session, seen=seen)

    def wait_idle(self) -> None:
        while self.ask("session.show", session=self.session)["state"] not in ("idle", "trimmed", "asleep", "lost"):
            time.sleep(0.02)


class Storm:
    def __init__(self, daemon: Daemon, ledger: Ledger, sessions: int, kind: str, seed: int) -> None:
        self.daemon, self.ledger, self.kind = daemon, ledger, kind
        self.choose = random.Random(seed)
        self.workers = [
            Worker(daemon, ledger, f"{kind}{i}", kind, self.choose.randrange(1 << 30)) for i in range(sessions)
        ]
        for worker in self.workers:
            worker.start()
        wait_for("every session to work", lambda: all(worker.number > 0 for worker in self.workers), 120)

    def aim(self) -> int:
        """Waits for a trim, sleep or wake, and then a little; how many sessions are in it now."""
        end = time.monotonic() + 2
        while not any(worker.is_in_the_act() for worker in self.workers) and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(LONGEST[self.kind] * self.choose.choice((0, 0, 0.1, 0.3, 1)) * self.choose.random())
        return sum(worker.is_in_the_act() for worker in self.workers)

    def kill_once(self) -> bool:
        """However far it has come, also while it starts. True if it was in the middle of what is asked for."""
        process = self.daemon.process
        assert process is not None
        in_the_act = 0 if self.kind == "run" else self.aim()
        ending = self.choose.choice(ENDINGS)
        if process.poll() is not None:
            self.ledger.fault("daemon ended", status=process.returncode, log=self.daemon.words()[-2000:])
        process.send_signal(ending)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            self.ledger.fault("daemon hangs", how=ending.name)
            process.kill()
            process.wait()
        self.ledger.note("kill", kind=self.kind, how=ending.name, in_the_act=in_the_act)
        self.daemon.launch()
        if self.kind == "run":  # mostly at once, sometimes after it has worked a while
            time.sleep(self.choose.choice((0, 0.01, 0.05, 0.1, 0.2, LONGEST["run"])) * self.choose.random())
        return self.kind == "run" or in_the_act > 0

    def end(self) -> None:
        wait_for("the daemon to serve", self.daemon._serves_or_died)
        for worker in self.workers:
            worker.ending.set()
        for worker in self.workers:
            worker.join(180)
            if worker.is_alive():
                self.ledger.fault("worker hangs", session=worker.session)
        client = self.daemon.client()
        for worker in self.workers:
            with contextlib.suppress(DaemonError):
                client.request("session.remove", session=worker.session)


def storm(daemon: Daemon, ledger: Ledger, kind: str, kills: int, sessions: int, seed: int) -> None:
    started = time.monotonic()
    weather = Storm(daemon, ledger, sessions, kind, seed)
    hits = total = 0
    while hits < kills and total < 4 * kills:
        hits += weather.kill_once()
        total += 1
    weather.end()
    seconds = round(time.monotonic() - started, 1)
    ledger.note("storm", kind=kind, kills=total, in_the_act=hits, sessions=sessions, seconds=seconds)
    ledger.hits[kind] += hits


def summary(ledger: Ledger) -> str:
    counts = ledger.counts
    lines = [
        f"kills of the daemon     {counts['kill']} ("
        + ", ".join(f"{ledger.hits[kind]} in {kind}" for kind in KINDS)
        + ")",
        f"acknowledged runs       {counts['acknowledged']}",
        f"checked, result right   {counts['checked']}",
    ]
    known = {"kill", "acknowledged", "checked", "storm"}
    lines += [f"FAULT {what:<17} {times}" for what, times in sorted(counts.items()) if what not in known]
    lines += [] if ledger.faults else ["lost, doubled, wrong or falsely reported: 0"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the daemon under load for some minutes, and look at the ledger.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--ledger", type=Path)
    arguments = parser.parse_args()
    path = arguments.ledger or Path(tempfile.mkdtemp(prefix="glovebox-soak-")) / "ledger.jsonl"
    print(f"ledger {path}, seed {arguments.seed}", flush=True)
    ledger = Ledger(path)
    makers = make_daemons(find_binary())
    make = next(makers)
    deadline = time.monotonic() + arguments.minutes * 60
    seed, rounds = arguments.seed, 0
    # One round has what the bars ask for: 500 kills while sessions run, 60 in each of trim, sleep and wake.
    while not ledger.faults and (rounds == 0 or time.monotonic() < deadline):
        for style, options in STYLES.items():
            daemon = make(*options)
            for kind, kills in (("run", 500), ("trim", 60), ("sleep", 60), ("wake", 60)):
                seed += 1
                storm(daemon, ledger, kind, kills, arguments.sessions, seed)
                print(f"-- kernels {style}, after {kills} kills in {kind}\n{summary(ledger)}", flush=True)
            daemon.stop()
        rounds += 1
    with contextlib.suppress(StopIteration):
        next(makers)
    print("\n".join(ledger.faults[:50]))
    return 1 if ledger.faults else 0


if __name__ == "__main__":
    sys.exit(main())
