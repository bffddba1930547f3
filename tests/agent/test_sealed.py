"""The same operations behind the walls of a box: nothing that seals it is in the agent's way."""

from __future__ import annotations

import shutil
from pathlib import Path

from support import agent as agent_module
from support.glovebox import Glovebox, find_binary

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, "/mnt/try")
from agent_wire import *

agent = Agent(Path("/mnt/try/agent"))
agent.start(1, ["sh", "-c", "stty size; echo to the terminal >/dev/tty"], u32(TERMINAL, 33, 99))
assert agent.finish(1) == (b"33 99\\r\\nto the terminal\\r\\n", b"", 0)
agent.start(2, ["sh", "-c", "echo err >&2; cat"], u32(STREAMS))
agent.send(INPUT, 2, text(b"abc"))
agent.send(INPUT_END, 2)
assert agent.finish(2) == (b"abc", b"err\\n", 0)
try:
    agent.ask(WATCH, text("/workspace"), id=3)
except Failure as failure:
    print(failure)  # inotify is closed to boxes, and their agent is under the same filter
agent.ask(WRITE, u32(BEGIN | COMMIT) + text("/workspace/file") + u32(0) + text(b"abc"), id=4)
agent.ask(MKDIR, text("/workspace/a/b/c") + u32(0o755, 1))
agent.ask(MOVE, text("/workspace/file") + text("/workspace/a/b/file"))
answer = agent.ask(READ, text("/workspace/a/b/file") + u64(0) + u32(100))
assert (answer.u64(), answer.bytes()) == (3, b"abc")
agent.ask(REMOVE, text("/workspace/a") + u32(1))
try:
    agent.ask(WRITE, u32(BEGIN | COMMIT) + text("/usr/file") + u32(0) + text(b"abc"))
except Failure as failure:
    print(failure)
assert agent.close() == 0
"""


def test_every_operation_works_inside_a_box(glovebox: Glovebox) -> None:
    place = glovebox.place
    shared = place.make("shared", 0o755)
    for source, name in (
        (find_binary().parent / "guest/agent", "agent"),
        (Path(agent_module.__file__), "agent_wire.py"),
    ):
        shutil.copy(source, shared / name)
        place.give(shared / name)
    ran = glovebox("run", "--mount", f"{shared}:/mnt/try", "-c", PROGRAM)
    said = "watching the path: Function not implemented\nmaking the file: Read-only file system\n"
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", said)
