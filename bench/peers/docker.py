"""Docker: a dockerd of our own, all of it below one directory, without a bridge and without touching iptables."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time

from context import Bench, say
from measure import Skipped
from peers import rootfs

HARDENED = (
    "--network none --cap-drop ALL --security-opt no-new-privileges --read-only --tmpfs /tmp --user 65000:65000 "
    "--pids-limit 64 --memory 512m --memory-swap 512m --cpus 1"
).split()
IMAGE = "glovebox-bench"


class Docker:
    def __init__(self, bench: Bench) -> None:
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        daemon, self.program = shutil.which("dockerd", path=path), shutil.which("docker")
        if not daemon or not self.program or os.geteuid() != 0:
            raise Skipped("dockerd is not installed" if not daemon else "docker is not installed, or we are not root")
        self.directory = bench.scratch / "docker"
        self.directory.mkdir()
        self.host = f"unix://{self.directory}/d.sock"
        self.log = open(self.directory / "log", "wb")  # noqa: SIM115 - lives as long as dockerd
        say("starting a dockerd of our own")
        options = [f"--data-root={self.directory}/data", f"--exec-root={self.directory}/exec", "-H", self.host]
        options += [f"--pidfile={self.directory}/pid", "--iptables=false", "--ip6tables=false", "--bridge=none"]
        self.process = subprocess.Popen(
            [daemon, *options],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=dict(os.environ, PATH=path),
        )
        try:
            self._wait()
            self._docker("import", str(rootfs.archive(bench)), IMAGE)
            sleep = ["/usr/bin/python3", "-c", "import time; time.sleep(1e6)"]
            self.warm = self._docker("run", "-d", *HARDENED, IMAGE, *sleep).strip()
        except BaseException:
            self.stop()
            raise

    def _docker(self, *words: str) -> str:
        command = [self.program, "-H", self.host, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise Skipped(f"docker {words[0]} failed here: {done.stderr.strip()[-200:]}")
        return done.stdout

    def _wait(self) -> None:
        for _ in range(200):
            if self.process.poll() is not None:
                break
            with contextlib.suppress(Skipped):
                self._docker("version")
                return
            time.sleep(0.1)
        tail = (self.directory / "log").read_text(errors="replace").strip()[-200:]
        raise Skipped(f"dockerd cannot start here: {tail}")

    def run_command(self, code: str) -> list[str]:
        return [str(self.program), "-H", self.host, "run", "--rm", *HARDENED, IMAGE, "/usr/bin/python3", "-c", code]

    def exec_command(self, code: str) -> list[str]:
        return [str(self.program), "-H", self.host, "exec", self.warm, "/usr/bin/python3", "-c", code]

    def stop(self) -> None:
        if self.process.poll() is None:
            if getattr(self, "warm", None):
                with contextlib.suppress(Skipped, subprocess.TimeoutExpired):
                    self._docker("rm", "-f", self.warm)
            self.process.terminate()  # dockerd ends its containerd too
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        for kind in ("overlay2", "overlay"):
            for mounted in self.directory.glob(f"data/{kind}/*/merged"):
                subprocess.run(["umount", "-l", str(mounted)], capture_output=True, check=False)


def run_command(bench: Bench, code: str) -> list[str]:
    return bench.share("docker", lambda: Docker(bench)).run_command(code)


def exec_command(bench: Bench, code: str) -> list[str]:
    return bench.share("docker", lambda: Docker(bench)).exec_command(code)
