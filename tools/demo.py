#!/usr/bin/env python3
"""The demonstration of `make demo`: a real data analysis in a sealed box, and what came out of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
GLOVEBOX = REPOSITORY / "build/glovebox"
SCRIPT = REPOSITORY / "examples/analysis.py"
RESULTS = REPOSITORY / "build/demo/artifacts"  # like everything that is built: `make clean` removes it
NEEDED = "numpy pandas matplotlib"
COULD_NOT_START = 125


def say(text: str = "") -> None:
    print(text, flush=True)


def run(options: list[str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [GLOVEBOX, "run", *options, *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def choose_options() -> list[str]:
    """No options if this host can enforce every limit; otherwise --allow-weaker, and prints that."""
    probe = run([], "-c", "pass")
    if probe.returncode == 0:
        return []
    weaker = ["--allow-weaker"]
    if probe.returncode == COULD_NOT_START and run(weaker, "-c", "pass").returncode == 0:
        say("This host cannot enforce every limit for this user, so the demo runs with --allow-weaker:")
        say(f"  {probe.stderr.strip()}\n")
        return weaker
    sys.exit(f"demo: a box could not be made: {probe.stderr.strip()}\nrun build/glovebox doctor to see what to do")


def has_layer(options: list[str]) -> bool:
    code = f"import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, {NEEDED.split()!r})))"
    return run(options, "-c", code).returncode == 0


def ensure_layer(options: list[str]) -> None:
    """The scientific packages, once; later demos find them."""
    if has_layer(options):
        return
    say("Building the scientific layer of the image `host`, once:")
    built = subprocess.run([str(GLOVEBOX), "image", "build", "host"], check=False)
    if built.returncode != 0:
        sys.exit("demo: the scientific layer could not be built, see above")


def analyse(options: list[str], workspace: str) -> dict[str, Any]:
    options = [*options, "--json", "--memory", "1g", "--workspace", workspace]
    say(f"$ glovebox run --json --memory 1g --workspace {workspace} examples/{SCRIPT.name}\n")
    done = run(options, SCRIPT)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"demo: the run did not start: {done.stderr.strip()}")
    return result


def main() -> int:
    if not GLOVEBOX.exists():
        sys.exit("demo: build/glovebox is missing: run make first")
    options = choose_options()
    ensure_layer(options)
    # Not in the tree: a tree below /root could not be mounted, and must not be.
    with tempfile.TemporaryDirectory(prefix="glovebox-demo-") as workspace:
        return show(analyse(options, workspace), workspace)


def keep(artifact: dict[str, Any], workspace: str) -> str:
    """Where a copy of it is that outlives the workspace."""
    place = RESULTS / Path(artifact["path"]).name
    try:
        RESULTS.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # it may be of another user's demo
        shutil.copyfile(artifact.get("host_path") or Path(workspace) / artifact["path"], place)
    except OSError as error:
        return f"{artifact['path']}, not kept: {error}"
    return str(place)


def show(result: dict[str, Any], workspace: str) -> int:
    say(result["stdout"])
    if result["stderr"]:
        say(result["stderr"])
    if result["status"] != "ok":
        say(f"the run ended with status {result['status']}")
        return 1
    for artifact in result["artifacts"]:
        place = keep(artifact, workspace)
        say(f"artifact   {place}  ({artifact['mime']}, {artifact['size']:,} bytes)")
    say(f"took       {result['duration_ms']:.0f} ms in a fresh box that is gone now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
