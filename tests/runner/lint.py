"""Parts that read the tree: style of the code, and of the documents."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.outcome import REPOSITORY, Outcome, run

LINE_MAX = 120
FILE_MAX = 600

# Paths of one person's machine have no place in the tree. Put together here so that this line is not one itself.
PRIVATE_PATH = re.compile(r"(?<![\w.])/" + r"work/(main|wt|shared)\b")

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
# A line with the marks of a code block has nothing else but a language.
FENCE = re.compile(r"(?!.*```).*|\s*```\w*")


def tracked(*patterns: str) -> Iterator[Path]:
    """Files of the tree: what git knows, or everything that is not built where git does not know the tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        found = {path for pattern in patterns for path in REPOSITORY.rglob(pattern)}
        names = [str(path.relative_to(REPOSITORY)) for path in found]
    for name in sorted(names):
        path = REPOSITORY / name
        if path.is_file() and not name.startswith("build"):
            yield path


def lint() -> Outcome:
    """Python by ruff; C by clang-format, and by length (advice only); shell by its own syntax check."""
    outcome = Outcome()
    done = run([sys.executable, "-m", "ruff", "check", "--quiet", "--output-format=concise", "."], 60)
    outcome.check(done.good, f"ruff check:\n{done.output}")
    done = run([sys.executable, "-m", "ruff", "format", "--check", "--quiet", "."], 60)
    if not done.good:
        outcome.warnings.append("ruff format would change something")
    for path in tracked("*.sh", ".ci/run"):
        done = run(["bash", "-n", path], 10)
        outcome.check(done.good, f"{path.relative_to(REPOSITORY)}: {done.output}")
    formatter = Path(sys.executable).parent / "clang-format"  # the version that tests/requirements.txt names
    done = run([formatter, "--dry-run", "-Werror", "--ferror-limit=1", *tracked("*.c", "*.h")], 120)
    outcome.check(done.good, f"clang-format (build/venv/bin/clang-format -i FILE fixes it):\n{done.output[:2000]}")
    _advise_on_c(outcome)
    _find_private_paths(outcome)
    return outcome


def _advise_on_c(outcome: Outcome) -> None:
    sources = list(tracked("*.c", "*.h"))
    for path in sources:
        lines = path.read_text(errors="replace").splitlines()
        name = path.relative_to(REPOSITORY)
        if len(lines) > FILE_MAX:
            outcome.warnings.append(f"{name}: {len(lines)} lines; past {FILE_MAX} look for the second noun")
        outcome.warnings += [
            f"{name}:{n}: longer than {LINE_MAX}" for n, line in enumerate(lines, 1) if len(line) > LINE_MAX
        ]


def _find_private_paths(outcome: Outcome) -> None:
    bad: list[str] = []
    for path in tracked("*"):
        text = path.read_bytes()
        if b"\0" not in text[:1024] and PRIVATE_PATH.search(text.decode(errors="replace")):
            bad.append(str(path.relative_to(REPOSITORY)))
    outcome.check(not bad, f"paths of one person's machine in: {', '.join(bad)}")


def docs() -> Outcome:
    """Documents: lines that fit, links that lead somewhere, and the ones that must be there."""
    outcome = Outcome()
    for name in (
        "README.md",
        "LICENSE",
        "docs/HACKING.md",
        "docs/ARCHITECTURE.md",
        "docs/SECURITY.md",
        "docs/glovebox.1",
    ):
        outcome.check((REPOSITORY / name).exists(), f"{name} is missing")
    for path in tracked("*.md"):
        name = path.relative_to(REPOSITORY)
        text = path.read_text()
        long = [str(n) for n, line in enumerate(text.splitlines(), 1) if len(line) > LINE_MAX]
        outcome.check(not long, f"{name}: longer than {LINE_MAX} characters: lines {', '.join(long)}")
        targets = [target for target in LINK.findall(text) if "://" not in target and not target.startswith("mailto:")]
        dead = [target for target in targets if not (path.parent / target).exists()]
        outcome.check(not dead, f"{name}: links to nothing: {', '.join(dead)}")
        joined = [str(n) for n, line in enumerate(text.splitlines(), 1) if not FENCE.fullmatch(line)]
        outcome.check(not joined, f"{name}: a code block that was joined with text: lines {', '.join(joined)}")
    return outcome
