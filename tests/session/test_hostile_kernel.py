"""Code that takes over its own kernel's channel: the daemon and other sessions are not affected, and nothing can be
forged."""

from __future__ import annotations

import time

import pytest
from support.client import Client
from support.daemon import Daemon, memory_of, wait_for
from support.glovebox import slowness

# The kernel's pipe of replies is an ordinary descriptor of the process that the code runs in.
FIND = """
import json, os, struct, sys, time
def frame(kind, payload, pad=b'\\0\\0\\0', size=None):
    payload = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack('<IB', len(payload) if size is None else size, kind) + pad + payload
fd = 4
def send(data):
    while data:
        try: data = data[os.write(fd, data):]
        except BlockingIOError: time.sleep(0.001)
"""

ATTACKS = {
    "garbage": "send(os.urandom(65536))",
    "nonzero padding": "send(frame(129, {}, pad=b'abc'))",
    "a frame of four gigabytes": "send(frame(129, b'', size=0xFFFFFFFF))",
    "a frame that never ends": "send(frame(129, b'', size=32 << 20)); send(b'x' * (8 << 20))",
    "READY again": "send(frame(128, {'protocol': 1}))",
    "an unknown type": "send(frame(77, {}))",
    "a result that is not JSON": "send(frame(129, b'{{{{'))",
    "a result of another run": "send(frame(129, {'id': '0' * 32, 'status': 'ok', 'exit_code': 0}))",
    "a thousand results": "send(frame(129, {'id': 0, 'status': 'ok'}) * 1000)",
    "an answer without a request": "send(frame(132, {'id': 0, 'ok': True}))",
    "deep nesting": "send(frame(129, b'[' * (1 << 20)))",
    "a hundred thousand displays": "send(frame(130, {'data': {'text/plain': 'x' * 100}}) * 100000)",
    "the channel closed": "os.close(fd)",
    "both pipes closed": "os.close(1); os.close(2)",
    "packets": "import fcntl; fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)\n[send(frame(130, {'data': {}})[i:i+1]) "
    "for _ in range(50) for i in range(20)]",
    "its own requests": "w = os.open('/proc/self/fd/3', os.O_WRONLY); os.write(w, os.urandom(4096))",
}

# A TCP socket with unsent data and SO_LINGER: the process that closes it last waits for as long as the box chose.
LINGER = """
import os, socket, stat, struct
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
listening.bind(("127.0.0.1", 0))
listening.listen(8)
def make_lingering():
    made = socket.create_connection(listening.getsockname())
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    made.setblocking(False)
    try:
        while made.send(b"x" * 65536):
            pass
    except BlockingIOError:
        pass
    return made
sent = 0
for fd in range(3, 64):
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode) or fd == listening.fileno():
            continue
    except OSError:
        continue
    channel = socket.socket(fileno=os.dup(fd))
    for _ in range(8):
        lingering = make_lingering().detach()
        try:
            socket.send_fds(channel, [struct.pack("<IB3x", 2, 130) + b"{}"], [lingering])
            os.close(lingering)  # so that the reader has the last one
            sent += 1
        except OSError:
            pass
    break
"""


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_kernel_harms_only_itself(daemon: Daemon, client: Client, attack: str) -> None:
    client.execute("x = 'untouched'", "victim")
    before = memory_of(daemon.pid)
    done = client.execute(f"{FIND}{ATTACKS[attack]}\ntime.sleep(0.05)", "attacker", timeout_ms=1500)
    assert done["status"] in ("ok", "error", "killed", "timeout", "interrupted"), done
    assert memory_of(daemon.pid) < before + (16 << 20)
    assert client.execute("x", "victim")["result"] == {"text/plain": "'untouched'"}
    after = client.execute("1 + 1", "attacker")
    assert (after["status"], after["result"]) == ("ok", {"text/plain": "2"}), after
    client.request("session.remove", session="attacker")


def test_a_result_forged_in_one_run_does_not_become_the_next_ones(client: Client) -> None:
    # The thread answers in place of the next run; it does not know that run's id.
    code = FIND + (
        "import threading\nforged = frame(129, {'id': '0' * 32, 'status': 'ok', 'exit_code': 0, "
        "'result': {'text/plain': 'forged'}})\n"
        "threading.Thread(target=lambda: [time.sleep(0.01) or send(forged) for _ in range(50)], daemon=True).start()"
    )
    client.execute(code, "forger")
    for _ in range(3):
        done = client.execute("'genuine'", "forger")
        assert (done["result"] or {}).get("text/plain") != "forged", done
    client.request("session.remove", session="forger")


def test_numbers_and_texts_of_the_wrong_kind_in_a_result_are_harmless(daemon: Daemon, client: Client) -> None:
    for status in (1, None, [], {}, "x" * 100000, "ok\\u0000"):
        code = FIND + (
            "import gc\nrun = next(o for o in gc.get_objects() if type(o) is dict and type(o.get('code')) is str "
            "and type(o.get('id')) is str)['id']\n"
            f"send(frame(129, {{'id': run, 'status': {status!r}, 'exit_code': 'many', 'result': 5, 'error': 7}}))\n"
            "time.sleep(30)"
        )
        done = client.execute(code, "liar", timeout_ms=20000)
        assert done["status"] == "error", done
        client.request("session.remove", session="liar")
    assert client.request("ping")["pid"] == daemon.pid


def test_a_hostile_sleep_file_is_the_kernels_own_affair(daemon: Daemon, client: Client) -> None:
    # The box can write where the sleep file goes; the host neither follows a link there nor reads it.
    client.execute("import os; os.symlink('/etc/passwd', '/run/session/sleep')", "sleeper")
    client.request("session.restart", session="sleeper")
    client.execute("import os; os.mkfifo('/run/session/sleep')", "sleeper")
    done = wait_for("an answer", lambda: client.execute("1", "sleeper", timeout_ms=20000))
    assert done["status"] in ("ok", "error", "killed"), done
    assert client.request("ping")["pid"] == daemon.pid
    client.request("session.remove", session="sleeper")


def test_a_socket_that_lingers_does_not_stop_the_daemon(daemon: Daemon, client: Client) -> None:
    client.execute("x = 'untouched'", "victim")
    for mode in ("fast", "fresh"):
        client.request("session.create", session=mode, mode=mode)
        attacker = daemon.client()
        attack = attacker.begin("execute", session=mode, code=f"{LINGER}\nsent", timeout_ms=3000)
        end = time.monotonic() + 2
        while time.monotonic() < end:  # other sessions are served meanwhile
            before = time.monotonic()
            assert client.execute("x", "victim")["result"] == {"text/plain": "'untouched'"}
            assert time.monotonic() - before < 2 * slowness()
        done = attacker.finish(attack)
        assert done["result"] == {"text/plain": "0"}, done  # there was nothing to send it over
        busy = client.execute("while True: pass", "victim", timeout_ms=300)
        assert busy["status"] == "timeout", busy
        client.execute("x = 'untouched'", "victim")
    before = time.monotonic()
    daemon.terminate()
    assert time.monotonic() - before < 15 * slowness()
    daemon.start()
