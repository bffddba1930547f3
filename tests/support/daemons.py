"""Making daemons for tests, ending them, and looking at what is left."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from support.cgroups import TestGroups
from support.daemon import Daemon
from support.glovebox import USER_ID, Glovebox, Place, reachable_binary

StartDaemon = Callable[..., Daemon]
_numbers = itertools.count(1)


def link_images(layer_data: Path, place: Place) -> None:
    """The images of another data directory as hard links, or copies where the file systems differ."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
            place.give(Path(target))

    shutil.copytree(layer_data / "images", place.data / "images", symlinks=True, copy_function=link, dirs_exist_ok=True)
    for directory, _, _ in os.walk(place.data):
        place.give(Path(directory))


def make_daemons(binary: Path, layer: Path | None = None) -> Iterator[StartDaemon]:
    """Gives a function that makes daemons, each in a place of its own; ends them and looks at what is left."""
    made: list[Daemon] = []

    def make(*options: str, who: str = "root", env: Mapping[str, str] | None = None, start: bool = True) -> Daemon:
        if who == "root" and os.geteuid() != 0:
            pytest.skip("needs root: run the tests with sudo")
        groups = TestGroups(f"glovebox-test-{os.getpid()}-daemon-{next(_numbers)}")
        place = Place(who)
        if os.geteuid() == 0 and who == "user":
            groups.delegate(USER_ID, USER_ID)
        if layer is not None:
            link_images(layer, place)
        daemon = Daemon(Glovebox(reachable_binary(binary, place), place, groups), *options, env=env)
        made.append(daemon)
        return daemon.start() if start else daemon

    yield make
    problems = []
    for daemon in made:
        daemon.stop()
        if left := daemon.leftovers():
            status = daemon.process.returncode if daemon.process else None
            problems.append(f"{left}\nthe daemon ended with {status}; its log:\n{daemon.words()}")
        if "which cannot be; please report" in daemon.words():  # a move that is not in a table of states
            problems.append(daemon.words())
        if os.geteuid() == 0:
            daemon.glovebox.groups.remove()
        daemon.glovebox.place.remove()
    assert not problems, "\n".join(problems)
