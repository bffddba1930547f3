"""RDKit molecules keep their properties and the precision of their coordinates when they are saved.

By default RDKit pickles a molecule without the properties of the molecule, its atoms and its bonds, and coordinates in
single precision. What is pickled is a setting of the whole process.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def molecules_whole() -> Iterator[None]:
    module: Any = sys.modules.get("rdkit.Chem.rdchem")
    options: Any = getattr(module, "PropertyPickleOptions", None)
    if options is None:
        yield
        return
    before = int(module.GetDefaultPickleProperties())
    module.SetDefaultPickleProperties(int(options.AllProps) | int(getattr(options, "CoordsAsDouble", 0)))
    try:
        yield
    finally:
        module.SetDefaultPickleProperties(before)
