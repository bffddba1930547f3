"""A box can neither see nor use a socket or a file of Glovebox: neither of the daemon that made the box nor of any
other."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from support.client import DaemonError
from support.daemon import Daemon, cpu_seconds, wait_for
from support.glovebox import Glovebox, slowness

# Every socket and every link below the workspace, and what happens to a connect by the ways that were there.
SPY = """
import os, socket, stat
found = []
for top, folders, files in os.walk('/workspace'):
    for name in folders + files:
        path = os.path.join(top, name)
        if stat.S_ISSOCK(os.lstat(path).st_mode) or os.path.islink(path):
            found.append(path)
for path in ['/workspace/.sandbox/kernel.sock', '/workspace/.sandbox/kernel-api.sock', *found]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        found.append('connected ' + path)
    except OSError:
        pass
found += os.listdir('/workspace/.sandbox')
try:
    open('/workspace/.sandbox/planted', 'w')
    found.append('planted')
except OSError:
    pass
try:
    os.rename('/workspace/.sandbox', '/workspace/elsewhere')
    found.append('moved')
except OSError:
    pass
print(found)
"""


def start_project(glovebox: Glovebox) -> Path:
    project = glovebox.place.make("project")
    words = ("serve", "--background", "--pool", "0", "--box-pool", "0", "--preload", "", "--allow-weaker")
    done = glovebox(*words, "--project", project)
    assert done.returncode == 0, done.stderr
    return project


def test_a_projects_box_finds_no_way_to_the_daemon(idle_glovebox: Glovebox) -> None:
    project = start_project(idle_glovebox)
    try:
        link = project / ".sandbox/kernel.sock"
        assert link.is_symlink() and link.is_socket() and not link.resolve().is_relative_to(project)
        assert stat.S_IMODE(link.resolve().parent.stat().st_mode) == 0o700
        for words in (("exec", "spy", "-c", SPY), ("run", "--no-daemon", "--workspace", project, "-c", SPY)):
            done = idle_glovebox(*words, cwd=project)
            assert (done.returncode, done.stdout) == (0, "[]\n"), (words, done)
    finally:
        stopped = idle_glovebox("stop", "--end-sessions", cwd=project, timeout=90)
    assert stopped.returncode == 0, stopped.stderr
    assert not os.path.lexists(project / ".sandbox/kernel.sock"), "the link goes with the daemon"


def test_a_data_directory_in_a_projects_own_corner_is_not_seen(idle_glovebox: Glovebox) -> None:
    project = idle_glovebox.place.make("project")
    corner = idle_glovebox.place.make("project/.sandbox")
    data = {"GLOVEBOX_DATA_DIR": str(idle_glovebox.place.make("project/.sandbox/data"))}
    words = ("serve", "--background", "--pool", "0", "--box-pool", "0", "--preload", "", "--allow-weaker")
    started = idle_glovebox(*words, "--project", project, env=data)
    assert started.returncode == 0, started.stderr
    try:
        done = idle_glovebox("exec", "spy", "-c", SPY, cwd=project, env=data)
        assert (done.returncode, done.stdout) == (0, "[]\n"), done
    finally:
        stopped = idle_glovebox("stop", "--end-sessions", cwd=project, env=data, timeout=90)
    assert stopped.returncode == 0, stopped.stderr
    refused = mount(idle_glovebox, corner)
    assert refused.returncode == 125 and "Glovebox's own files" in refused.stderr, refused


def test_files_that_a_box_leaves_in_a_project_redirect_no_client(idle_glovebox: Glovebox) -> None:
    """Code in a box makes a socket where the daemon's would be found; commands on the host do not go there."""
    project = idle_glovebox.place.make("project")
    plant = "import os, socket\nos.mkdir('.sandbox')\nsocket.socket(socket.AF_UNIX).bind('.sandbox/kernel.sock')"
    done = idle_glovebox("run", "--no-daemon", "--workspace", project, "-c", plant)
    assert done.returncode == 0 and (project / ".sandbox/kernel.sock").is_socket(), done.stderr
    status = idle_glovebox("status", cwd=project)
    assert status.returncode == 1 and ".sandbox" not in status.stdout + status.stderr, status
    # and a link in place of the directory leads the daemon nowhere
    (project / ".sandbox/kernel.sock").unlink()
    (project / ".sandbox").rmdir()
    elsewhere = idle_glovebox.place.make("elsewhere")
    (project / ".sandbox").symlink_to(elsewhere)
    refused = idle_glovebox("serve", "--background", "--pool", "0", "--preload", "", "--project", project)
    assert refused.returncode != 0 and not list(elsewhere.iterdir()), refused


