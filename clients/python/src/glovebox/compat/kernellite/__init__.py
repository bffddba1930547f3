"""KernelLite: a Python for data analysis that stays, one for each project, behind a UNIX socket.

    from glovebox.compat.kernellite import start_container, exec_code, shutdown

    start_container("/srv/projects/demo", "demo")
    print(exec_code("/srv/projects/demo", "x = 41; print(x + 1)")["stdout"])
    shutdown("/srv/projects/demo")

The project's directory is /workspace; `save(df, name)` and `load(name)` keep tables in its `data` directory. No Docker
is needed: `start_container` starts a Glovebox daemon of the project's own. `start_container(..., engine="docker")` or
`SANDBOX_MODE=docker` has the sandbox made by dockerd, with the same result.
"""

from __future__ import annotations

from .pandastool import pandastool
from .sandbox_util import exec_code, ping, shutdown, start_container, stop_container

__all__ = ["exec_code", "pandastool", "ping", "shutdown", "start_container", "stop_container"]
