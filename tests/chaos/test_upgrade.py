"""Another version of the program takes over from the previous one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from support.daemon import Daemon
from support.daemons import StartDaemon
from support.glovebox import REPOSITORY
from test_daemon_killed import WAIT

MARK = (0x47765831).to_bytes(4, "little")  # VAULT_MARK of src/vault/vault_message.h


def variant(daemon: Daemon, pattern: bytes, change: bytes) -> Path:
    """The program as another version of it would be: with other bytes in the place of these."""
    content = daemon.glovebox.binary.read_bytes()
    changed = re.sub(re.escape(pattern), change, content)
    assert changed != content and len(changed) == len(content)
    path = daemon.glovebox.place.path / "another"
    path.write_bytes(changed)
    path.chmod(0o755)
    daemon.env["GLOVEBOX_KERNEL_DIR"] = str(REPOSITORY / "guest/kernel")  # which it looks for beside itself
    return path


def test_l27_a_newer_daemon_goes_on_with_the_sessions_of_the_older(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    client = daemon.client()
    version = client.request("ping")["version"]
    client.execute("x = 41", "s")
    workspace = Path(client.request("session.show", session="s")["workspace"])
    run = client.request("execute", session="s", code=WAIT, detach=True)["run_id"]
    old = daemon.glovebox.binary
    newer = "9" + version[1:]
    daemon.glovebox.binary = variant(daemon, version.encode() + b"\0", newer.encode() + b"\0")
    assert daemon.terminate() == 0
    client = daemon.start().client()
    assert client.request("ping")["version"] == newer
    (workspace / "go").touch()
    assert client.request("run.read", session="s", run=run)["result"] == {"text/plain": "42"}
    assert client.out == b"before\nafter\n"
    assert client.execute("x", "s")["result"] == {"text/plain": "41"}
    # The older command line says what is the matter and what to do.
    command = [str(old), "exec", "s", "-c", "x"]
    environment = daemon.glovebox.environment({"GLOVEBOX_SOCKET": daemon.socket})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 125 and newer in done.stderr and version in done.stderr and "restart" in done.stderr


def test_l27_a_vault_of_another_version_is_refused_clearly_and_loses_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    daemon.client().execute("x = 41", "s")
    old = daemon.glovebox.binary
    daemon.kill()
    before = sorted(os.listdir(daemon.data / "state"))
    daemon.glovebox.binary = variant(daemon, MARK, b"9" + MARK[1:])
    assert daemon.launch().wait(60) != 0
    assert "of another version" in daemon.words() and "glovebox-vault" in daemon.words(), daemon.words()
    assert sorted(os.listdir(daemon.data / "state")) == before
    daemon.glovebox.binary = old
    assert daemon.start().client().execute("x", "s")["result"] == {"text/plain": "41"}
