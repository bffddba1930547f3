"""The result of a part of the tests, and running commands for it."""

from __future__ import annotations

import os
import signal
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "build/test-results"

# A skip with a reason that starts so is fine everywhere. In CI every other skip is a failure: something that CI must
# have was missing.
OPTIONAL = "optional:"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


@dataclass
class Outcome:
    """Counts, and the text that explains the failures."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    flaky: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def check(self, good: bool, explanation: str) -> bool:
        """Counts one check; the explanation is kept only for a failure."""
        if good:
            self.passed += 1
        else:
            self.failed += 1
            self.details.append(explanation)
        return good

    def add(self, other: Outcome) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.flaky += other.flaky
        self.warnings += other.warnings
        self.details += other.details


@dataclass
class Finished:
    """A command that ended, or was ended."""

    status: int
    output: str
    timed_out: bool = False

    @property
    def good(self) -> bool:
        return self.status == 0 and not self.timed_out


def run(command: Iterable[str | Path], limit_s: float, env: Mapping[str, str] | None = None) -> Finished:
    """Runs a command in the repository, both streams together; its process group is killed after the limit.

    The output goes to a file and not through a pipe: a daemon that a test left behind would hold a pipe open."""
    arguments = [str(argument) for argument in command]
    RESULTS.mkdir(parents=True, exist_ok=True)
    log = RESULTS / f"output-{os.getpid()}.log"
    try:
        with log.open("wb") as sink:
            process = subprocess.Popen(
                arguments,
                cwd=REPOSITORY,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            timed_out = False
            try:
                process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        output = log.read_text(errors="replace")
    except FileNotFoundError as missing:
        return Finished(127, f"{missing.filename} is missing: run tools/setup.sh test")
    finally:
        log.unlink(missing_ok=True)
    if timed_out:
        output += f"\n{' '.join(arguments)}: ended after {limit_s:.0f} s, which is its limit\n"
    return Finished(process.returncode, output, timed_out)


def count_junit(path: Path) -> Outcome:
    """Counts a JUnit file. One that is missing, broken or empty counts as one failure."""
    outcome = Outcome()
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as problem:
        outcome.check(False, f"{path}: no test results: {problem}")
        return outcome
    outcome.check(bool(cases), f"{path}: no test was run")
    outcome.passed = 0
    for case in cases:
        skip = case.find("skipped")
        reason = (skip.get("message") or skip.text or "") if skip is not None else ""
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        elif skip is None:
            outcome.passed += 1
        elif in_ci() and not reason.startswith(OPTIONAL) and skip.get("type") != "pytest.xfail":
            outcome.check(False, f"{case.get('classname')}.{case.get('name')}: skipped, not allowed in CI: {reason}")
        else:
            outcome.skipped += 1
    return outcome
