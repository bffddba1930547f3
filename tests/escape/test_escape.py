"""Attempts to break out of a box, each its own test, as root and as an ordinary user.

Attempts of one group share a box (escapes/harness.py), so the first test of a group takes the time of all. Which ones
there are, what they try and where they have been seen to succeed stands beside each of them under attempts/."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from escapes import harness
from escapes.judges import Verdict
from escapes.runners import GloveboxRunner
from escapes.world import World
from support.cgroups import TestGroups
from support.glovebox import Glovebox, Place, reachable_binary

ATTEMPTS = {name: item for name, item in harness.attempts().items() if item.only in ("", "glovebox")}

Judged = Callable[[str, str], Verdict]


@pytest.fixture(scope="module")
def judged(binary: Path, groups: dict[str, TestGroups]) -> Iterator[Judged]:
    """Gives the verdict of (who, attempt); the whole group of the attempt runs when it is first asked for."""
    runners: dict[str, tuple[Place, GloveboxRunner, World]] = {}
    verdicts: dict[tuple[str, str], Verdict] = {}

    def runner_of(who: str) -> tuple[Place, GloveboxRunner, World]:
        if who not in runners:
            place = Place(who)
            runner = GloveboxRunner(Glovebox(reachable_binary(binary, place), place, groups[who]))
            runners[who] = place, runner, World(place.uid)
        return runners[who]

    def ask(who: str, name: str) -> Verdict:
        if (who, name) not in verdicts:
            _, runner, world = runner_of(who)
            group = harness.run_group(runner, world, ATTEMPTS[name].group, list(ATTEMPTS))
            verdicts.update({(who, key): verdict for key, verdict in group.items()})
        return verdicts[who, name]

    yield ask
    for place, _, world in runners.values():
        world.close()
        place.remove()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("name", ATTEMPTS)
def test_box_holds(judged: Judged, name: str, who: str) -> None:
    if who == "root" and os.geteuid() != 0:
        pytest.skip("needs root: run the tests with sudo")
    verdict, why = judged(who, name)
    assert verdict == "BLOCKED", f"{verdict}: {ATTEMPTS[name].title}: {why}"


@pytest.mark.timeout(900)
def test_box_with_the_widest_network_holds(glovebox: Glovebox) -> None:
    """A proxy in reach opens none of the ways around it."""
    runner = GloveboxRunner(glovebox, "--network", "full")
    world = World(glovebox.place.uid)
    try:
        verdicts = harness.run_group(runner, world, "network", list(ATTEMPTS))
    finally:
        world.close()
    out = {name: why for name, (verdict, why) in verdicts.items() if verdict != "BLOCKED"}
    assert verdicts and not out, out


def test_there_are_enough_attempts_in_each_group() -> None:
    counts = {group: sum(item.group == group for item in ATTEMPTS.values()) for group in harness.bundle.load().GROUPS}
    assert sum(counts.values()) >= 100
    assert min(counts.values()) >= 10, counts


def test_every_attempt_names_a_promise_and_a_weak_place() -> None:
    for name, item in ATTEMPTS.items():
        assert item.promise, name
        place, _, reason = item.weak.partition(": ")
        assert place in ("host", "host-root", "userns", "bwrap", "docker") or (place == "-" and reason), name
