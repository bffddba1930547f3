"""The attempts of test_escape.py behind the other doors: in kernels forked from a nursery and in kernels executed.

A forked kernel is sealed by code of its own (guest/nursery/spawn.c), so each attempt is made there again. Those of one
group are one test here: what they are stands in attempts/, and a failure names the ones that got out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from escapes import harness
from escapes.kernels import NOT_FOR_KERNELS, KernelRunner, start_daemon
from escapes.world import World
from support.daemons import make_daemons

ATTEMPTS = {name: item for name, item in harness.attempts().items() if item.only in ("", "glovebox")}
ASKED = [name for name in ATTEMPTS if name not in NOT_FOR_KERNELS]

Doors = Callable[[str, str], tuple[KernelRunner, World]]


@pytest.fixture(scope="module")
def doors(binary: Path) -> Iterator[Doors]:
    """Gives a runner for (who, mode); one daemon for each user, which serves both modes."""
    worlds: dict[str, World] = {}
    runners: dict[tuple[str, str], KernelRunner] = {}
    try:
        for make in make_daemons(binary):

            def runner_of(who: str, mode: str) -> tuple[KernelRunner, World]:
                if who not in worlds:
                    daemon = make(who=who, start=False)  # noqa: B023
                    worlds[who] = World(daemon.glovebox.place.uid)
                    start_daemon(daemon, worlds[who])
                    runners.update({(who, mode): KernelRunner(daemon, mode) for mode in ("fast", "fresh")})
                return runners[who, mode], worlds[who]

            yield runner_of
    finally:
        for world in worlds.values():
            world.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", harness.bundle.load().GROUPS)
@pytest.mark.parametrize(("who", "mode"), [("root", "fast"), ("root", "fresh"), ("user", "fast")])
def test_kernel_holds(doors: Doors, who: str, mode: str, group: str) -> None:
    runner, world = doors(who, mode)
    verdicts = harness.run_group(runner, world, group, ASKED)
    assert set(verdicts) == {name for name in ASKED if ATTEMPTS[name].group == group}
    wrong = [f"{name}: {verdict}: {why}" for name, (verdict, why) in verdicts.items() if verdict != "BLOCKED"]
    assert not wrong, "\n".join(wrong)


def test_every_attempt_left_out_exists_and_there_are_few() -> None:
    assert set(NOT_FOR_KERNELS) <= set(ATTEMPTS) and len(NOT_FOR_KERNELS) < 10
