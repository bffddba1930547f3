"""One module per table, each with NAME, TITLE and measure(bench)."""

from __future__ import annotations

from types import ModuleType

from tables import (
    burst,
    cold,
    crowd,
    density,
    ephemeral,
    files,
    health,
    hibernate,
    output,
    pandas_cell,
    rest,
    throughput,
    transfer,
    warm,
)

ALL: list[ModuleType] = [
    cold,
    ephemeral,
    pandas_cell,
    warm,
    output,
    throughput,
    burst,
    density,
    hibernate,
    files,
    health,
    rest,
    transfer,
    crowd,
]
