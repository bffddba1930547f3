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
