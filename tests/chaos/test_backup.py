"""docs/OPERATIONS.md, followed to the letter: a backup while the service runs, restored into another directory."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from support.daemon import Daemon, wait_for
from support.daemons import StartDaemon
from support.glovebox import REPOSITORY
from support.service import start_service

FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(section: str) -> list[str]:
    text = (REPOSITORY / "docs/OPERATIONS.md").read_text()
    body = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return FENCE.findall(body)


def follow(daemon: Daemon, script: str, **variables: str | Path) -> str:
    environment = daemon.glovebox.environment({"GLOVEBOX_SOCKET": daemon.socket})
    environment["PATH"] = f"{daemon.glovebox.binary.parent}:{os.environ['PATH']}"
    environment.update({name: str(value) for name, value in variables.items()})
    command = ["sh", "-ec", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (script, done.stdout, done.stderr)
    return done.stdout


def test_the_documented_backup_brings_back_sessions_files_and_variables(start_daemon: StartDaemon) -> None:
    service = start_service(start_daemon(start=False))
    daemon, ann = service.daemon, service.client("ann")
    ann.execute("report", "x = 41\nopen('kept.txt', 'w').write('still here')")
    daemon.cli("exec", "mine", "-c", "y = [1, 2]; open('mine.txt', 'w').write('mine')")
    assert ann.post("/sandbox/busy/execute", {"code": "open('b', 'w').write('b')\nwhile True: pass", "detach": True})
    wait_for("it to run", lambda: ann.get("/sandbox/busy").json()["state"] == "running")
    backup = daemon.glovebox.place.path / "backup.tar"
    for script in commands("Backup"):
        follow(daemon, script, DATA=daemon.data, BACKUP=backup)
    assert ann.execute("report", "x")["result"]["text/plain"] == "41", "the service goes on"

    other = start_daemon(start=False)
    extract, look = commands("Restore")
    follow(other, extract, RESTORED=other.data, BACKUP=backup)
    other.options = (*other.options, "--port", "0")
    other.start()
    names = follow(other, look, RESTORED=other.data)
    assert sorted(names.split()) == ["ann/busy", "ann/report", "mine"]
    restored = other.client()
    done = restored.execute("x, open('kept.txt').read()", "ann/report")
    assert done["result"]["text/plain"] == "(41, 'still here')", done
    assert restored.execute("y", "mine")["result"]["text/plain"] == "[1, 2]"
    assert restored.execute("open('b').read()", "ann/busy")["result"]["text/plain"] == "'b'"
    assert ann.get("/sandbox/busy").json()["state"] == "running", "and the one it was taken from does not notice"
    assert ann.delete("/sandbox/busy/destroy").status == 200
