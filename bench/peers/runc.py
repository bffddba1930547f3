"""runc with a bundle made by hand: the runtime that Docker uses, without Docker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from context import Bench
from measure import Skipped
from peers import rootfs

LIMITS = {"memory": {"limit": 512 << 20}, "pids": {"limit": 64}, "cpu": {"quota": 100000, "period": 100000}}


class Runc:
    def __init__(self, bench: Bench) -> None:
        self.program = shutil.which("runc", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or ""
        if not self.program or os.geteuid() != 0:
            raise Skipped("runc is not installed" if not self.program else "runc needs root here")
        self.bundle = bench.scratch / "runc"
        (self.bundle / "rootfs").mkdir(parents=True)
        with tarfile.open(rootfs.archive(bench)) as tar:
            tar.extractall(self.bundle / "rootfs")
        subprocess.run([self.program, "spec"], cwd=self.bundle, check=True)
        self.prefix = f"gb-bench-{os.getpid()}"

    def command(self, code: str) -> list[str]:
        path = self.bundle / "config.json"
        config = json.loads(path.read_text())
        config["process"].update(
            terminal=False,
            args=["/usr/bin/python3", "-c", code],
            user={"uid": 65000, "gid": 65000},
            noNewPrivileges=True,
        )
        config["process"]["capabilities"] = {}
        config["root"]["readonly"] = True
        config["linux"]["resources"].update(LIMITS)
        path.write_text(json.dumps(config))
        state = str(Path(self.bundle) / "state")
        return [self.program, "--root", state, "run", "--bundle", str(self.bundle), self.prefix]


def command(bench: Bench, code: str) -> list[str]:
    return bench.share("runc", lambda: Runc(bench)).command(code)
