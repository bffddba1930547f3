"""What a nursery does after its imports: what kernels do, until that changes nothing in memory any more.

Libraries set things up at first use, and the interpreter rewrites code that runs often. Done here, it is done for all
kernels: a first run is faster, and the pages that hold it are shared. It must change nothing that a user can see: no
files, no threads, no options, and nothing random that is not seeded again after the fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import linecache
import os
import sys
import time
from collections.abc import Callable, Iterator

from glovebox_kernel.channel import EXECUTE, PROGRAM, frame_pack, json_pack
from glovebox_kernel.forked_kernel import ForkedKernel
from glovebox_kernel.main import Kernel
from glovebox_kernel.program import program_rehearse
from glovebox_kernel.reseed import reseed

_TIMES = 24
_SOURCES = {
    "sys": "import gc, os, sys\nwords = {str(n): f'{n:>4}' for n in range(10)}\ntotal = sum(map(int, words))\nprint(end='')",
    "math": "1 + 1",
    "errno": "1 / 0",
    "numpy": "import numpy as np\na = np.arange(12).reshape(3, 4) * 1.5\nb = np.array([1, 2, 3]) + np.zeros(3)\n"
    "(a.sum(), a.mean(axis=0), a.T @ b, b[b > 1])",
    "pandas": "import gc, numpy as np, pandas as pd\ndf = pd.DataFrame({'x': np.arange(100)})\ntotal = int(df.x.sum())\n"
    "df = pd.DataFrame({'x': np.arange(12), 'y': [0.5] * 12, 'z': list('abcabcabcabc')})\n"
    "total = int(df.x.sum()), df['y'].mean(), df.groupby('z').x.sum(), df[df.x > 2]\ngc.collect()\ndf.head()",
}


# What nearly every kernel does, for the page warm-up. Every page that these cells touch is in the page tables of every
# kernel, which costs a kernel that does not need it 0.3 µs.
_COMMON = {
    "builtins": "print(6 * 7)",
    "sys": _SOURCES["sys"],
    "numpy": "import numpy as np\nprint(int(np.arange(1000).sum()), end='')",
    "pandas": "import pandas as pd\ndf = pd.DataFrame({'x': [1, 2, 3]})\nint(df.x.sum())",
}


def rehearse_cells() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    kernel = Kernel((os.dup(0), write_fd))
    kernel.rehearse_cells(_read_along(read_fd))
    kernel.close()
    os.close(read_fd)
    for _ in range(_TIMES):
        _rehearse_start()
        program_rehearse()
    linecache.clearcache()
    gc.collect()


def rehearse_light_kernels(library: ctypes.PyDLL, on_idle: Callable[[], None]) -> None:
    """Light kernels, from start to end. Code that runs for the first time in a kernel is slow, and the interpreter caches
    attribute look-ups in it, which copies pages."""
    requests = warmup_requests()
    before = sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__, sys.modules["__main__"]
    fds = os.dup(0), os.dup(0)
    for _ in range(_TIMES):
        ForkedKernel(Kernel(fds), library, [], on_idle).rehearse_life(fds, requests)
    for fd in fds:
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__ = before[:6]  # type: ignore[misc]
    sys.modules["__main__"] = before[6]
    linecache.clearcache()
    gc.collect()


PYTHON_PROGRAM = b"python\0\x002\0-c\0print(6 * 7)\0"


def warmup_requests(program: bytes = b"") -> bytes:
    """What nearly every kernel is asked for, as frames from a host; the last one starts a program."""
    sources = (source for module, source in _COMMON.items() if module in sys.modules)
    last = frame_pack(PROGRAM, program) if program else b""
    cells = [frame_pack(EXECUTE, json_pack({"id": "", "code": source})) for source in sources]
    return b"".join((*cells, last))


def _read_along(read_fd: int) -> Iterator[str]:
    """Sources in turn, no text twice, so that each is compiled. Reads the answer after each."""
    for number in range(_TIMES):
        for module, source in _SOURCES.items():
            if module in sys.modules:
                yield f"{source}\n# {number}"
                with contextlib.suppress(BlockingIOError):
                    while os.read(read_fd, 1 << 20):
                        pass


def _rehearse_start() -> None:
    environment = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    reseed()
