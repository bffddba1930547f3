"""Packages that are installed into one session: seen at once, by that session alone, all of them or none."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.client import Client, DaemonError
from support.daemon import Daemon, is_gone, wait_for
from support.daemons import StartDaemon, make_daemons
from support.wheels import make_wheel

PLACE = "/opt/glovebox/packages"
# Code of a package that runs where it must not: it says so, in every way that it can.
INTRUDER = "import os; os.write(2, b'INTRUDER\\n')\n"


@pytest.fixture(scope="module")
def wheels() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="glovebox-test-wheels-", dir="/tmp"))
    directory.chmod(0o755)
    for version in ("1.0", "2.0"):
        module = f"version = '{version}'\ndef main(): print('tool', version)\n"
        make_wheel(directory, "parcel", version, {"parcel.py": module}, scripts=["parcel-tool = parcel:main"])
    make_wheel(directory, "wrapper", "1.5", {"wrapper/__init__.py": "import parcel\n"}, requires=["parcel>=1"])
    intruders = ("sitecustomize.py", "usercustomize.py", "keyring.py", "simplejson.py", "brotli.py")
    make_wheel(directory, "intruder", "1.0", {"intruder.pth": INTRUDER, **{name: INTRUDER for name in intruders}})
    make_wheel(directory, "pip", "99.0", {"pip/__init__.py": "__version__ = '99.0'\n", "pip/__main__.py": INTRUDER})
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def pip_environment(wheels: Path) -> dict[str, str]:
    """Settings of an operator who has a directory of wheels and no index; whatever this host has does not count."""
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


@pytest.fixture
def makes(binary: Path) -> Iterator[StartDaemon]:
    yield from make_daemons(binary)


@pytest.fixture(scope="module")
def shop(binary: Path, wheels: Path) -> Iterator[Daemon]:
    """A daemon whose sessions get their packages from the wheels above."""
    for make in make_daemons(binary):
        yield make(env=pip_environment(wheels))


class Index(ThreadingHTTPServer):
    """A package index on this host's loopback, for clients that know its password."""

    def __init__(self, wheels: Path) -> None:
        super().__init__(("127.0.0.1", 0), IndexHandler)
        self.wheels = wheels
        self.asked: list[tuple[str, str]] = []  # path, Host header
        self.open = threading.Event()  # until it is set, nothing is answered
        self.open.set()

    @property
    def settings(self) -> dict[str, str]:
        """Of an operator who uses it."""
        return {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"http://operator:sesame@packages.example:{self.server_address[1]}/simple/",
            "PIP_TRUSTED_HOST": "packages.example",
            "PIP_RETRIES": "0",
            "PIP_TIMEOUT": "600",
        }

    def hold(self) -> None:
        """From here on an install waits for us, for as long as we like."""
        self.asked.clear()
        self.open.clear()

    def wait_asked(self) -> None:
        wait_for("pip to ask the index", lambda: self.asked)


class IndexHandler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Host", "")))
        self.server.open.wait()
        status, content, kind = 404, b"", "text/html"
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(b"operator:sesame").decode():
            status = 401
        elif self.path == "/simple/parcel/":
            names = [f"parcel-{version}-py3-none-any.whl" for version in ("1.0", "2.0")]
            status, content = 200, "".join(f'<a href="/files/{name}">{name}</a>' for name in names).encode()
        elif self.path == "/simple/stray/":
            where = b"http://elsewhere.example/stray-1.0-py3-none-any.whl"
            status, content = 200, b'<a href="' + where + b'">stray-1.0-py3-none-any.whl</a>'
        elif self.path.startswith("/files/"):
            status, content, kind = 200, (self.server.wheels / Path(self.path).name).read_bytes(), "application/zip"
        with contextlib.suppress(OSError):  # the client may be gone
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


PIN = ("--egress-host", "packages.example=127.0.0.1")


@pytest.fixture(scope="module")
def index(wheels: Path) -> Iterator[Index]:
    with Index(wheels) as index:
        thread = threading.Thread(target=index.serve_forever)
        thread.start()
        try:
            yield index
        finally:
            index.open.set()
            index.shutdown()
            thread.join()


