"""Artifacts: what a run created or changed, and nothing that the host should not read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.client import Client
from support.daemon import Daemon


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


def paths(done: dict) -> list[str]:
    assert done["status"] == "ok", done
    return [item["path"].removeprefix("/workspace/artifacts/") for item in done["artifacts"]]


def test_only_what_is_new_or_changed_is_listed_with_its_place_on_the_host(client: Client) -> None:
    done = client.execute(
        "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/a.txt', 'w').write('1')", "new"
    )
    workspace = client.request("session.show", session="new")["workspace"]
    host = f"{workspace}/artifacts/a.txt"
    assert done["artifacts"] == [
        {"path": "/workspace/artifacts/a.txt", "host_path": host, "size": 1, "mime": "text/plain"}
    ], done
    assert Path(host).read_text() == "1"
    assert paths(client.execute("pass", "new")) == []
    assert paths(client.execute("open('artifacts/b.png', 'w').close()", "new")) == ["b.png"]
    assert paths(client.execute("open('artifacts/a.txt', 'w').write('2')", "new")) == ["a.txt"]
    assert paths(client.execute("os.remove('artifacts/a.txt')", "new")) == []
    listed = client.request("artifact.list", session="new")["artifacts"]
    assert [(item["path"], item["mime"]) for item in listed] == [("/workspace/artifacts/b.png", "image/png")]


def test_artifacts_after_many_runs_without_any_are_noticed_from_any_process(client: Client) -> None:
    """An empty directory with the same change time is not read again (src/session/artifact_collect.c)."""
    client.execute("import os, subprocess, time", "quiet")

    def rest(session: str = "quiet") -> None:
        time.sleep(0.1)  # a change time is trusted when it is past
        for _ in range(3):
            assert paths(client.execute("pass", session)) == []

    rest()
    assert paths(client.execute("open('artifacts/own', 'w').close()", "quiet")) == ["own"]
    assert paths(client.execute("os.remove('artifacts/own')", "quiet")) == []
    rest()
    assert paths(client.execute("subprocess.run(['touch', 'artifacts/child'])", "quiet")) == ["child"]
    assert paths(client.execute("os.remove('artifacts/child')", "quiet")) == []
    rest()
    client.execute("late = subprocess.Popen(['sh', '-c', 'sleep 0.3; touch artifacts/late'])", "quiet")
    assert paths(client.execute("late.wait()", "quiet")) == ["late"]
    assert paths(client.execute("os.remove('artifacts/late')", "quiet")) == []
    rest()
    client.execute("later = subprocess.Popen(['sh', '-c', 'sleep 0.3; touch artifacts/between'])", "quiet")
    time.sleep(0.6)
    assert paths(client.execute("pass", "quiet")) == ["between"]
    assert paths(client.execute("os.remove('artifacts/between')", "quiet")) == []
    rest()
    other = "os.rename('artifacts', 'away'); os.mkdir('artifacts'); open('artifacts/other', 'w').close()"
    assert paths(client.execute(other, "quiet")) == ["other"]
    assert paths(client.execute("os.remove('artifacts/other')", "quiet")) == []
    rest()
    assert paths(client.execute("os.rename('away', 'artifacts/moved')", "quiet")) == []
    assert paths(client.execute("open('artifacts/moved/inside', 'w').close()", "quiet")) == ["moved/inside"]

    # What comes elsewhere says nothing about this one, and hides nothing either.
    for name in ("here", "there"):
        client.execute("pass", name)
        rest(name)
    assert paths(client.execute("open('artifacts/a', 'w').close()", "there")) == ["a"]
    rest("here")
    assert paths(client.execute("open('artifacts/b', 'w').close()", "here")) == ["b"]


def test_a_box_that_makes_files_all_day_long_is_answered_once(daemon: Daemon, client: Client) -> None:
    client.execute("import os, subprocess, sys", "busy")
    time.sleep(0.1)
    assert paths(client.execute("pass", "busy")) == []
    code = "import os\nwhile True: open('artifacts/x', 'w').close(); os.remove('artifacts/x')"
    client.execute(f"child = subprocess.Popen([sys.executable, '-c', {code!r}])", "busy")
    time.sleep(0.3)

    def daemon_seconds() -> float:
        fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = daemon_seconds()
    time.sleep(1)
    assert daemon_seconds() - before < 0.07
    client.execute("child.kill()", "busy")


HOSTILE = r"""
import os, resource, socket
os.makedirs('artifacts', exist_ok=True)
os.chdir('artifacts')
os.symlink('/etc/passwd', 'link')
os.symlink('/', 'directory-link')
os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket')
with open('sparse', 'wb') as file: file.truncate(min(resource.getrlimit(resource.RLIMIT_FSIZE)[0], 1 << 40) // 2)
open('new\nline\x1b[31m', 'w').close()
open(b'not-utf8-\xff', 'w').close()
open('.hidden', 'w').close()
for depth in range(40):
    os.mkdir('d'); os.chdir('d')
open('deep', 'w').close()
os.chdir('/workspace')
"""


@pytest.mark.parametrize("where", ["session", "ephemeral"])
def test_links_fifos_sockets_sparse_giants_and_hostile_names_do_no_harm(
    daemon: Daemon, client: Client, where: str
) -> None:
    done = client.execute(HOSTILE, "hostile" if where == "session" else None)
    names = paths(done)
    assert "fifo" not in names and "socket" not in names and "link" not in names, names
    assert not [name for name in names if name.startswith("directory-link")]
    assert ".hidden" in names and "new\nline\x1b[31m" in names
    for item in done["artifacts"]:
        host = Path(item["host_path"])
        assert host.is_file() and not host.is_symlink() and str(host).startswith(str(daemon.data)), item
        assert host.stat().st_blocks * 512 < 1 << 20, item
    if where == "session":
        # What the code left is removed whole, however deep it lies.
        workspace = Path(client.request("session.show", session="hostile")["workspace"])
        client.request("session.remove", session="hostile")
        client.request("ping")
        assert not workspace.exists()


def test_an_artifacts_directory_that_is_a_link_is_not_followed(client: Client) -> None:
    done = client.execute(
        "import os\nos.rmdir('artifacts') if os.path.isdir('artifacts') else None\nos.symlink('/etc', 'artifacts')",
        "linked",
    )
    assert paths(done) == []
    assert client.request("artifact.list", session="linked")["artifacts"] == []


def test_files_of_the_host_are_never_written_through_a_link_in_outputs(daemon: Daemon, client: Client) -> None:
    done = client.execute("import os\nos.makedirs('artifacts/x', exist_ok=True)\nopen('artifacts/x/a', 'w').write('b')")
    made = Path(done["artifacts"][0]["host_path"])
    assert made.parent.parent.parent == daemon.data / "outputs" and made.read_text() == "b"
    assert made.stat().st_uid == 0
