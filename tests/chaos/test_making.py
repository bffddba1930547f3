"""A box cannot be made: whatever system call of its maker fails, the caller gets an error, and nothing is left."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator

import pytest
from support.client import DaemonError
from support.daemon import Daemon, _named, wait_for
from support.daemons import StartDaemon
from support.inject import Inject

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="optional: knows the calls of x86-64 only")

# What the kernel says when it runs out, for the calls where that is known; ENOMEM for the others. Numbers of x86-64.
SHORTAGES = {435: errno.EAGAIN, 83: errno.ENOSPC, 258: errno.ENOSPC, 257: errno.EMFILE, 437: errno.EMFILE}

CODES = ("system", "gone", "no_space", "limit", "permission", "unsupported", "not_found")


def chosen(calls: list[int]) -> list[int]:
    """The first and the last use of each call, and every eighth of the rest, by their place from 1."""
    places = range(1, len(calls) + 1)
    first = {calls[place - 1]: place for place in reversed(places)}
    last = {calls[place - 1]: place for place in places}
    return sorted({*first.values(), *last.values(), *places[::8]})


@pytest.fixture
def inject(start_daemon: StartDaemon) -> Iterator[tuple[Inject, Daemon]]:
    daemon = start_daemon("--preload", "this", start=False)
    injected = Inject(daemon.glovebox.place.path / "control")
    daemon.wrapper = injected.wrapper
    yield injected, daemon.start()
    injected.disarm()


def process(daemon: Daemon, name: str) -> int:
    """By its data directory, which it has from the environment or as an argument."""
    mark = f"{daemon.data}\0".encode()
    files = ("cmdline", "environ")
    with_mark = _named(name, lambda pid: any(mark in open(f"/proc/{pid}/{file}", "rb").read() for file in files))
    return next(with_mark, 0)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["glovebox-maker", "glovebox-superv"])
def test_l12_whatever_call_fails_the_caller_gets_an_error_and_nothing_is_left(
    inject: tuple[Inject, Daemon], name: str
) -> None:
    injected, daemon = inject
    client = daemon.client()
    # In the supervisor the boxes of kernels that are forked are made; a maker alone is asked for cold ones.
    depth, mode = (2, "fast") if name == "glovebox-superv" else (1, "fresh")
    client.execute("x = 41", "keeps")
    wait_for("the nursery", lambda: (client.request("status")["nursery"] or {}).get("state") == "ready")
    client.execute("1", "settled", mode=mode)
    client.request("session.remove", session="settled")
    injected.arm(name, depth)
    client.execute("1", "traced", mode=mode)
    injected.disarm()
    client.request("session.remove", session="traced")
    calls = injected.calls()
    places = chosen(calls)
    boxes = len(set(daemon.kernels()))
    descriptors = {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in (process(daemon, name),)}
    assert len(places) > (25 if mode == "fresh" else 5), calls
    refused = 0
    for place in places:
        number = calls[place - 1]
        injected.arm(name, depth, place, SHORTAGES.get(number, errno.ENOMEM))
        done = None
        try:
            done = client.execute("6 * 7", f"s{place}", mode=mode)
            assert done["result"] == {"text/plain": "42"}, (place, number, done)
        except DaemonError as error:
            refused += 1
            assert len(error.message) > 10 and error.code in CODES, (place, number, error)
        injected.disarm()
        left = [session["name"] for session in client.request("session.list")["sessions"]]
        assert (f"s{place}" in left) == (done is not None), (place, number, done)
        if done:
            client.request("session.remove", session=f"s{place}")
    assert refused > len(places) // 2 or mode == "fast"
    assert client.execute("6 * 7", "after", mode=mode)["result"] == {"text/plain": "42"}
    client.request("session.remove", session="after")
    wait_for("the boxes to go", lambda: len(daemon.kernels()) <= boxes)
    wait_for("their state to go", lambda: len(os.listdir(daemon.data / "state")) == 1)
    assert client.execute("x", "keeps")["result"] == {"text/plain": "41"}
    pid = process(daemon, name)
    if pid in descriptors:  # else it had to be replaced
        assert len(os.listdir(f"/proc/{pid}/fd")) <= descriptors[pid]


def test_l32_a_limit_that_cannot_be_enforced_makes_no_box_unless_the_caller_accepts_it(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(who="user", env={"GLOVEBOX_CGROUP_PARENT": "glovebox-test-nobody-made-this"})
    client = daemon.client()
    for op, fields in (("execute", {"session": "strict"}), ("execute", {"ephemeral": True})):
        with pytest.raises(DaemonError) as caught:
            client.request(op, code="1", **fields)
        assert caught.value.code == "unsupported", caught.value
        assert "memory, pids, cpu" in caught.value.message and "--allow-weaker" in caught.value.message, caught.value
    refused = daemon.cli("exec", "strict", "--cpus", "1", "-c", "1")
    assert refused.returncode == 125 and "--allow-weaker" in refused.stderr, refused
    number = client.begin("execute", code="1", session="detached", detach=True)
    run = client.finish(number)["run_id"]

    def failure() -> str:
        shown = client.request("run.show", session="detached", run=run)
        return "" if shown["status"] == "waiting" else shown["error"]["message"]

    assert "--allow-weaker" in wait_for("the failure of an acknowledged run, which is kept", failure)
    client.request("session.remove", session="detached")
    client.request("session.create", session="configured")
    with pytest.raises(DaemonError):
        client.execute("1", "configured")
    left = [session["name"] for session in client.request("session.list")["sessions"]]
    assert left == ["configured"], "a session whose first run was refused leaves nothing"
    done = client.execute("6 * 7", "weaker", allow_weaker=True)
    assert done["result"] == {"text/plain": "42"}, done
    assert client.request("session.show", session="weaker")["isolation"], "the session says what it lacks"
