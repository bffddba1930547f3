"""Parts that are pytest directories.

A test that failed is run once more, alone, at the end of its part. If it passes then, it counts as passed and is listed
as flaky: a race is a fault to be fixed and must stay visible, but it need not block other work."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from runner.outcome import REPOSITORY, RESULTS, Finished, Outcome, count_junit, run

# More failures than this are no accident; running them again would only cost time.
RETRIES_MAX = 10


def _pytest(
    arguments: list[str], junit: Path, limit_s: float, env: Mapping[str, str] | None, python: Path | str
) -> Finished:
    junit.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-q", f"--junitxml={junit}", "-o", f"cache_dir={_cache(junit)}"]
    return run([*command, *arguments], limit_s, env)


def _cache(junit: Path) -> Path:
    return junit.with_suffix(".cache")


def _failed_tests(junit: Path) -> list[str]:
    path = _cache(junit) / "v/cache/lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def pytest_part(
    name: str, directory: str, limit_s: float, env: Mapping[str, str] | None = None, marker: str | None = None,
    python: Path | str = sys.executable,
) -> Outcome:  # fmt: skip
    """Runs a directory, or only what carries the marker."""
    junit = RESULTS / f"{name}.xml"
    shutil.rmtree(_cache(junit), ignore_errors=True)
    if not (REPOSITORY / directory).is_dir():
        return Outcome(failed=1, details=[f"{directory} is missing"])
    arguments = [directory, *(["-m", marker] if marker else [])]
    done = _pytest(arguments, junit, limit_s, env, python)
    outcome = count_junit(junit)
    if not done.good and outcome.failed == 0:
        outcome.failed += 1
    if outcome.failed:
        outcome.details.append(done.output)
        if not done.timed_out:
            _retry(outcome, _failed_tests(junit), junit, env, python)
    return outcome


def kernel() -> Outcome:
    """The kernel's own tests, with the packages of the scientific layer, which the box tests use as well."""
    data = Path(os.environ.get("GLOVEBOX_TEST_DATA_DIR", REPOSITORY / "build/test-data"))
    layer = data / "images/host/python"
    if not layer.is_dir():
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        built = run([REPOSITORY / "build/glovebox", "image", "build", "host"], 600, {"GLOVEBOX_DATA_DIR": str(data)})
        if not built.good:
            return Outcome(failed=1, details=[f"the scientific layer could not be built:\n{built.output}"])
    return pytest_part("kernel", "tests/kernel", 300, {"PYTHONPATH": str(layer)})


def sdk() -> Outcome:
    """The Python package: its types, its generated half, and its tests."""
    outcome = Outcome()
    package = REPOSITORY / "clients/python"
    types = [sys.executable, "-m", "mypy", "--cache-dir", RESULTS / "mypy", "--config-file", package / "pyproject.toml"]
    done = run(types, 120)
    outcome.check(done.good, f"mypy --strict:\n{done.output}")
    done = run([sys.executable, package / "tools/generate_sync.py", "--check"], 30)
    outcome.check(done.good, f"the blocking half of the package:\n{done.output}")
    done = run([sys.executable, package / "tools/generate_reference.py", "--check"], 30)
    outcome.check(done.good, f"the reference of the package:\n{done.output}")
    outcome.add(pytest_part("sdk", "tests/sdk", 600))
    return outcome


def frameworks() -> Outcome:
    """Adapters for agent frameworks, which have a virtual environment of their own: they need another pytest."""
    python = REPOSITORY / "build/frameworks-venv/bin/python"
    return pytest_part("frameworks", "tests/frameworks", 600, python=python)


def _retry(outcome: Outcome, tests: list[str], junit: Path, env: Mapping[str, str] | None, python: Path | str) -> None:
    if not 0 < len(tests) <= RETRIES_MAX:
        return
    for index, test in enumerate(tests):
        again = junit.with_name(f"{junit.stem}-again-{index}.xml")
        done = _pytest([test], again, 300, env, python)
        shutil.rmtree(_cache(again), ignore_errors=True)
        if done.good and outcome.failed > 0:
            outcome.failed -= 1
            outcome.passed += 1
            outcome.flaky.append(test)
