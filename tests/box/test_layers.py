"""The folders of src are layers: no include goes up, and no two folders include each other (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src"

# Lowest first. A folder includes itself and folders of earlier lines; those of one line do not know each other.
LAYERS = [
    ["base"],
    ["http", "wire", "image"],
    ["box"],
    ["egress", "engine"],
    ["store"],
    ["journal", "vault"],
    ["spawn"],
    ["kernel"],
    ["session"],
    ["daemon"],
    ["api", "client"],
    ["cli"],
]
LEVEL = {folder: level for level, line in enumerate(LAYERS) for folder in line}


def test_no_include_goes_up() -> None:
    wrong = []
    for path in sorted(SOURCES.rglob("*.[ch]")):
        folder = path.relative_to(SOURCES).parts[0]
        for include in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            other = include.split("/")[0]
            if other != folder and LEVEL.get(other, len(LAYERS)) >= LEVEL[folder]:
                wrong.append(f"{path.relative_to(SOURCES)} includes {include}")
    assert not wrong, "\n".join(wrong)


def test_headers_make_no_cycle() -> None:
    includes = {
        str(path.relative_to(SOURCES)): re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        for path in SOURCES.rglob("*.h")
    }
    left = dict(includes)
    while True:
        leaves = {name for name, others in left.items() if not set(others) & set(left)}
        if not leaves:
            break
        left = {name: others for name, others in left.items() if name not in leaves}
    assert not left, f"these headers include each other: {sorted(left)}"


def test_every_folder_has_its_layer() -> None:
    assert {path.name for path in SOURCES.iterdir() if path.is_dir()} == set(LEVEL)
