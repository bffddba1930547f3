"""Files that code in a box leaves for the daemon to find: no answer depends on what a link of theirs leads to."""

from __future__ import annotations

import pytest
from support.daemon import Daemon, wait_for

MAKE = {
    "a link to a file of the host": "os.symlink('/etc/shadow', path)",
    "a link to nothing": "os.symlink('/no/such/file', path)",
    "a pipe": "os.mkfifo(path)",
    "a socket": "socket.socket(socket.AF_UNIX).bind(path)",
    "a directory": "os.mkdir(path)",
}


@pytest.mark.parametrize("restarts", [False, True], ids=["by this daemon", "by the next"])
def test_anything_else_in_place_of_the_sleep_file_reveals_nothing_about_the_host(
    daemon: Daemon, restarts: bool
) -> None:
    client = daemon.client()
    for number, make in enumerate(MAKE.values()):
        client.execute(f"import os, socket\npath = '/run/session/sleep'\n{make}\nx = 1", f"s{number}")
        with pytest.raises(Exception):  # noqa: B017 - the kernel is gone, however that is reported
            client.execute("os._exit(1)", f"s{number}")
            raise AssertionError
    if restarts:
        daemon.kill()
        daemon.start()
    seen = {}
    for number, what in enumerate(MAKE):
        state = wait_for("an end", lambda n=number: daemon.client().request("session.show", session=f"s{n}"))
        answer = daemon.client().execute("'x' in globals()", f"s{number}")
        seen[what] = (state["state"], answer["result"], answer.get("variables_lost"))
    assert len(set(map(str, seen.values()))) == 1, seen
    assert seen["a pipe"][0] != "asleep"
