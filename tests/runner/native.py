"""Parts that are built from C: unit tests, sanitizers, fuzz targets."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runner.outcome import REPOSITORY, RESULTS, Outcome, count_junit, end_all, in_ci, run
from runner.python import pytest_part

BUILD_LIMIT_S = 300
PROGRESS = re.compile(r"\[\d+/\d+\] |INFO: ")
SANITIZERS = "-Db_sanitize=address,undefined"
ASAN_OPTIONS = "abort_on_error=0:exitcode=99:detect_stack_use_after_return=1"
UBSAN_OPTIONS = "print_stacktrace=1:halt_on_error=1:exitcode=99"


def _meson() -> dict[str, str]:
    """The environment in which `meson` is one that is new enough."""
    return {"PATH": f"{REPOSITORY / 'build/venv/bin'}:{os.environ['PATH']}"}


def build(directory: str, options: list[str], env: Mapping[str, str] | None = None, strict: bool = True) -> Outcome:
    """Sets up (once) and compiles a build directory; when `strict`, warnings are errors in CI."""
    outcome = Outcome()
    environment = {**_meson(), **(env or {})}
    if not (REPOSITORY / directory / "build.ninja").exists():
        errors = ["-Dwerror=true"] if strict and in_ci() else []
        done = run(["meson", "setup", directory, *options, *errors], BUILD_LIMIT_S, environment)
        if not outcome.check(done.good, f"meson setup {directory} failed:\n{done.output}"):
            return outcome
    done = run(["meson", "compile", "-C", directory, "-j", "2"], BUILD_LIMIT_S, environment)
    problems = "\n".join(line for line in done.output.splitlines() if not PROGRESS.match(line))
    outcome.check(done.good, f"{directory} does not compile:\n{problems}")
    return outcome


def unit_tests(directory: str, env: Mapping[str, str] | None = None) -> Outcome:
    """The TAP tests of one build directory, each check counted."""
    environment = {**_meson(), **(env or {})}
    command = ["meson", "test", "-C", directory, "--suite", "unit", "--print-errorlogs", "--num-processes", "1"]
    done = run([*command, "--timeout-multiplier", "5"], 300, environment)
    outcome = count_junit(REPOSITORY / directory / "meson-logs/testlog.junit.xml")
    if not done.good and outcome.failed == 0:
        outcome.failed += 1
    if outcome.failed:
        outcome.details.append(done.output)
    return outcome


def unit() -> Outcome:
    return unit_tests("build")


def sanitizers() -> Outcome:
    """Unit tests and the smoke list again, with the address and undefined behaviour sanitizers."""
    # gcc warns of things that are not so when it instruments; the plain build and clang's judge the warnings.
    outcome = build("build-asan", [SANITIZERS], strict=False)
    if outcome.failed:
        return outcome
    options = {"ASAN_OPTIONS": f"{ASAN_OPTIONS}:detect_leaks=1", "UBSAN_OPTIONS": UBSAN_OPTIONS}
    outcome.add(unit_tests("build-asan", options))
    # The leak checker traces its own process, which nothing in or around a box may do.
    options["ASAN_OPTIONS"] = f"{ASAN_OPTIONS}:detect_leaks=0"
    options["GLOVEBOX"] = str(REPOSITORY / "build-asan/glovebox")
    outcome.add(pytest_part("sanitizers", "tests/box", 240, options, marker="smoke"))
    return outcome


def fuzz() -> Outcome:
    """Every fuzz target for a bounded number of inputs, from a fixed seed, starting with the corpus in the tree."""
    options = ["-Dfuzz=true", SANITIZERS, "-Db_lundef=false"]
    outcome = build("build-fuzz", options, {"CC": "clang"})
    if outcome.failed:
        return outcome
    targets = sorted((REPOSITORY / "build-fuzz/tests/fuzz").glob("fuzz_*"))
    targets = [target for target in targets if target.is_file() and os.access(target, os.X_OK)]
    outcome.check(bool(targets), "no fuzz target was built")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            list(pool.map(lambda target: _fuzz_one(outcome, target), targets))
        except BaseException:
            end_all()
            raise
    if not outcome.failed:
        shutil.rmtree(RESULTS / "crashes", ignore_errors=True)
    return outcome


def _fuzz_one(outcome: Outcome, target: Path) -> None:
    corpus = REPOSITORY / "tests/fuzz/corpus" / target.name.removeprefix("fuzz_")
    crashes = RESULTS / "crashes"
    crashes.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="glovebox-test-fuzz-") as fresh:
        command: list[str | Path] = [target, fresh, *([corpus] if corpus.is_dir() else [])]
        command += ["-seed=1", "-runs=100000", "-max_total_time=8", "-timeout=10", "-rss_limit_mb=1024", "-verbosity=0"]
        command += ["-print_final_stats=1", f"-artifact_prefix={crashes}/{target.name}-"]
        done = run(command, 120, {"ASAN_OPTIONS": ASAN_OPTIONS, "UBSAN_OPTIONS": UBSAN_OPTIONS})
    runs = re.search(r"number_of_executed_units:\s*(\d+)", done.output)
    ran = done.good and runs is not None and int(runs.group(1)) > 0
    outcome.check(ran, f"{target.name} (input kept in {crashes}):\n{done.output}")