def install(client: Client, session: str, *packages: str, **fields: Any) -> dict[str, Any]:
    return client.request("session.install", session=session, packages=list(packages), **fields)


def install_well(client: Client, session: str, *packages: str, **fields: Any) -> dict[str, Any]:
    done = install(client, session, *packages, **fields)
    assert done["status"] == "ok", (done, client.err)
    return done


def state_of(daemon: Daemon, session: str) -> Path:
    with daemon._connect() as client:
        return daemon.data / "state" / client.request("session.show", session=session)["id"]


@pytest.mark.parametrize("who", ["root", "user"])
def test_a_package_is_there_at_once_for_kernel_and_shell_of_this_session_alone(
    makes: StartDaemon, shop: Daemon, wheels: Path, who: str
) -> None:
    daemon = shop if who == "root" else makes(who="user", env=pip_environment(wheels))
    client = daemon.client()
    assert (
        client.execute("kept = 1\ntry: import wrapper\nexcept ImportError: print('none')", "own")["stdout"] == "none\n"
    )
    done = install_well(client, "own", "wrapper>=1, <2", stream=True)
    assert done["installed"] == [{"name": "parcel", "version": "2.0"}, {"name": "wrapper", "version": "1.5"}]
    assert done["restart_needed"] == [] and b"Successfully installed" in client.out
    assert client.execute("import wrapper; print(wrapper.parcel.version, kept)", "own")["stdout"] == "2.0 1\n"
    shell = f"python3 -c 'import wrapper; print(1)'; parcel-tool; touch {PLACE}/x {PLACE}/current/x; id > {PLACE}/y"
    answered = client.request("command", session="own", shell=shell)
    assert answered["stdout"] == "1\ntool 2.0\n" and answered["stderr"].count("Read-only file system") == 3, answered
    elsewhere = client.execute(f"import os; print(os.listdir('{PLACE}'))\nimport wrapper", "another")
    assert elsewhere["stdout"] == "[]\n" and "ModuleNotFoundError" in elsewhere["error"]["traceback"]
    state = state_of(daemon, "own")
    client.request("session.remove", session="own")
    wait_for("the packages to be gone", lambda: not state.exists())


def test_another_version_is_reported_to_need_a_restart(shop: Daemon) -> None:
    client = shop.client()
    install_well(client, "versions", "parcel==1.0")
    assert client.execute("import parcel; parcel.version", "versions")["result"] == {"text/plain": "'1.0'"}
    again = install_well(client, "versions", "parcel==1.0")
    assert again["installed"] == [] and again["restart_needed"] == []
    newer = install_well(client, "versions", "parcel>1")
    assert newer["installed"] == [{"name": "parcel", "version": "2.0"}] and newer["restart_needed"] == ["parcel"]
    assert client.execute("parcel.version", "versions")["result"] == {"text/plain": "'1.0'"}
    client.request("session.restart", session="versions")
    assert client.execute("import parcel; parcel.version", "versions")["result"] == {"text/plain": "'2.0'"}


def test_a_failed_install_changes_nothing(shop: Daemon) -> None:
    client = shop.client()
    install_well(client, "steady", "parcel==1.0")
    missing = install(client, "steady", "parcel==2.0", "no-such-parcel")
    assert missing["status"] == "error" and missing["installed"] == [], missing
    assert "as they were" in missing["error"]["message"] and "no-such-parcel" in missing["stderr"]
    late = install(client, "steady", "parcel==2.0", timeout_ms=1)
    assert (late["status"], late["timed_out"], late["installed"]) == ("timeout", True, [])
    assert "as they were" in late["error"]["message"]
    assert client.execute("import parcel; parcel.version", "steady")["result"] == {"text/plain": "'1.0'"}
    assert not (state_of(shop, "steady") / "install").exists()


