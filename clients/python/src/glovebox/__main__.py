"""`python -m glovebox`: is everything ready, and where to get help. `--json` prints the same for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from ._place import Target, find_target
from ._start import find_program
from ._version import VERSION
from .errors import GloveboxError

HELP = """
Try it         python -c "from glovebox import Sandbox; print(Sandbox.create().run_code('6*7').text)"
Help           python -c "import glovebox; help(glovebox.Sandbox)"
This host      {program} doctor
"""


def look() -> dict[str, Any]:
    """What there is, without starting anything."""
    found: dict[str, Any] = {"version": VERSION, "python": sys.version.split()[0]}
    program = find_program()
    found["program"] = {"path": program.path, "how": program.how} if program else None
    try:
        target = find_target(start=False)
        found["daemon"] = {"at": target.name, **_ask(target)}
    except GloveboxError as error:
        found["daemon"] = {"running": False, "problem": error.message}
    return found


def _ask(target: Target) -> dict[str, Any]:
    from ._sync.client import transport_for

    target.may_start = False
    try:
        answer = transport_for(target).check()
        daemon = answer.get("daemon") or answer
        capacity = answer.get("capacity") or {}
        sandboxes = len(answer["sessions"]) if "sessions" in answer else capacity.get("sandboxes")
        return {"running": True, "version": daemon.get("version"), "pid": daemon.get("pid"), "sandboxes": sandboxes}
    except GloveboxError as error:
        return {"running": False, "problem": error.message}


def show(found: dict[str, Any]) -> None:
    program, daemon = found["program"], found["daemon"]
    print(f"glovebox-sandbox {found['version']} on Python {found['python']}")
    where = {"variable": "by GLOVEBOX_PROGRAM", "path": "in PATH", "wheel": "of the runtime wheel"}
    if program:
        print(f"Program        {program['path']} ({where[program['how']]})")
    else:
        print("Program        none: pip install glovebox-sandbox-runtime, or use a service with GLOVEBOX_URL")
    if daemon["running"]:
        more = f", process {daemon['pid']}" if daemon.get("pid") else ""
        print(f"Daemon         runs at {daemon['at']}: version {daemon['version']}{more}")
        print(f"Sandboxes      {daemon['sandboxes']}")
    elif program:
        print(f"Daemon         none at {daemon.get('at', '?')}: Sandbox.create() starts it")
    else:
        print(f"Daemon         {daemon['problem']}")
    print(HELP.format(program=program["path"] if program else "glovebox"), end="")


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--json"]):
        print(f"usage: python -m glovebox [--json]\n\n{__doc__}")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    found = look()
    if arguments:
        print(json.dumps(found))
    else:
        show(found)
    return 0 if found["daemon"]["running"] or found["program"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
