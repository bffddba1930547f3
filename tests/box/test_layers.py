"""The folders of src are layers: no include goes up, and no two folders include each other (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import re
from collections import defaultdict
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
    ["mcp"],
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
        str(path.relative_to(SOURCES)): re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
        for path in SOURCES.rglob("*.h")
    }
    left = dict(includes)
    while True:
        leaves = {name for name, others in left.items() if not set(others) & set(left)}
        if not leaves:
            break
        left = {name: others for name, others in left.items() if name not in leaves}
    assert not left, f"these headers include each other: {sorted(left)}"


def test_headers_of_box_do_not_need_the_sealing() -> None:
    """box/seal uses the types of box. If a header of box used those of box/seal, too, the two would be a cycle."""
    wrong = [
        f"{path.relative_to(SOURCES)} includes {include}"
        for folder in ("box", "box/cgroup", "box/host")
        for path in sorted((SOURCES / folder).glob("*.h"))
        for include in re.findall(r'^#include "(box/seal/[^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_its_layer() -> None:
    assert {path.name for path in SOURCES.iterdir() if path.is_dir()} == set(LEVEL)


def test_front_ends_ask_for_operations_by_function() -> None:
    """Only the socket turns the name of an operation into a call (docs/ARCHITECTURE.md, "One way in"). Besides, a
    channel looks at the name to judge what a key may ask for, and requests for a remote are written."""
    named = [
        str(path.relative_to(SOURCES))
        for folder in ("api", "daemon", "mcp", "session")
        for path in sorted((SOURCES / folder).glob("*.c"))
        if re.search(r'json_pack\([^;]*"op"|get(_text)?\(json, "op"\)', path.read_text(encoding="utf-8"))
    ]
    remote = ["daemon/remote.c", "daemon/remote_move.c", "daemon/remote_request.c"]
    assert [name for name in named if name not in ("api/channel.c", *remote)] == ["daemon/socket_request.c"]


def test_every_operation_is_documented() -> None:
    table = (SOURCES / "daemon/socket_request.c").read_text(encoding="utf-8")
    rows = re.findall(r'^        \{ "([a-z.]+)", (?:socket_)?request_', table, re.M) + ["mcp"]  # mcp/channel.c
    protocol = (SOURCES.parent / "docs/PROTOCOL.md").read_text(encoding="utf-8")
    table = protocol[protocol.index("### Operations") :].split("\n\n")[2]
    assert sorted(rows) == sorted(re.findall(r"^\| `([a-z.]+)` \|", table, re.M))


def test_every_folder_has_a_readme() -> None:
    folders = [SOURCES / name for name in [*LEVEL, "box/seal", "box/cgroup", "box/host", "cli/ui"]]
    missing = [str(folder.relative_to(SOURCES)) for folder in folders if not (folder / "README.md").is_file()]
    assert not missing, f"folders without a README.md: {missing}"


def test_readmes_of_large_folders_name_every_file() -> None:
    for folder in ("session", "daemon"):
        named = set(re.findall(r"`(\w+)`", (SOURCES / folder / "README.md").read_text(encoding="utf-8")))
        stems = {path.stem for path in (SOURCES / folder).glob("*.[ch]")}
        assert stems <= named, f"src/{folder}/README.md lacks {sorted(stems - named)}"


def test_grep_finds_a_static_function_by_its_name() -> None:
    """Two files may use one name, such as `on_readable`; from the third on, the module's name goes before it."""
    files = defaultdict(set)
    for path in [*SOURCES.rglob("*.c"), *(SOURCES.parent / "guest").rglob("*.c")]:
        for name in re.findall(r"^static [\w *]*?\b(\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            files[name].add(str(path.relative_to(SOURCES.parent)))
    common = {name: sorted(places) for name, places in files.items() if len(places) > 2}
    assert not common, f"name these after their modules: {common}"
