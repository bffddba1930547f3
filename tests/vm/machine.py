"""Boots the test machine, waits for its end, and reads what the tests inside said.

QEMU emulates the processor (TCG), so that the result does not depend on /dev/kvm being there or being any good;
GLOVEBOX_VM_ACCEL=kvm is for people who know that theirs is. The machine is a q35 and not the quicker microvm: that one
has no clock but the PIT, and on a busy host Linux often cannot calibrate by it and hangs at once (seen).

Run by hand: python3 tests/vm/machine.py"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from disk import make_disk, read_results
from initramfs import collect_modules, compile_init, make_initramfs

REPOSITORY = Path(__file__).resolve().parents[2]
BOOT_LIMIT_S = 540
UP_LIMIT_S = 90
UP_MARK = b"vm: up"
PR_SET_PDEATHSIG = 1


@dataclass
class MachineResult:
    """What came out of one boot."""

    console: str = ""
    ended: bool = False
    boots: int = 0
    tap_passed: int = 0
    tap_failed: int = 0
    details: list[str] = field(default_factory=list)
    junit: Path | None = None
    pytest_status: int | None = None
    pytest_log: str = ""
    machine: str = ""


def _qemu_command(kernel: Path, initramfs: Path, disk: Path) -> list[str]:
    accel = os.environ.get("GLOVEBOX_VM_ACCEL", "tcg")
    command = ["qemu-system-x86_64", "-M", "q35", "-accel", accel, "-cpu", "max", "-smp", "2", "-m", "2048"]
    command += ["-kernel", str(kernel), "-initrd", str(initramfs)]
    command += ["-append", "console=ttyS0 quiet reboot=t panic=-1 mitigations=off cgroup_no_v1=all"]
    command += ["-drive", f"id=disk,file={disk},format=raw,if=none,cache=unsafe"]
    command += ["-device", "virtio-blk-pci,drive=disk"]
    return [*command, "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot"]


def _die_with_parent() -> None:
    """A machine that is not waited for would compute on for ever."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _boot(command: list[str], console: Path, limit_s: float) -> bool:
    """Runs the machine; returns whether it ended by itself. One that is not up in time is not waited for."""
    with console.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        started = time.monotonic()
        up = False
        try:
            while process.poll() is None:
                elapsed = time.monotonic() - started
                up = up or UP_MARK in console.read_bytes()
                if elapsed > limit_s or (not up and elapsed > UP_LIMIT_S):
                    return False
                time.sleep(0.2)
            return True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _count_tap(result: MachineResult, directory: Path) -> None:
    for path in sorted(directory.glob("*.tap")):
        text = path.read_text(errors="replace")
        failed = len(re.findall(r"^not ok\b", text, re.MULTILINE))
        broken = not re.search(r"^1\.\.\d+", text, re.MULTILINE) or "exit status" in text
        result.tap_passed += len(re.findall(r"^ok\b", text, re.MULTILINE))
        result.tap_failed += failed if failed else int(broken)
        if failed or broken:
            result.details.append(f"{path.stem} in the machine:\n{text}")


def run_machine(limit_s: float = BOOT_LIMIT_S) -> MachineResult:
    """One boot with today's build. Raises OSError, DiskError, KernelError or CalledProcessError when it cannot."""
    work = REPOSITORY / "build/vm"
    kernel = work / "kernel/vmlinuz"
    if not kernel.exists():
        raise FileNotFoundError(f"{kernel} is missing: run tools/setup.sh test, which fetches it with apt-get")
    if shutil.which("qemu-system-x86_64") is None:
        raise FileNotFoundError("qemu-system-x86_64 is missing: run tools/setup.sh test, or install qemu-system-x86")
    compile_init(REPOSITORY / "tests/vm/init.c", work / "init")
    make_initramfs(work / "init", collect_modules(work / "kernel/modules"), work / "initramfs.gz")
    result = MachineResult()
    console = work / "console.log"
    # A machine that did not even come up says nothing about Glovebox: it gets a second chance, which is reported.
    while result.boots < 2 and UP_MARK.decode() not in result.console:
        disk = make_disk(REPOSITORY, work)
        result.boots += 1
        result.ended = _boot(_qemu_command(kernel, work / "initramfs.gz", disk), console, limit_s)
        result.console = console.read_text(errors="replace")
        read_results(disk, work / "out")
        disk.unlink()
    results = work / "out/results"
    _count_tap(result, results)
    junit, status, log = results / "pytest.xml", results / "pytest.status", results / "pytest.log"
    result.junit = junit if junit.exists() else None
    result.pytest_status = int(status.read_text()) if status.exists() else None
    result.pytest_log = log.read_text(errors="replace") if log.exists() else ""
    machine = results / "machine"
    result.machine = " ".join(machine.read_text().split()) if machine.exists() else ""
    return result


if __name__ == "__main__":
    outcome = run_machine()
    print(outcome.console)
    print(outcome.machine, f"TAP: {outcome.tap_passed} passed, {outcome.tap_failed} failed", outcome.pytest_status)
