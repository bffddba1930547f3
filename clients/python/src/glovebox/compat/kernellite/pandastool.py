"""The tool that an agent calls."""

from __future__ import annotations

import json
import os

from ...errors import GloveboxError
from .sandbox_util import exec_code, ping, start_container


def pandastool(
    code: str, project_dir: str, socket_dir: str | None = None, *, db: object = None, config: object = None
) -> str:
    """Runs Python for data analysis in the project's sandbox. Variables stay between calls.

    pandas, numpy, scikit-learn, pyarrow and rdkit are there; `load(name)` and `save(df, name)` keep tables in the
    project's `data` directory. Returns JSON with `status`, `stdout` and `stderr`. A sandbox that does not run yet is
    started. `PANDAS_SANDBOX_SOCKET_DIR` and `PANDAS_SANDBOX_SLUG` count where `PANDAS_SANDBOX_PROJECT_DIR` is this
    project. `db` and `config` are taken for the sake of frameworks that pass them.
    """
    slug = os.path.basename(os.path.realpath(project_dir)) or "project"
    if _is_named_project(project_dir):
        socket_dir = socket_dir or os.environ.get("PANDAS_SANDBOX_SOCKET_DIR") or None
        slug = os.environ.get("PANDAS_SANDBOX_SLUG") or slug
    try:
        if not ping(project_dir, socket_dir):
            start_container(project_dir, slug, socket_dir=socket_dir)
        return json.dumps(exec_code(project_dir, code, socket_dir))
    except (GloveboxError, OSError) as error:
        return json.dumps({"status": "[ERROR] sandbox", "stdout": "", "stderr": str(error)})


def _is_named_project(project_dir: str) -> bool:
    named = os.environ.get("PANDAS_SANDBOX_PROJECT_DIR")
    return bool(named) and os.path.realpath(str(named)) == os.path.realpath(project_dir)