def test_a_socket_that_would_lie_in_the_project_is_refused_at_start(idle_glovebox: Glovebox) -> None:
    project = idle_glovebox.place.make("project")
    done = idle_glovebox("serve", "--background", "--project", project, "--socket", project / "own.sock")
    assert done.returncode == 2 and "boxes could reach it" in done.stderr, done


def mount(glovebox: Glovebox, source: Path | str) -> subprocess.CompletedProcess[str]:
    return glovebox("run", "--no-daemon", "--mount", f"{source}:/mnt/x", "-c", "print('ran')")


def test_the_files_of_another_glovebox_cannot_be_shown(idle_glovebox: Glovebox) -> None:
    """Another data directory, one that is not in use any more, is known by its marker."""
    outer = idle_glovebox.place.make("outer")
    other = idle_glovebox.place.make("outer/other")
    (outer / "plain").mkdir(mode=0o755)
    idle_glovebox.place.give(outer / "plain")
    write = "open('artifacts/x', 'w').write('y')"
    done = idle_glovebox("run", "--no-daemon", "-c", write, env={"GLOVEBOX_DATA_DIR": str(other)})
    assert done.returncode == 0 and (other / ".glovebox-private").is_file(), done.stderr
    inside = idle_glovebox.place.make("outer/other/sessions") / "x"
    inside.mkdir()
    idle_glovebox.place.give(inside)
    link = idle_glovebox.place.path / "link"
    link.symlink_to(inside)
    for source in (other, inside, outer, link, other / ".glovebox-private"):
        refused = mount(idle_glovebox, source)
        assert refused.returncode == 125 and "Glovebox's own files" in refused.stderr, (source, refused)
    assert mount(idle_glovebox, outer / "plain").stdout == "ran\n"


def test_a_bind_mount_does_not_hide_a_gloveboxs_files(root_glovebox: Glovebox) -> None:
    data = root_glovebox.place.make("other")
    root_glovebox("run", "-c", "open('artifacts/x', 'w').write('y')", env={"GLOVEBOX_DATA_DIR": str(data)})
    (data / "sessions/x/deep").mkdir(parents=True)
    hidden = root_glovebox.place.make("hidden")
    (hidden / "below").mkdir()
    script = (
        'mount --bind "$1/sessions/x" "$2/below" || exit 9\n'
        'for source in "$2/below" "$2/below/deep" "$2"; do "$0" run --mount "$source:/mnt/x" -c "print(1)"; done'
    )
    command = ["/usr/bin/unshare", "-m", "sh", "-c", script, str(root_glovebox.binary), str(data), str(hidden)]
    done = subprocess.run(
        command, env=root_glovebox.environment(), capture_output=True, text=True, timeout=60 * slowness(), check=False
    )
    assert (done.stdout, done.stderr.count("Glovebox's own files")) == ("", 3), done


def test_a_daemons_socket_cannot_be_shown_wherever_it_is(start_daemon) -> None:  # noqa: ANN001
    """Another Glovebox knows it by its usual name, its own daemon by any."""
    daemon: Daemon = start_daemon(start=False)
    there = daemon.glovebox.place.make("there")
    daemon.options = (*daemon.options, "--allow-write", str(there))
    for name in ("kernel.sock", "odd.sock"):
        daemon.socket = str(there / name)
        daemon.start()
        refused = mount(daemon.glovebox, there)
        assert refused.returncode == (125 if name == "kernel.sock" else 0), refused
        with pytest.raises(DaemonError, match="socket"):
            daemon.client().execute("1", workspace=str(there), session=name)
        daemon.stop()


