"""Seed 000: the pandas kernel of a project."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from support.daemon import wait_for

from compat.seeds import block_with, execute


@pytest.mark.layer
def test_the_examples_give_the_results_of_the_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "projects/my-project").mkdir(parents=True)

    def placed(block: str) -> str:
        return block.replace("/abs/path/to/projects/", f"{place}/projects/").replace(
            "/var/run/agent_sockets/", f"{place}/sockets/"
        )

    control = placed(block_with("000", "start_container(proj"))
    start, mark, end = control.partition("# Graceful shutdown")
    names: dict[str, object] = {}
    asyncio.run(execute(start, names))
    assert capsys.readouterr().out == "[OK] exec (3, 1)\n\n"
    asyncio.run(execute(placed(block_with("000", "out = pandastool(")), names))
    assert json.loads(capsys.readouterr().out) == {"status": "[OK] exec", "stdout": "(3, 1)\n", "stderr": ""}
    assert (place / "projects/my-project/data/demo.parquet").is_file()
    asyncio.run(execute(mark + end, names))
    assert not names["ping"](names["proj"], socket_dir=names["sock"])  # type: ignore[operator]


@pytest.mark.layer
def test_an_idle_sandbox_leaves_snapshots_and_keeps_its_variables(place: Path) -> None:
    from glovebox.compat.kernellite import exec_code, start_container, stop_container

    project = place / "idle"
    project.mkdir()
    start_container(project, "idle", idle_hibernate_sec=1)
    code = (
        "import numpy as np, pandas as pd\nbig = pd.DataFrame({'x': np.arange(500_000)})\n"
        "small = pd.DataFrame({'y': [1]})"
    )
    assert exec_code(project, code)["status"] == "[OK] exec"
    snapshot = project / "data/big.parquet"
    wait_for("the snapshot", snapshot.is_file)
    assert not (project / "data/small.parquet").exists()
    assert exec_code(project, "print(int(big.x.sum()), load('big').shape)")["stdout"] == "124999750000 (500000, 1)\n"
    stop_container("idle")


def test_variables_stay_and_errors_are_reported(place: Path) -> None:
    from glovebox.compat.kernellite import exec_code, pandastool, ping, start_container, stop_container

    project = place / "p"
    project.mkdir()
    assert not ping(project)
    with pytest.raises(FileNotFoundError, match="no directory"):
        start_container(place / "missing", "missing")
    start_container(project, "p")
    start_container(project, "p")  # one that runs is kept
    assert (project / ".sandbox/kernel.sock").exists()
    assert exec_code(project, "x = 6")["status"] == "[OK] exec"
    assert exec_code(project, "print(x * 7)")["stdout"] == "42\n"
    failed = exec_code(project, "1 / 0")
    assert failed["status"] == "[ERROR] exec" and "ZeroDivisionError" in failed["stderr"]
    assert exec_code(project, "import time; time.sleep(60)", timeout=0.5)["status"] == "[TIMEOUT] exec"
    assert json.loads(pandastool("print(x)", str(project)))["stdout"] == "6\n"
    stop_container("p")
    stop_container("p")
    assert not ping(project)


def test_the_tool_starts_the_sandbox_that_the_environment_names(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glovebox.compat.kernellite import pandastool, ping, stop_container

    (place / "q").mkdir()
    monkeypatch.setenv("PANDAS_SANDBOX_PROJECT_DIR", str(place / "q"))
    monkeypatch.setenv("PANDAS_SANDBOX_SLUG", "slug-q")
    monkeypatch.setenv("PANDAS_SANDBOX_SOCKET_DIR", str(place / "socks"))
    assert json.loads(pandastool("print(1)", str(place / "q")))["stdout"] == "1\n"
    assert os.path.exists(place / "socks/kernel.sock") and ping(place / "q", place / "socks")
    stop_container("slug-q")
    assert not ping(place / "q", place / "socks")
