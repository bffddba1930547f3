"""Pictures in terminals that can show them; what a box sends cannot be anything else."""

from __future__ import annotations

import base64
import fcntl
import os
import pty
import re
import struct
import termios
import zlib

import pytest
from support.glovebox import Completed, Glovebox

WIDTH, HEIGHT = 13, 8
COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)]


def good(done: Completed) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def colour_at(x: int, y: int) -> tuple[int, int, int]:
    return COLOURS[(x // 2 + y) % len(COLOURS)]


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int = WIDTH, height: int = HEIGHT, kind: int = 6, filters: bytes = b"\0\1\2\3\4") -> bytes:
    """RGBA, every kind of filter, in two IDAT chunks."""
    rows, before = b"", bytes(4 * WIDTH)
    for y in range(HEIGHT):
        row = b"".join(bytes((*colour_at(x, y), 255)) for x in range(WIDTH))
        filtered = bytearray()
        for i, value in enumerate(row):
            left, up = row[i - 4] if i >= 4 else 0, before[i]
            corner = before[i - 4] if i >= 4 else 0
            guess = left + up - corner
            near = min((left, up, corner), key=lambda one: (abs(guess - one), (left, up, corner).index(one)))
            add = (0, left, up, (left + up) // 2, near)[filters[y % len(filters)]]
            filtered.append((value - add) & 255)
        rows += bytes([filters[y % len(filters)]]) + filtered
        before = row
    packed = zlib.compress(rows)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", packed[:9]) + chunk(b"IDAT", packed[9:]) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def read_sixels(text: str) -> dict[tuple[int, int], tuple[int, ...]]:
    palette: dict[int, tuple[int, ...]] = {}
    pixels: dict[tuple[int, int], tuple[int, ...]] = {}
    x = y = colour = 0
    body = text.partition("q")[2].partition("\033")[0]
    for token in re.finditer(r'"[\d;]+|#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)(.)|[?-~]|\$|-', body):
        if token[1]:
            palette[int(token[1])] = tuple(round(int(token[i]) * 255 / 100) for i in (2, 3, 4))
        elif token[5]:
            colour = int(token[5])
        elif token[0] == "$":
            x = 0
        elif token[0] == "-":
            x, y = 0, y + 6
        elif not token[0].startswith('"'):
            count, letter = (int(token[6]), token[7]) if token[6] else (1, token[0])
            for _ in range(count):
                for bit in range(6):
                    if (ord(letter) - 63) >> bit & 1:
                        pixels[x, y + bit] = palette[colour]
                x += 1
    return pixels


def show(glovebox: Glovebox, picture: bytes | str, kind: str) -> str:
    text = picture if isinstance(picture, str) else base64.b64encode(picture).decode()
    code = f"display({{'text/plain': 'a picture', 'image/png': {text!r}}}, raw=True)"
    return good(glovebox("exec", "demo", "-c", code, env={"GLOVEBOX_FIGURES": kind}))


def test_pictures_are_shown_in_three_protocols(served_glovebox: Glovebox) -> None:
    picture = png()
    encoded = base64.b64encode(picture).decode()
    assert show(served_glovebox, picture, "kitty") == f"\033_Ga=T,f=100,m=0;{encoded}\033\\\n"
    assert show(served_glovebox, picture, "iterm").endswith(f":{encoded}\a\n")
    sixels = show(served_glovebox, picture, "sixel")
    assert sixels.startswith('\033Pq"1;1;13;8') and sixels.endswith("\033\\\n")
    expected = {(x, y): colour_at(x, y) for x in range(WIDTH) for y in range(HEIGHT)}
    assert read_sixels(sixels) == expected
    assert show(served_glovebox, picture, "none") == "a picture\n"
    assert good(served_glovebox("exec", "demo", "-c", "1", env={"TERM": "xterm-kitty"})) == "1\n"


@pytest.mark.parametrize("kind", ["kitty", "iterm", "sixel"])
def test_data_that_is_no_image_is_shown_as_text(served_glovebox: Glovebox, kind: str) -> None:
    for wrong in ("\033]0;owned\a", "AAA", "====", "not base64!"):
        assert show(served_glovebox, wrong, kind) == "a picture\n", wrong
    if kind == "sixel":
        for wrong in (png(width=50_000), png(height=9), png(kind=2), png()[:60], png(kind=7), b"\x89PNG", b"x" * 100):
            assert show(served_glovebox, wrong, kind) == "a picture\n"


def test_terminal_has_colours_and_its_width(served_glovebox: Glovebox) -> None:
    code = "import os; print([os.environ.get(n) for n in ('FORCE_COLOR', 'COLUMNS', 'TERM')])"
    assert good(served_glovebox("exec", "demo", "-c", code)) == "[None, None, 'dumb']\n"
    for more, expected in (({"TERM": "xterm"}, "['1', '97', 'xterm-256color']"), ({}, "[None, '97', 'dumb']")):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 97, 0, 0))
        with served_glovebox.popen("exec", "demo", "-c", code, stdout=theirs, env=more) as process:
            os.close(theirs)
            assert process.wait(60) == 0
            assert os.read(ours, 1000).decode().strip() == expected
        os.close(ours)


def test_progress_bar_arrives_while_the_code_runs(served_glovebox: Glovebox) -> None:
    """What tqdm does: a line rewritten in place, on standard error."""
    code = "import sys, os, time\nsys.stderr.write('\\r 50%|bar')\nsys.stderr.flush()\n"
    code += "while not os.path.exists('go'): time.sleep(0.01)"
    with served_glovebox.popen("exec", "demo", "-c", code) as process:
        assert process.stderr and process.stderr.read(9) in ("\r 50%|bar", "\n 50%|bar")
        good(served_glovebox("cp", "-", "demo:go", input=""))
        assert process.wait(60) == 0
