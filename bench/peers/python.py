"""The interpreter alone: no box at all."""

from __future__ import annotations

import os

from context import SYSTEM_PYTHON, Bench


def command(code: str) -> list[str]:
    return [SYSTEM_PYTHON, "-c", code]


def environment(bench: Bench) -> dict[str, str]:
    """With the layer that our boxes see, so that both import the same files."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return dict(kept, PYTHONPATH=str(bench.layer()), OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
