"""One module per table, each with NAME, TITLE and measure(bench)."""

from __future__ import annotations

from types import ModuleType

from tables import (
    burst,
    cold,
    crowd,
    density,
    engines,
    ephemeral,
    files,
    first_runs,
    health,
    hibernate,
    mcp,
    output,
    pandas_cell,
    rest,
    run_output,
    runs,
    sdk,
    throughput,
    transfer,
    warm,
)

ALL: list[ModuleType] = [
    cold,
    runs,
    run_output,
    first_runs,
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
    mcp,
    sdk,
    transfer,
    crowd,
    engines,
]
