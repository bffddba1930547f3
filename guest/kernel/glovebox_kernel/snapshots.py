"""Large tables and arrays as Parquet files that people can open, for sessions that ask for it (GLOVEBOX_SNAPSHOTS=1).

A session that is trimmed or goes to sleep keeps its variables in its own storage anyway. These files, NAME.parquet in
/workspace/data as `save` writes them, are for people who look at the project meanwhile, or run `load(NAME)` elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from glovebox_kernel.context import Context

VARIABLE = "GLOVEBOX_SNAPSHOTS"


def snapshots_save(contexts: Iterable[Context]) -> None:
    if os.environ.get(VARIABLE) != "1":
        return
    from glovebox_kernel.store import save

    for context in contexts:
        for name, value in context.user_items():
            if _is_large(value):
                try:
                    save(value, name)
                except Exception as error:  # a table that Parquet cannot hold does not prevent the sleep
                    print(f"no snapshot of {name}: {error}", file=sys.stderr)


def _is_large(value: Any) -> bool:
    """A DataFrame or an array past the bound of its kind; neither library is imported for the question."""
    pandas, numpy = sys.modules.get("pandas"), sys.modules.get("numpy")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return int(value.memory_usage().sum()) >= _bound("DF_BYTES")
    return numpy is not None and isinstance(value, numpy.ndarray) and value.nbytes >= _bound("NP_BYTES")


def _bound(name: str) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return 1 << 20
