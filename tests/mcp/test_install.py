"""`glovebox mcp --install CLIENT` shows a change, asks, writes it, and takes it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib
from support.glovebox import Glovebox

PLACES = {
    "claude-code": (".claude.json", "mcpServers"),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".config/Code/User/mcp.json", "servers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "zed": (".config/zed/settings.json", "context_servers"),
}


def _read(path: Path) -> dict[str, Any]:
    text = path.read_text()
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


@pytest.mark.parametrize("client", PLACES)
def test_install_asks_writes_and_is_taken_back(root_glovebox: Glovebox, client: str) -> None:
    place, parent = PLACES[client]
    path = root_glovebox.place.home / place
    refused = root_glovebox("mcp", "--install", client, input="n\n")
    assert refused.returncode == 1 and not path.exists(), refused
    assert "glovebox" in refused.stdout and "nothing was changed" in refused.stdout
    done = root_glovebox("mcp", "--install", client, "--allow-host", "pypi.org", input="y\n")
    assert done.returncode == 0 and str(path) in done.stdout, done
    entry = _read(path)[parent]["glovebox"]
    assert Path(entry["command"]).samefile(root_glovebox.binary)
    assert entry["args"] == ["mcp", "--allow-host", "pypi.org"]
    assert "nothing to change" in root_glovebox("mcp", "--install", client, "--allow-host", "pypi.org").stdout
    gone = root_glovebox("mcp", "--uninstall", client, "--yes")
    assert gone.returncode == 0 and "glovebox" not in _read(path).get(parent, {}), gone


@pytest.mark.parametrize("client", [name for name, (place, _) in PLACES.items() if place.endswith(".json")])
def test_other_settings_stay(root_glovebox: Glovebox, client: str) -> None:
    place, parent = PLACES[client]
    before = {"z": 1, parent: {"other": {"command": "x", "args": []}}, "a": {"ü": [1.5, None]}}
    path = root_glovebox.place.write("settings", json.dumps(before), 0o640)
    target = root_glovebox.place.home / place
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    assert root_glovebox("mcp", "--install", client, "-y").returncode == 0
    after = json.loads(target.read_text())
    assert set(after[parent]) == {"other", "glovebox"} and list(after) == list(before)
    assert target.stat().st_mode & 0o777 == 0o640
    assert root_glovebox("mcp", "--uninstall", client, "-y").returncode == 0
    assert json.loads(target.read_text()) == before


def test_toml_around_it_stays(root_glovebox: Glovebox) -> None:
    path = root_glovebox.place.home / PLACES["codex"][0]
    path.parent.mkdir(parents=True)
    before = '# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "y" # why\n'
    path.write_text(before)
    assert root_glovebox("mcp", "--install", "codex", "-y").returncode == 0
    assert root_glovebox("mcp", "--install", "codex", "-y", "--session", "w").returncode == 0
    text = path.read_text()
    assert text.startswith(before) and text.count("[mcp_servers.glovebox]") == 1 and '"--session", "w"' in text
    assert root_glovebox("mcp", "--uninstall", "codex", "-y").returncode == 0
    assert path.read_text() == before


def test_comments_are_not_lost(root_glovebox: Glovebox) -> None:
    path = root_glovebox.place.home / PLACES["zed"][0]
    path.parent.mkdir(parents=True)
    path.write_text('// mine\n{"theme": "x"}\n')
    done = root_glovebox("mcp", "--install", "zed", "-y")
    assert done.returncode != 0 and "by hand" in done.stderr and '"context_servers"' in done.stdout
    assert path.read_text() == '// mine\n{"theme": "x"}\n'


def test_paths_are_made_absolute(root_glovebox: Glovebox) -> None:
    project = root_glovebox.place.home / "project"
    project.mkdir()
    done = root_glovebox("mcp", "--install", "cursor", "-y", "--workspace", "project:ro", cwd=root_glovebox.place.home)
    assert done.returncode == 0, done
    entry = _read(root_glovebox.place.home / PLACES["cursor"][0])["mcpServers"]["glovebox"]
    assert entry["args"] == ["mcp", "--workspace", f"{project.resolve()}:ro"]


def test_unknown_client_gets_the_list_of_known_ones(root_glovebox: Glovebox) -> None:
    done = root_glovebox("mcp", "--install", "emacs")
    assert done.returncode == 2 and "claude-code" in done.stderr
