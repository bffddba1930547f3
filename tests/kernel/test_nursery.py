"""Kernels forked from one warm process: nothing repeats that must not."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from kernel_process import PACKAGE, WAIT_SECONDS

NURSERY = """
import os, sys
from glovebox_kernel import main
failed = main.preload(["random", "uuid", "tempfile", "numpy.random", "no_such_module"])
assert "ModuleNotFoundError" in failed["no_such_module"]
import random, tempfile
random.seed(1)
tempfile.mktemp()
if "numpy.random" in sys.modules:
    sys.modules["numpy.random"].seed(1)
for fd in map(int, sys.argv[1:]):
    if os.fork() == 0:
        main.after_fork()
        main.serve(main.make((fd, os.dup(fd))))
    os.close(fd)
os.wait(); os.wait()
"""

CODE = """
import random, sys, tempfile, uuid
numbers = [random.random(), tempfile.mktemp(), str(uuid.uuid1()), str(uuid.uuid4())]
if "numpy.random" in sys.modules:
    numbers.append(float(sys.modules["numpy.random"].rand()))
print(numbers)
"""


def test_forked_kernels_have_random_numbers_and_names_of_their_own(tmp_path: Path) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    fds = [theirs.fileno() for _, theirs in pairs]
    nursery = subprocess.Popen(
        [sys.executable, "-c", NURSERY, *map(str, fds)],
        pass_fds=fds,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for ours, theirs in pairs:
            theirs.close()
            ours.settimeout(WAIT_SECONDS)
            send_code(ours, CODE)
            ours.shutdown(socket.SHUT_WR)
            while ours.recv(1 << 16):
                pass
        out, _ = nursery.communicate(timeout=WAIT_SECONDS)
    finally:
        nursery.kill()
        nursery.wait()
        for ours, _ in pairs:
            ours.close()
    one, two = (eval(line.rsplit("]", 1)[0] + "]") for line in out.splitlines())
    assert len(one) == len(two) >= 4
    assert not set(one) & set(two)


def send_code(channel: socket.socket, code: str) -> None:
    payload = json.dumps({"id": 1, "code": code}).encode()
    channel.sendall(struct.pack("<IB3x", len(payload), 1) + payload)


REHEARSE = """
import builtins, gc, os, signal, sys
from glovebox_kernel import main
from glovebox_kernel.program import program_rehearse
made = main.make((os.dup(0), os.dup(1)))
os.environ["PYTHONPATH"] = "/workspace:/elsewhere"

def state():
    handlers = [signal.getsignal(number) for number in range(1, signal.NSIG)]
    streams = [sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__]
    return (
        dict(os.environ), list(sys.path), list(sys.modules), list(sys.meta_path), list(sys.argv), handlers, streams,
        dict(vars(builtins)), sorted(os.listdir("/proc/self/fd")), os.getcwd(), gc.get_freeze_count(),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()), sys.modules["__main__"], os.getpid(),
    )

before = state()
program_rehearse()
after = state()
for number, (was, now) in enumerate(zip(before, after)):
    assert was == now, (number, was, now)
os.write(2, b"the same")
"""


def test_rehearsal_of_a_program_changes_nothing_that_a_program_sees() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REHEARSE],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == b"the same" and done.stdout == b"", done
