"""Each step of the sealing is fatal: whatever system call of it fails, no tenant code runs in a weaker box.

tests/support/inject.c makes the n-th call of the sealing process fail. The oracle is what the box itself can see of its
sealing (tests/support/fingerprint.py): a run ends with 125 and the name of the step, or its box is sealed as ever. The
first and the last use of each system call and every write are tried, and all of them (which takes a minute) with
GLOVEBOX_TEST_EVERY_CALL=1."""

from __future__ import annotations

import errno
import os
import platform
import re
from pathlib import Path

import pytest
from support.glovebox import Completed, Glovebox, find_binary
from support.host_count import count_host, left_behind

FINGERPRINT = Path(__file__).resolve().parents[1] / "support/fingerprint.py"

# Numbers of x86-64.
WRITE, CLOSE, EXIT_GROUP, SECCOMP = 1, 3, 231, 317

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="optional: knows the calls of x86-64 only")


class Injector:
    """Runs glovebox with one call of the sealing failing."""

    def __init__(self, glovebox: Glovebox) -> None:
        self.glovebox = glovebox
        self.program = find_binary().parent / "tests/support/inject"
        assert os.access(self.program, os.X_OK), f"{self.program} is missing: run make"
        self.code = glovebox.place.write("fingerprint.py", FINGERPRINT.read_text())
        self.trace = glovebox.place.write("trace", "")
        if glovebox.binary.parent == glovebox.place.path / "bin":  # a copy, because the build lies in a private place
            self.program = glovebox.place.write("bin/inject", self.program.read_bytes(), 0o755)

    def run(self, index: int, error: int) -> Completed:
        words = [self.program, str(index), str(error), self.trace, "--", self.glovebox.binary, "run", self.code]
        outside = Glovebox(Path(words[0]), self.glovebox.place, self.glovebox.groups)
        return outside(*words[1:], timeout=120)

    def calls(self) -> list[int]:
        return [int(line) for line in self.trace.read_text().split()]


def chosen(calls: list[int]) -> list[int]:
    """Which calls to try, by their place from 1."""
    places = [place for place, number in enumerate(calls, 1) if number not in (CLOSE, EXIT_GROUP)]
    if os.environ.get("GLOVEBOX_TEST_EVERY_CALL"):
        return places
    first = {calls[place - 1]: place for place in reversed(places)}
    last = {calls[place - 1]: place for place in places}
    knobs = {place for place in places if calls[place - 1] == WRITE}
    turns = {(calls[place - 2], calls[place - 1]): place for place in reversed(places) if place > 1}
    return sorted({*first.values(), *last.values(), *knobs, *turns.values()})


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_any_failing_call_of_the_sealing_is_fatal_or_changes_nothing(glovebox: Glovebox) -> None:
    injector = Injector(glovebox)
    sealed = injector.run(0, errno.EPERM)
    assert sealed.returncode == 0, sealed.stderr
    calls = injector.calls()
    assert len(calls) > 300 and len(set(calls)) > 30, "the trace does not look like a sealing"
    before = count_host(glovebox)
    steps: set[str] = set()
    for place in chosen(calls):
        error = errno.ENOMEM if place % 2 else errno.EPERM
        done = injector.run(place, error)
        what = f"call {place} (number {calls[place - 1]}) answered {errno.errorcode[error]}: {done.stderr}"
        if done.returncode == 0:
            assert done.stdout == sealed.stdout, what
            continue
        named = re.match(r'glovebox: box step "(\w+)": ', done.stderr)
        assert (done.returncode, done.stdout) == (125, "") and named, what
        steps.add(named.group(1))
    must = {"detach", "identity", "root", "image", "etc", "devices", "proc", "namespaces", "masks", "writable", "code"}
    must |= {"name", "pivot", "groups", "lock", "rlimits", "descriptors", "privileges", "landlock", "seccomp", "agent"}
    assert must <= steps, f"no failure was provoked in {sorted(must - steps)}"
    assert left_behind(glovebox, before) == {}


def test_no_tenant_code_runs_when_the_last_wall_fails(glovebox: Glovebox) -> None:
    injector = Injector(glovebox)
    assert injector.run(0, errno.EPERM).returncode == 0
    place = 1 + injector.calls().index(SECCOMP)
    injector.code.write_text("print('I ran')\n")
    assert injector.run(0, errno.EPERM).stdout == "I ran\n"
    done = injector.run(place, errno.EINVAL)
    assert (done.returncode, done.stdout) == (125, "") and 'box step "seccomp"' in done.stderr, done.stderr


@pytest.mark.vm
def test_two_boxes_are_sealed_alike_for_every_caller(glovebox: Glovebox) -> None:
    """The fingerprint is what the other tests rely on: it must show the walls, and be the same each time."""
    code = glovebox.place.write("fingerprint.py", FINGERPRINT.read_text())
    first, second = glovebox("run", code), glovebox("run", code)
    assert first.returncode == 0 and first.stdout == second.stdout, first.stderr
    for wall in ('"CapBnd": ["0000000000000000"]', '"NoNewPrivs": ["1"]', '"Seccomp": ["2"]', '"groups": "'):
        assert wall in first.stdout
