"""The part `vm`: the tests marked `vm` on a pure cgroup v2 kernel in a virtual machine."""

from __future__ import annotations

import subprocess
import sys

from runner.outcome import REPOSITORY, Outcome, count_junit

sys.path.insert(0, str(REPOSITORY / "tests/vm"))

from disk import DiskError
from initramfs import KernelError
from machine import MachineResult, run_machine


def vm() -> Outcome:
    outcome = Outcome()
    try:
        result = run_machine()
    except (OSError, DiskError, KernelError, subprocess.SubprocessError) as problem:
        outcome.check(False, f"the virtual machine could not be started: {problem}")
        return outcome
    booted = result.ended and bool(result.machine)
    outcome.check(booted, f"the machine did not come to its end; its console:\n{result.console}")
    if booted and result.boots > 1:
        outcome.flaky.append("the virtual machine came up only at the second boot")
    if booted:
        _check_machine(outcome, result)
    return outcome


def _check_machine(outcome: Outcome, result: MachineResult) -> None:
    has_controllers = all(controller in result.machine.split() for controller in ("memory", "pids", "cpu"))
    outcome.check(has_controllers, f"the machine lacks controllers: {result.machine}")
    outcome.passed += result.tap_passed
    outcome.failed += result.tap_failed
    outcome.details += result.details
    if result.junit is None:
        outcome.check(False, f"pytest in the machine left no result:\n{result.pytest_log}{result.console}")
        return
    tests = count_junit(result.junit)
    if result.pytest_status != 0 and tests.failed == 0:
        tests.failed += 1
    if tests.failed:
        tests.details.append(result.pytest_log)
    outcome.add(tests)
