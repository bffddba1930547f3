"""Verdicts that only the outside can give: did the canary die, did a mount change, was a link followed?

A judge sees how the run ended and what the attempt itself said (None when it could not say anything any more)."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .runners import Ended, Runner, slowness
from .world import World

Verdict = tuple[str, str]
OUTPUT_BOUND = 64 << 20


@dataclass
class Case:
    runner: Runner
    world: World
    config: dict[str, Any]
    ended: Ended
    said: Verdict | None
    before: dict[str, str]  # digests of directories that must not change, by what they are
    after: dict[str, str]

    def changed(self, *kinds: str) -> bool:
        return any(self.before.get(kind) != self.after.get(kind) for kind in kinds)


JUDGES: dict[str, Callable[[Case], Verdict | None]] = {}


def judge(*names: str) -> Callable[[Callable[[Case], Verdict | None]], Callable[[Case], Verdict | None]]:
    def register(function: Callable[[Case], Verdict | None]) -> Callable[[Case], Verdict | None]:
        for name in names:
            JUDGES[name] = function
        return function

    return register


def leftovers(case: Case) -> list[str]:
    """What is still there after a while; processes found are ended, since they are ours."""
    end, pause = time.monotonic() + 10 * slowness(), 0.01
    while True:
        pids = case.runner.left_processes(case.config["leftover"])
        things = case.runner.left_things()
        if (not pids and not things) or time.monotonic() > end:
            break
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
        if not case.runner.inside:
            break
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return [f"process {pid}" for pid in pids] + things


@judge("processes-kill-every-process-there-is")
def canary_lives(case: Case) -> Verdict | None:
    if not case.world.process_lives():
        case.world.start_process()
        return "ESCAPED", "the process outside was killed"
    return "BLOCKED", "the process outside lives"


@judge("processes-leave-a-process-behind")
def nothing_left(case: Case) -> Verdict | None:
    left = leftovers(case)
    if left:
        return "ESCAPED", f"left behind: {left}"
    return case.said


@judge("processes-cripple-pid-1-with-limits-and-priorities", "processes-signal-pid-1")
def run_ends_anyway(case: Case) -> Verdict | None:
    left = leftovers(case)
    if left:
        return "ESCAPED", f"left behind: {left}"
    return "BLOCKED", f"the run ended with {case.ended.status} after {case.ended.seconds:.1f} s, nothing left"


@judge("processes-outlive-the-time-limit", "resources-explode-in-a-fork-bomb")
def ended_in_time(case: Case) -> Verdict | None:
    left = leftovers(case)
    if left:
        return "ESCAPED", f"left behind: {left}"
    if case.ended.status != 124:
        return "BROKEN", f"ended with {case.ended.status} and not by its time limit: {case.ended.stderr[-300:]}"
    return "BLOCKED", f"ended after {case.ended.seconds:.1f} s, nothing left"


@judge("processes-reach-the-caller-s-terminal")
def terminal_untouched(case: Case) -> Verdict | None:
    if case.config["injection"].strip() in case.ended.terminal:
        return "ESCAPED", "the caller's terminal received input"
    return case.said


@judge("files-change-a-read-only-mount", "files-change-the-data-mount")
def mount_unchanged(case: Case) -> Verdict | None:
    if case.changed("mount", "data"):
        return "ESCAPED", "the directory on the host changed"
    return case.said


@judge("files-leave-a-set-user-id-program-in-the-workspace")
def no_setuid_left(case: Case) -> Verdict | None:
    assert case.ended.start is not None and case.ended.start.workspace is not None
    for path in case.ended.start.workspace.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            return "ESCAPED", f"{path.name} has mode {stat.S_IMODE(mode):o} on the host"
    return case.said


def result_of(case: Case) -> dict[str, Any] | Verdict:
    try:
        result: dict[str, Any] = json.loads(case.ended.stdout)
    except ValueError as error:
        return "BROKEN", f"no JSON ({error}); status {case.ended.status}: {case.ended.stderr[-300:]}"
    return result


@judge("files-leave-links-out-of-the-box-among-the-artifacts")
def links_not_followed(case: Case) -> Verdict | None:
    result = result_of(case)
    if isinstance(result, tuple):
        return result
    names = {item["path"]: item for item in result["artifacts"]}
    if case.world.secret in case.ended.stdout:
        return "ESCAPED", "the secret is in the result"
    for path in names:
        base = path.removeprefix("/workspace/artifacts/")
        if base != "honest.txt":
            return "ESCAPED", f"{path} is offered as an artifact: {names[path]}"
    if not names:
        return "BROKEN", "the honest artifact is missing"
    return "BLOCKED", "only the honest file is an artifact"


@judge("files-give-artifacts-hostile-names")
def names_tamed(case: Case) -> Verdict | None:
    result = result_of(case)
    if isinstance(result, tuple):
        return result
    raw = [character for character in case.ended.stdout.strip() if ord(character) < 32 and character != "\n"]
    if raw:
        return "ESCAPED", f"control characters in the output: {raw[:5]!r}"
    if not result["artifacts"]:
        return "BROKEN", "no artifact at all"
    return "BLOCKED", f"{len(result['artifacts'])} names, all escaped"


@judge("files-swap-the-artifacts-directory-for-a-link")
def swap_wins_nothing(case: Case) -> Verdict | None:
    result = result_of(case)
    if isinstance(result, tuple):
        return result
    if case.changed("outside"):
        return "ESCAPED", "the directory outside changed"
    for item in result["artifacts"]:
        if case.world.token in json.dumps(item).replace(str(case.world.directory), ""):
            return "ESCAPED", f"a file outside is offered as an artifact: {item}"
    return "BLOCKED", f"{len(result['artifacts'])} artifacts, none from outside"


@judge("files-leave-a-tree-that-cannot-be-removed")
def tree_removed(case: Case) -> Verdict | None:
    left = leftovers(case)
    if left:
        return "ESCAPED", f"left behind: {left}"
    new = set(case.after["state"].split("\n")) - set(case.before["state"].split("\n"))
    if new:
        return "ESCAPED", f"files are left in the data directory: {sorted(new)[:5]}"
    return case.said


@judge("resources-flood-the-output")
def flood_bounded(case: Case) -> Verdict | None:
    if len(case.ended.stdout) > OUTPUT_BOUND:
        return "ESCAPED", f"{len(case.ended.stdout)} bytes of output were kept"
    result = result_of(case)
    if isinstance(result, tuple):
        return result
    return "BLOCKED", f"{len(case.ended.stdout) >> 10} KiB kept, exit status {result.get('exit_code')}"


def memory_ended(case: Case) -> Verdict | None:
    """For greedy attempts: the end of the whole box for want of memory is a refusal as well."""
    if case.said is None and case.ended.status == 137:
        return "BLOCKED", "the whole box was ended for its memory"
    return case.said
