"""What a nursery does once its imports are over: a little of what runs do, until nothing changes by it any more.

Libraries set things up at first use, and the interpreter rewrites code that runs often. Done here, it is done for all
kernels: a first run is faster, and the pages that hold it are shared. Nothing a user sees may change by it: no files, no
threads, no options, and nothing random that is not seeded again after the fork.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import linecache
import sys
from typing import Any

from glovebox_kernel.cell import CellCompiler
from glovebox_kernel.channel import json_pack, json_unpack
from glovebox_kernel.failure import failure_describe
from glovebox_kernel.gate import Gate
from glovebox_kernel.mime import bundle_make

# CPython 3.11 looks at code again after 8 calls, later ones after 2 to 64.
_TIMES = 70
_TIMES_DEAR = 10

_PLAIN = """
import sys, os
numbers = [number * 2 for number in range(10)]
words = {str(number): f"{number:>4}" for number in numbers}
sum(numbers)
"""
_NUMPY = """
import numpy as np
a = np.arange(12).reshape(3, 4) * 1.5
b = np.array([1, 2, 3]) + np.zeros(3)
(a.sum(), a.mean(axis=0), a.T @ b, b[b > 1])
"""
_PANDAS = """
import numpy as np, pandas as pd
df = pd.DataFrame({"x": np.arange(12), "y": [0.5] * 12, "z": list("abcabcabcabc")})
total = int(df.x.sum()), df["y"].mean(), df.describe(), df.groupby("z").x.sum(), df[df.x > 2], df.head()
df
"""


def rehearse() -> None:
    _repeat(_PLAIN, _TIMES)
    if "numpy" in sys.modules:
        _repeat(_NUMPY, _TIMES)
    if "pandas" in sys.modules:
        _repeat(_PANDAS, _TIMES_DEAR)
    _repeat("1 / 0", _TIMES_DEAR)


def _repeat(source: str, times: int) -> None:
    gate = Gate()
    for _ in range(times):
        compiler = CellCompiler()
        value, failure = gate.run_guarded(_perform, compiler, source)
        described = None
        if failure is not None:
            with contextlib.suppress(Exception):
                described = failure_describe(failure)
            failure.__traceback__ = None
        json_unpack(json_pack({"id": "", "result": value, "error": described}))
    linecache.clearcache()
    gc.collect()


def _perform(compiler: CellCompiler, source: str) -> Any:
    cell = compiler.compile(source)
    namespace: dict[str, Any] = {"__builtins__": builtins, "__name__": "__main__"}
    if cell.body is not None:
        eval(cell.body, namespace)
    return bundle_make(eval(cell.last, namespace)) if cell.last is not None else None