@pytest.mark.parametrize(
    "packages", [[], "parcel", [1], ["--target=/tmp"], ["parcel @ file:///etc"], ["./parcel"], ["parcel", "a.whl"]]
)
def test_malformed_package_names_are_refused_before_anything_starts(shop: Daemon, packages: object) -> None:
    client = shop.client()
    with pytest.raises(DaemonError) as refused:
        client.request("session.install", session="never", packages=packages)
    assert refused.value.code == "usage" and "attrs>=23" in refused.value.message
    with pytest.raises(DaemonError):
        client.request("session.show", session="never")


def test_runs_go_on_beside_one_install_at_a_time_which_ends_with_its_session(makes: StartDaemon, index: Index) -> None:
    daemon = makes(*PIN, env=index.settings)
    client, other = daemon.client(), daemon.client()
    client.execute("pass", "busy")
    index.hold()
    first = client.begin("session.install", session="busy", packages=["parcel"], stream=True)
    index.wait_asked()
    with pytest.raises(DaemonError) as busy:
        install(other, "busy", "parcel")
    assert busy.value.code == "busy"
    assert other.execute("6 * 7", "busy")["result"] == {"text/plain": "42"}
    state = state_of(daemon, "busy")
    other.request("session.remove", session="busy")
    with pytest.raises(DaemonError) as gone:
        client.finish(first)
    assert gone.value.code == "gone" and "removed" in gone.value.message
    wait_for("its state to be gone", lambda: not state.exists())
    index.open.set()


def test_settings_may_take_as_long_as_the_install(makes: StartDaemon, wheels: Path) -> None:
    """The process that reads them has the lowest priority on a busy host; here it waits for a file that is never
    written."""
    daemon = makes(env={**pip_environment(wheels), "PIP_CONFIG_FILE": str(wheels / "settings")}, start=False)
    os.mkfifo(wheels / "settings")
    try:
        client = daemon.start().client()
        with pytest.raises(DaemonError, match="pip settings took longer than the 11 s that") as caught:
            install(client, "slow", "parcel", timeout_ms=11000)
        assert caught.value.code == "timeout"
    finally:
        (wheels / "settings").unlink()
    assert client.execute("1 + 1", "slow")["result"] == {"text/plain": "2"}


def test_no_code_of_a_package_runs_while_packages_are_installed(shop: Daemon) -> None:
    client = shop.client()
    install_well(client, "intruded", "intruder", "pip==99.0")
    # All of it is in place, and would run if anything were imported from there.
    there = client.request("command", session="intruded", shell="python3 -c 'import keyring'; python3 -m pip")
    assert there["stderr"].count("INTRUDER") >= 2, there
    done = install_well(client, "intruded", "parcel")
    assert "INTRUDER" not in done["stdout"] + done["stderr"] and done["installed"][0]["name"] == "parcel", done
    covered = client.execute("import pip; pip.__version__", "intruded")  # the image has one, too
    assert covered["result"] == {"text/plain": "'99.0'"}


def test_an_install_dies_with_its_daemon_and_can_be_repeated(makes: StartDaemon, index: Index) -> None:
    daemon = makes(*PIN, env=index.settings)
    client = daemon.client()
    install_well(client, "survivor", "parcel==1.0")
    client.execute("import parcel", "survivor")
    state, before = state_of(daemon, "survivor"), daemon.kernels()
    index.hold()
    client.begin("session.install", session="survivor", packages=["parcel==2.0"])
    index.wait_asked()
    helpers = daemon.kernels() - before
    assert helpers and (state / "install").exists()
    daemon.kill()
    index.open.set()
    daemon.start()
    wait_for("the helper box to be gone", lambda: all(is_gone(pid) for pid in helpers))
    assert sorted(os.listdir(state / "packages")) == ["current"] and not (state / "install").exists()
    client = daemon.client()
    assert client.execute("parcel.version", "survivor")["result"] == {"text/plain": "'1.0'"}
    assert install_well(client, "survivor", "parcel==2.0")["restart_needed"] == ["parcel"]


