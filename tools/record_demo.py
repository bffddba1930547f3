#!/usr/bin/env python3
"""Record docs/demo.svg: run real commands on a terminal and draw what they print.

Each command of SCENE runs in a shell on a pseudo-terminal. The picture holds its output unchanged, except that a line
longer than the terminal wraps between two words. The commands need the packages of `glovebox image build`. Usage,
after `make`:

    tools/record_demo.py                 writes docs/demo.svg
    tools/record_demo.py --check         runs the commands, writes nothing, fails if one does not end as expected
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURE = REPOSITORY / "docs/demo.svg"

# Each row: the command as typed, the exit status it must have, a text its output must contain.
SCENE = [
    ("glovebox run -c 'print(6 * 7)'", 0, "42"),
    ("glovebox run -l bash -c 'id -un; ls /home; curl -sS https://example.org'", 6, "a box has no network"),
    ("glovebox run --memory 100m -c 'x = bytearray(10**9)'", 137, "memory limit 100 MiB reached"),
    ("glovebox exec demo -c 'import pandas as pd; df = pd.DataFrame({\"x\": [1, 2, 3]})'", 0, ""),
    ("glovebox exec demo -c 'df.assign(square=df.x ** 2)'", 0, "square"),
]

COLUMNS = 92
CHARACTER, LINE, MARGIN, BAR = 8.43, 20, 18, 34
COMMAND_SECONDS = 120
PROMPT = "$ "
BACKGROUND, BAR_COLOUR, TEXT, PROMPT_COLOUR = "#1b1f27", "#2a303c", "#d5dae3", "#7fd08a"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")


def run_on_terminal(command: str, environment: dict[str, str]) -> tuple[int, str]:
    """The exit status of the command and everything that it wrote to its terminal."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        ["/bin/bash", "-c", f"stty cols {COLUMNS} rows 40; {command}"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    written = b""
    while select.select([master], [], [], COMMAND_SECONDS)[0]:
        try:
            part = os.read(master, 65536)
        except OSError:  # EIO: the last process has closed the terminal
            break
        if not part:
            break
        written += part
    os.close(master)
    return child.wait(COMMAND_SECONDS), CONTROL.sub("", written.decode())


def wrap(text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, replace_whitespace=False, break_on_hyphens=False) or [""]


def perform(environment: dict[str, str]) -> list[tuple[bool, str]]:
    """Runs every command; returns the lines of the picture, each with whether it was typed."""
    lines: list[tuple[bool, str]] = []
    for command, expected_status, expected_text in SCENE:
        status, output = run_on_terminal(command, environment)
        if status != expected_status or expected_text not in output:
            sys.exit(
                f"record_demo: {command}\nended with status {status}, expected {expected_status} and "
                f"{expected_text!r} in its output, which was:\n{output}"
            )
        lines += [(True, line) for line in wrap(PROMPT + command)]
        lines += [(False, line) for raw in output.splitlines() for line in wrap(raw)]
    return lines


def draw(lines: list[tuple[bool, str]]) -> str:
    width = round(2 * MARGIN + COLUMNS * CHARACTER)
    height = BAR + 2 * MARGIN + LINE * len(lines) - 6
    dots = "".join(
        f'<circle cx="{20 + 20 * n}" cy="{BAR // 2}" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#e0675f", "#dfb44e", "#6cbb5c"))
    )
    rows = []
    for number, (typed, line) in enumerate(lines):
        y = BAR + MARGIN + LINE * number + 12
        if typed and line.startswith(PROMPT):
            body = f'<tspan fill="{PROMPT_COLOUR}">{PROMPT}</tspan>{escape(line.removeprefix(PROMPT))}'
        else:
            body = escape(line)
        weight = ' font-weight="bold"' if typed else ""
        rows.append(f'<text x="{MARGIN}" y="{y}"{weight} xml:space="preserve">{body}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-label="a terminal with the commands of glovebox and their output">',
            "<!-- made by tools/record_demo.py from real output; do not edit -->",
            f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
            f'<path d="M0 {BAR} V8 a8 8 0 0 1 8 -8 H{width - 8} a8 8 0 0 1 8 8 V{BAR} z" fill="{BAR_COLOUR}"/>',
            dots,
            f'<g font-family="\'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="14" fill="{TEXT}">',
            *rows,
            "</g>",
            "</svg>",
            "",
        ]
    )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="write nothing")
    check = arguments.parse_args().check
    with tempfile.TemporaryDirectory(prefix="glovebox-recording-") as scratch:
        # Its own socket and data: the recording must not use or stop a daemon that runs already.
        environment = {
            **os.environ,
            "PATH": f"{REPOSITORY / 'build'}:{os.environ.get('PATH', os.defpath)}",
            "GLOVEBOX_SOCKET": f"{scratch}/daemon.sock",
            "GLOVEBOX_DATA_DIR": f"{scratch}/data",
            "TERM": "dumb",
            "NO_COLOR": "1",
        }
        try:
            lines = perform(environment)
        finally:
            subprocess.run(["glovebox", "session", "rm", "demo"], env=environment, capture_output=True, check=False)
            subprocess.run(["glovebox", "stop"], env=environment, capture_output=True, check=False)
    if not check:
        PICTURE.write_text(draw(lines))
        print(f"wrote {PICTURE.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