def test_a_socket_counts_where_it_is_and_for_writing_where_its_path_goes_through(start_daemon) -> None:  # noqa: ANN001
    """A link leads no box to the socket, but who may write can replace the link, and clients would follow it."""
    daemon: Daemon = start_daemon(start=False)
    project, elsewhere = daemon.glovebox.place.make("project"), daemon.glovebox.place.make("elsewhere")
    (project / "sub").mkdir()
    (project / "link").symlink_to(elsewhere)
    allow = "--allow-write", str(daemon.glovebox.place.path)
    daemon.options = (*daemon.options, *allow)
    for number, path in enumerate(("link/kernel.sock", "sub/../../elsewhere/kernel.sock")):
        daemon.socket = str(project / path)
        client = daemon.start().client()
        shown = {"source": str(project), "destination": "/data/project"}
        client.request("session.create", session=f"reads{number}", mounts=[shown])
        with pytest.raises(DaemonError, match="socket"):
            client.request("session.create", session="writes", mounts=[shown | {"writable": True}])
        with pytest.raises(DaemonError, match="socket"):
            client.request("session.create", session="reads", mounts=[shown | {"source": str(elsewhere)}])
        daemon.stop()


# A box that got a connection all the same: its processes get no answer.
ASK = """
import array, socket, struct
server = socket.socket(socket.AF_UNIX)
server.connect('/workspace/way')
body = b'{"op":"ping"}'
try:
    server.sendall(struct.pack('<IHHI', len(body), 1, 1, 0) + body)
    print(server.recv(100))
except OSError as error:
    print(b'', error.errno)
"""


def test_a_daemon_answers_no_process_in_a_box(user_glovebox: Glovebox) -> None:
    """Even if its socket is in reach: here by a hard link that appears in a workspace afterwards."""
    daemon = Daemon(user_glovebox, "--allow-weaker")
    daemon.socket = str(user_glovebox.place.path / "odd.sock")
    daemon.start()
    try:
        shown = user_glovebox.place.make("shown")
        code = "import os, time\nwhile not os.path.exists('/workspace/way'): time.sleep(0.01)\n" + ASK
        process = user_glovebox.popen("run", "--no-daemon", "--allow-weaker", "--workspace", shown, "-c", code)
        wait_for("the box", lambda: (shown / "artifacts").exists())
        os.link(daemon.socket, shown / "way")
        stdout, stderr = process.communicate(timeout=60 * slowness())
        assert process.returncode == 0 and stdout.startswith("b''"), (stdout, stderr)
        assert "it is in a box" in daemon.words()
        with socket.socket(socket.AF_UNIX) as outside:
            outside.connect(daemon.socket)  # root, on the host
        assert daemon.client().request("ping")["ok"]
    finally:
        daemon.stop()


HOLD = (
    "import fcntl, os\nheld = os.open('/usr/bin/env', os.O_RDONLY)\nfcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)\n1"
)


def test_no_kernel_feels_the_locks_of_another_on_usr(pool_daemon: Daemon) -> None:
    """In kernels that are forked, in mode fresh, and in ephemeral runs from the pool."""
    with pool_daemon._connect() as client:
        for name, mode in (("lock-a", "fast"), ("lock-b", "fast"), ("lock-c", "fresh")):
            client.request("session.create", session=name, mode=mode)
            assert client.execute(HOLD, name)["status"] == "ok", name
        assert client.execute(HOLD)["status"] == "ok"
        for name in ("lock-a", "lock-b", "lock-c"):
            client.request("session.remove", session=name)


def test_a_programs_large_directories_are_searched_by_the_maker_alone(daemon: Daemon) -> None:
    """The daemon's other callers do not wait for the search, which finds another Glovebox's files all the same."""
    place = daemon.glovebox.place
    large = place.make("large")
    for number in range(2000):
        (large / f"{number % 40}/{number}").mkdir(parents=True)
    before = cpu_seconds(daemon.pid)
    for _ in range(5):
        done = daemon.cli("run", "--data", large, "-c", "print('ran')")
        assert (done.returncode, done.stdout) == (0, "ran\n"), done
    assert cpu_seconds(daemon.pid) - before < 0.1
    hidden = large / "7/deep/er/still"
    hidden.mkdir(parents=True)
    elsewhere = {"GLOVEBOX_DATA_DIR": str(hidden / "data")}
    made = daemon.glovebox("run", "--no-daemon", "-c", "open('artifacts/x', 'w').write('y')", env=elsewhere)
    assert made.returncode == 0 and (hidden / "data").is_dir(), made
    for option in ("--data", "--workspace"):
        refused = daemon.cli("run", option, large, "-c", "print('ran')")
        assert refused.returncode == 125 and "Glovebox's own files" in refused.stderr, refused
