"""Names and places: the directories of the seeds, sockets of projects, names of sessions."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon


def test_the_workspace_has_all_its_names(daemon: Daemon) -> None:
    client = daemon.client()
    code = """
import os
open('/workspace/mark', 'w').write('here')
print([open(place + '/mark').read() for place in ('/session', '/sandbox', '/work')], os.getcwd())
print(os.environ['WORKSPACE_DIR'], os.access(os.environ['HOME'], os.W_OK), os.access('/usr', os.W_OK))
"""
    assert client.execute(code, "places")["stdout"] == "['here', 'here', 'here'] /workspace\n/workspace True False\n"


def test_data_is_a_read_only_mount(daemon: Daemon) -> None:
    place = daemon.glovebox.place
    dataset = place.path / "dataset"
    dataset.mkdir(exist_ok=True)
    (dataset / "table.csv").write_text("1,2")
    client = daemon.client()
    with pytest.raises(DaemonError) as caught:  # naming a path is permission for the operator only
        client.execute("1", "data-refused", data=str(dataset))
    assert caught.value.code == "refused"
    client.request("session.create", session="data", data=str(dataset), env={"NAME": "value"}, operator=True)
    done = client.execute(
        "import os\nprint(open('/data/table.csv').read(), os.environ['NAME'])\nopen('/data/x', 'w')", "data"
    )
    assert done["stdout"] == "1,2 value\n" and done["error"]["name"] in ("OSError", "PermissionError"), done
    assert os.listdir(dataset) == ["table.csv"]


def test_a_workspace_of_the_callers_own_is_used_and_survives_the_session(daemon: Daemon) -> None:
    workspace = daemon.glovebox.place.make("own-workspace")
    client = daemon.client()
    client.execute("open('mark', 'w').write('x')", "own", workspace=str(workspace), operator=True)
    assert (workspace / "mark").read_text() == "x"
    client.request("session.remove", session="own")
    assert client.request("ping")["ok"] and (workspace / "mark").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "x" * 129, "a b", "é", "a\n", "_x"])
def test_a_name_that_is_not_one_is_refused(daemon: Daemon, name: str) -> None:
    with pytest.raises(DaemonError) as caught:
        daemon.client().execute("1", name)
    assert caught.value.code == "usage" and "name" in caught.value.message


def test_ids_are_long_random_and_name_the_session_too(daemon: Daemon) -> None:
    client = daemon.client()
    ids = [client.request("session.create", session=f"id-{i}")["id"] for i in range(8)]
    assert all(re.fullmatch("[0-9a-z]{26}", value) for value in ids) and len({value[:6] for value in ids}) == 8, ids
    client.execute("x = 5", "id-0")
    assert client.execute("x", ids[0])["result"] == {"text/plain": "5"}
    again = client.request("session.create", session="id-0")
    assert (again["id"], again["created"]) == (ids[0], False)
    runs = [client.execute("1", "id-0")["run_id"] for _ in range(2)]
    assert all(re.fullmatch("[0-9a-f]{32}", run) for run in runs) and runs[0] != runs[1]


def test_the_command_line_lists_shows_logs_and_removes(daemon: Daemon) -> None:
    assert daemon.cli("session", "new", "cli", "--memory", "200m").returncode == 0
    done = daemon.cli("exec", "cli", "-c", "x = 6\nprint('out')\nx * 7")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n42\n", ""), done
    assert "cli" in daemon.cli("session", "ls", "--names").stdout.split()
    assert "200 MiB" in daemon.cli("session", "show", "cli").stdout
    assert daemon.cli("session", "hibernate", "cli").returncode == 0
    assert daemon.cli("exec", "cli", "-c", "x").stdout == "6\n"
    assert daemon.cli("session", "log", "cli").stdout.strip()
    assert daemon.cli("session", "restart", "cli").returncode == 0
    failed = daemon.cli("exec", "cli", "-c", "x")
    assert failed.returncode == 1 and "NameError" in failed.stderr, failed
    assert daemon.cli("status").stdout.startswith("daemon") and daemon.cli("session", "rm", "cli").returncode == 0
    assert daemon.cli("session", "show", "cli").returncode != 0


def test_the_isolation_report_has_no_user_before_a_box_is_made(daemon: Daemon) -> None:
    client = daemon.client()
    client.request("session.create", session="report")
    assert client.request("session.show", session="report")["isolation"]["uid_map"] is None
    client.execute("1", "report")
    inside, outside, count = map(int, client.request("session.show", session="report")["isolation"]["uid_map"].split())
    assert (inside, count) == (1000, 1) and outside > 0


# Sockets


def test_a_project_has_a_socket_of_its_own_that_is_found_from_below(start_daemon) -> None:  # noqa: ANN001
    daemon = start_daemon(start=False)
    project = daemon.glovebox.place.make("project")
    below = project / "src/deep"
    below.mkdir(parents=True)
    daemon.socket = str(project / ".sandbox/kernel.sock")
    daemon.start()
    assert Path(daemon.socket).stat().st_mode & 0o777 == 0o600
    done = daemon.glovebox("exec", "here", "-c", "6 * 7", cwd=below)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    done = daemon.glovebox("session", "ls", "--names", "--project", project)
    assert done.stdout == "here\n", done


def test_a_stale_socket_is_replaced_and_a_live_one_never(start_daemon) -> None:  # noqa: ANN001
    first = start_daemon()
    second = start_daemon(start=False)
    second.socket = first.socket
    assert second.launch().wait(60) != 0
    assert "another daemon listens on" in second.words()
    assert first.client().request("ping")["pid"] == first.pid
    first.kill()
    assert Path(first.socket).is_socket()  # stale now
    second.start()
    assert second.client().request("ping")["pid"] == second.pid
    second.stop()
    first.start()


def test_something_else_at_the_sockets_place_is_not_touched(start_daemon) -> None:  # noqa: ANN001
    daemon = start_daemon(start=False)
    Path(daemon.socket).write_text("precious")
    assert daemon.launch().wait(60) != 0
    assert "is not a socket" in daemon.words() and Path(daemon.socket).read_text() == "precious"


def test_a_socket_whose_path_is_too_long_says_what_to_do(start_daemon) -> None:  # noqa: ANN001
    daemon = start_daemon(start=False)
    daemon.socket = str(daemon.data / ("x" * 120))
    assert daemon.launch().wait(60) != 0
    assert "shorter" in daemon.words()


def test_only_the_owner_may_talk_to_the_daemon(daemon: Daemon) -> None:
    os.chmod(daemon.socket, 0o666)
    for parent in (daemon.data, daemon.glovebox.place.path):
        parent.chmod(0o755)
    os.seteuid(61235)
    try:
        with Client(daemon.socket) as stranger, pytest.raises((ConnectionError, socket.timeout)):
            stranger.request("ping")
    finally:
        os.seteuid(0)
        daemon.data.chmod(0o700)
        os.chmod(daemon.socket, 0o600)
