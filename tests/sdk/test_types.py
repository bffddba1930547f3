"""Types as a user of the package sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.glovebox import REPOSITORY

HERE = Path(__file__).parent


def check(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    options = ["--strict", "--cache-dir", str(cache), "--follow-imports=silent"]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    environment = {"MYPYPATH": str(REPOSITORY / "clients/python/src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, check=False)


def test_a_users_program_is_typed(tmp_path: Path) -> None:
    done = check(HERE / "typed_use.py", tmp_path)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from glovebox import Sandbox\nx: int = Sandbox.create().files.read('a', 'bytes')\n")
    done = check(wrong, tmp_path)
    assert done.returncode == 1 and "bytes" in done.stdout, done.stdout
