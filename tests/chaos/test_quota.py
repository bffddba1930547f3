"""Where the file system has project quotas, the kernel itself bounds a session's disk. The test machine's has them."""

from __future__ import annotations

import os

import pytest
from support.client import DaemonError
from support.daemon import Daemon
from support.daemons import StartDaemon

HAS_QUOTAS = bool(os.environ.get("GLOVEBOX_TEST_HAS_QUOTAS"))

FILL = """
import errno, os
try:
    with open("large", "wb", buffering=0) as file:
        for _ in range(64): file.write(b"x" * (1 << 20))
    print("all of it")
except OSError as error:
    print(errno.errorcode[error.errno], os.stat("large").st_size >> 20)
"""
MORE = """
for n in range(4):
    with open(f"more-{n}", "wb") as file: file.write(b"x" * (12 << 20))
"""
MANY = """
import errno
try:
    for n in range(2000): open(f"file-{n}", "w").close()
    print("all of them")
except OSError as error:
    print(errno.errorcode[error.errno], n > 50)
"""


@pytest.mark.vm
def test_l09_a_project_quota_bounds_a_session(daemon: Daemon) -> None:
    """In bytes and in files, from its first byte on, and another daemon finds it again."""
    client = daemon.client()
    client.request("session.create", session="s", limits={"disk": "16m"})
    how = client.request("session.show", session="s")["isolation"]["disk"]["by"]
    if not HAS_QUOTAS:
        pytest.skip("optional: this file system has no project quotas; the test machine has")
    assert how == "quota"
    name, _, size = client.execute(FILL, "s")["stdout"].partition(" ")
    assert name in ("EDQUOT", "ENOSPC") and 12 <= int(size) <= 16, (name, size)
    daemon.kill()
    daemon.start()
    client = daemon.client()
    assert client.request("session.show", session="s")["isolation"]["disk"]["by"] == "quota"
    assert client.execute("import os; os.remove('large'); open('small', 'w').write('x')", "s")["status"] == "ok"
    client.request("session.set", session="s", limits={"disk": "128m"})
    assert client.execute(MORE, "s")["status"] == "ok", "one file may still have 16 MiB: a kernel keeps that limit"
    client.request("session.create", session="t", limits={"disk": "16m", "files": 200})
    assert client.execute(MANY, "t")["stdout"].split()[0] in ("EDQUOT", "ENOSPC")


@pytest.mark.vm
def test_l09_what_clients_send_counts_against_the_quota(daemon: Daemon) -> None:
    """A daemon of root may exceed a quota: Linux does not stop it."""
    client = daemon.client()
    client.request("session.create", session="u", limits={"disk": "16m"})
    if not HAS_QUOTAS:
        pytest.skip("optional: this file system has no project quotas; the test machine has")
    assert client.write_file("u", "first", b"x" * (10 << 20))["size"] == 10 << 20
    with pytest.raises(DaemonError, match="disk limit") as caught:
        client.write_file("u", "second", b"x" * (10 << 20))
    assert caught.value.code == "no_space"
    client.request("file.remove", session="u", path="first")
    assert client.write_file("u", "second", b"x" * (10 << 20))["size"] == 10 << 20


@pytest.mark.vm
def test_l09_the_reserve_of_the_host_holds_for_sessions_with_a_quota(start_daemon: StartDaemon) -> None:
    if not HAS_QUOTAS:
        pytest.skip("optional: this file system has no project quotas; the test machine has")
    daemon = start_daemon(start=False)
    disk = os.statvfs(daemon.data)
    daemon.options = (*daemon.options, "--reserve-disk", str(disk.f_bavail * disk.f_frsize - (48 << 20)))
    client = daemon.start().client()
    client.request("session.create", session="s", limits={"disk": "1g"})
    assert client.request("session.show", session="s")["isolation"]["disk"]["by"] == "quota"
    code = "import time\nfor n in range(200):\n    open(f'part{n}', 'wb').write(b'x' * (1 << 20))\n    time.sleep(0.1)"
    done = client.execute(code, "s", timeout_ms=100000)
    assert done["status"] == "disk" and "reserve" in done["error"]["message"], done