def test_the_helper_alone_reaches_the_operators_index_and_nothing_else(makes: StartDaemon, index: Index) -> None:
    port = index.server_address[1]
    daemon = makes(*PIN, env=index.settings)
    client = daemon.client()
    done = install_well(client, "far", "parcel")
    assert done["installed"] == [{"name": "parcel", "version": "2.0"}]
    assert {host for _, host in index.asked} == {f"packages.example:{port}"}
    stray = install(client, "far", "stray")
    assert stray["status"] == "error" and "elsewhere.example" in stray["stderr"] and "403" in stray["stderr"], stray
    # The session itself has neither the way there nor the password.
    look = f"""
import os, socket, parcel
for address in (("127.0.0.1", {port}), ("127.0.0.1", 3128)):
    try: print(socket.create_connection(address, 5))
    except OSError as error: print(type(error).__name__)
text = str(os.environ)
for directory, _, names in os.walk("{PLACE}"):
    text += "".join(open(os.path.join(directory, name), errors="replace").read() for name in names)
print("sesame" in text, parcel.version)
"""
    assert client.execute(look, "far")["stdout"] == "ConnectionRefusedError\n" * 2 + "False 2.0\n"


def test_the_command_line_installs_and_says_what_to_do(shop: Daemon) -> None:
    misspelt = shop.cli("session", "install", "tpyed", "parcel==1.0")
    assert misspelt.returncode != 0 and 'there is no session "tpyed"' in misspelt.stderr
    assert "tpyed" not in shop.cli("session", "ls", "--names").stdout.split()
    shop.cli("session", "new", "typed")
    done = shop.cli("session", "install", "typed", "parcel==1.0")
    assert done.returncode == 0 and "Successfully installed" in done.stdout, done.stderr
    assert shop.cli("exec", "typed", "-c", "import parcel; parcel.version").stdout == "'1.0'\n"
    newer = shop.cli("session", "install", "typed", "parcel==2.0")
    assert newer.returncode == 0 and "parcel is imported in another version" in newer.stderr
    failed = shop.cli("session", "install", "typed", "no-such-parcel")
    assert failed.returncode == 1 and "as they were" in failed.stderr
    wrong = shop.cli("session", "install", "typed", "--", "--user")
    assert wrong.returncode == 2 and "options of pip are not accepted" in wrong.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_ends_an_install_and_says_that_nothing_changed(makes: StartDaemon, index: Index, as_json: bool) -> None:
    daemon = makes(*PIN, env=index.settings)
    daemon.cli("session", "new", "held")
    index.hold()
    words = ["session", "install", *["--json"] * as_json, "held", "parcel"]
    process = daemon.glovebox.popen(*words, env={"GLOVEBOX_SOCKET": daemon.socket, **daemon.env})
    index.wait_asked()
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    index.open.set()
    assert process.returncode == 130 and "the packages of session held are as they were" in said, said
    assert not as_json or json.loads(out)["exit_code"] == 130, out


def test_pip_that_is_typed_in_a_session_installs_from_outside(shop: Daemon) -> None:
    for name, words in (
        ("magic", ["-c", "%pip install parcel==1.0"]),
        ("bang", ["-c", "!pip install -q parcel==1.0"]),
        ("command", ["--", "python3", "-m", "pip", "install", "parcel==1.0"]),
    ):
        done = shop.cli("exec", name, *words)
        assert done.returncode == 0 and f"session install {name} parcel==1.0" in done.stderr, done.stderr
        assert shop.cli("exec", name, "-c", "import parcel; print(parcel.__name__)").stdout == "parcel\n"
    lines = "%pip install no-such-parcel\n%pip install -q parcel==1.0\nimport parcel; parcel.version\n"
    typed = shop.cli("repl", "typed", input=lines)
    assert "session install typed parcel==1.0" in typed.stderr and typed.stdout.endswith("'1.0'\n"), typed
    within = shop.cli("exec", "magic", "-c", "x = 1\n%pip install -q parcel==1.0")
    assert within.stderr.endswith("glovebox session install magic parcel==1.0\n"), within.stderr
    missing = shop.cli("exec", "magic", "-c", "import yaml_that_is_not_there")
    assert "glovebox session install magic yaml_that_is_not_there" in missing.stderr
