"""Two daemons of one user, each with a data directory of its own, and one store of images."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.daemons import StartDaemon


@pytest.mark.layer
def test_two_daemons_share_the_layer_of_one_data_directory(start_daemon: StartDaemon, layer_data: Path) -> None:
    shared = {"GLOVEBOX_SHARED_DATA_DIR": str(layer_data)}
    daemons = [start_daemon("--preload", "numpy", env=shared) for _ in range(2)]
    code = "import numpy, os; print(numpy.__name__, os.path.dirname(os.path.dirname(numpy.__file__)))"
    for daemon in daemons:
        done = daemon.client().execute(code, "s")
        assert done["stdout"] == "numpy /opt/glovebox/python\n", done
        assert not (daemon.data / "images/host/python").exists()
    alone = start_daemon()
    assert alone.client().execute("import numpy", "s")["error"]["name"] == "ModuleNotFoundError"
