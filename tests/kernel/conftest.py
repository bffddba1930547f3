from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kernel_process import KernelProcess

StartKernel = Callable[..., KernelProcess]


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[StartKernel]:
    started = []

    def start(**environ: str) -> KernelProcess:
        kernel = KernelProcess(tmp_path, environ)
        started.append(kernel)
        return kernel

    yield start
    for kernel in started:
        kernel.close()


@pytest.fixture
def kernel(start_kernel: StartKernel) -> KernelProcess:
    return start_kernel()
