"""Makes attempts with a runner and gives a verdict for each.

Harmless attempts share a box, one for each group, because a hundred boxes take longer than ten. If such a run
ends before all verdicts are in, the attempt it ended in is BROKEN and the rest goes on in a fresh box."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import bundle
from .judges import JUDGES, Case, Verdict, memory_ended
from .runners import Ended, Runner, Start, slowness
from .world import World, tree_digest

RUN_SECONDS = 300.0 * slowness()


def attempts() -> dict[str, Any]:
    found: dict[str, Any] = bundle.load().ATTEMPTS
    return found


def meant_for(runner: Runner, item: Any) -> bool:
    return item.only in ("", runner.name)


def make_start(runner: Runner, world: World, names: list[str], options: dict[str, Any]) -> tuple[Start, dict[str, Any]]:
    start = Start(world, world.directory / "script.py", options)
    if options.get("workspace") or not runner.inside:
        start.workspace = world.make_directory("workspace")
    if options.get("mount"):
        start.mount = world.make_sealed_directory("mounted")
    if options.get("data"):
        start.data = world.make_sealed_directory("data")
    if options.get("stdin_file"):
        start.stdin = world.write("stdin", "read me")
    if options.get("stdout_file"):
        start.stdout = world.write("stdout", f"{world.secret}\n")
    config = {**world.config(), **runner.paths(start), "runner": runner.name, "slowness": slowness()}
    start.script = world.write("script.py", bundle.script(names, config))
    return start, config


def verdicts_in(ended: Ended, as_json: bool) -> tuple[dict[str, Verdict], str]:
    """What the attempts said, and the name of the one that began and never ended."""
    text = ended.stdout
    if as_json:
        try:
            text = json.loads(text).get("stdout", "")
        except ValueError:
            text = ""
    said: dict[str, Verdict] = {}
    begun = ""
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "begin" in row:
            begun = row["begin"]
        elif "attempt" in row:
            said[row["attempt"]] = (row["verdict"], row["why"])
            begun = ""
    return said, begun


def how_it_ended(ended: Ended) -> str:
    return f"the run ended with {ended.status} before a verdict: {(ended.stderr or ended.stdout)[-300:].strip()}"


def run_together(runner: Runner, world: World, names: list[str]) -> dict[str, Verdict]:
    """Many attempts in one box."""
    verdicts: dict[str, Verdict] = {}
    left = list(names)
    while left:
        start, _ = make_start(runner, world, left, {"session": True})
        try:
            ended = runner.run(start, RUN_SECONDS)
        except subprocess.TimeoutExpired:
            return verdicts | {name: ("BROKEN", f"the run did not end in {RUN_SECONDS:g} s") for name in left}
        said, begun = verdicts_in(ended, False)
        verdicts.update(said)
        if not said and not begun:
            return verdicts | {name: ("BROKEN", how_it_ended(ended)) for name in left}
        if begun:
            verdicts[begun] = ("BROKEN", how_it_ended(ended))
        left = [name for name in left if name not in verdicts]
    return verdicts


def guarded(start: Start, runner: Runner, world: World) -> dict[str, str]:
    """Digests of what must not change."""
    places = {"mount": start.mount, "data": start.data, "outside": world.canary_file.parent}
    digests = {kind: tree_digest(path) for kind, path in places.items() if path}
    glovebox = getattr(runner, "glovebox", None)
    if glovebox is not None:
        tops = (glovebox.place.data, glovebox.place.temporary)
        digests["state"] = "\n".join(sorted(name for top in tops for name in names_below(top)))
    return digests


def names_below(top: Path) -> Iterable[str]:
    for directory, _, files in os.walk(top):
        if "/images" not in directory:
            yield directory
            yield from (f"{directory}/{name}" for name in files)


def run_alone(runner: Runner, world: World, name: str) -> Verdict:
    """One attempt in a box of its own, judged from outside as well."""
    item = attempts()[name]
    start, config = make_start(runner, world, [name], item.box)
    before = guarded(start, runner, world)
    try:
        ended = runner.run(start, RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return "BROKEN", f"the run did not end in {RUN_SECONDS:g} s"
    said = verdicts_in(ended, bool(item.box.get("json")))[0].get(name)
    case = Case(runner, world, config, ended, said, before, guarded(start, runner, world))
    if said is not None and said[0] in ("ESCAPED", "NO_TOOL", "BROKEN"):
        JUDGES.get(name, memory_ended)(case)  # it may have to tidy up
        return said
    verdict = JUDGES.get(name, memory_ended)(case)
    return verdict or ("BROKEN", how_it_ended(ended))


def run_all(runner: Runner, world: World, names: list[str]) -> dict[str, Verdict]:
    """Every attempt of the list that has a meaning for this runner."""
    table = attempts()
    wanted = [name for name in names if meant_for(runner, table[name])]
    verdicts: dict[str, Verdict] = {}
    for group in dict.fromkeys(table[name].group for name in wanted):
        verdicts.update(run_group(runner, world, group, wanted))
    return verdicts


def run_group(runner: Runner, world: World, group: str, names: list[str]) -> dict[str, Verdict]:
    table = attempts()
    mine = [name for name in names if table[name].group == group]
    verdicts = run_together(runner, world, [name for name in mine if not table[name].alone])
    for name in mine:
        if table[name].alone:
            verdicts[name] = run_alone(runner, world, name)
    return verdicts
