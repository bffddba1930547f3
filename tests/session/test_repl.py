"""`glovebox repl`: on a real terminal, and from a pipe."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from support.glovebox import Glovebox
from support.screen import Screen

UP, LEFT, CTRL_A, CTRL_C, CTRL_D = b"\033[A", b"\033[D", b"\x01", b"\x03", b"\x04"


class Repl(Screen):
    def __init__(self, glovebox: Glovebox, *words: str) -> None:
        super().__init__(glovebox, "repl", *words)
        self.expect(b">>> ")

    def run(self, line: bytes, shown: bytes) -> None:
        self.type(line + b"\r")
        self.expect(b"\r\n" + shown)
        self.expect(b">>> ")


@pytest.fixture
def screen(served_glovebox: Glovebox) -> Iterator[Repl]:
    screen = Repl(served_glovebox, "demo")
    yield screen
    screen.close()


def test_lines_run_and_values_are_shown(screen: Repl, served_glovebox: Glovebox) -> None:
    screen.run(b"x = 41", b"")
    screen.run(b"x + 1", b"42")
    screen.run(b"_ * 2", b"84")
    screen.type(b"for i in range(2):\r")
    screen.expect(b"... ")
    screen.type(b"    print('row', i)\r")
    screen.expect(b"... ")
    screen.type(b"\r")
    screen.expect(b"row 0\r\nrow 1\r\n")
    screen.run(b"1 / 0", b"Traceback")
    screen.type(CTRL_D)
    assert screen.process.wait(30) == 0
    assert served_glovebox("exec", "demo", "-c", "x").stdout == "41\n", "the session stays"


def test_history_editing_and_completion(screen: Repl, served_glovebox: Glovebox) -> None:
    screen.run(b"value_of_mine = 7", b"")
    screen.type(b"value_of\t")
    screen.expect(b"value_of_mine")
    screen.run(b" + 1", b"8")
    screen.type(UP + UP)
    screen.expect(b"value_of_mine = 7")
    screen.type(CTRL_C)
    screen.expect(b"^C")
    screen.expect(b">>> ")
    screen.run(b"1 + 2" + LEFT + b"\x7f" + b"4", b"")
    screen.run(b"2" + CTRL_A + b"1", b"12")
    screen.type(b"exit\r")
    assert screen.process.wait(30) == 0
    again = Repl(served_glovebox, "demo")
    again.type(UP + UP)
    again.expect(b"12")
    again.close()


def test_interrupt_ends_the_code_and_not_the_conversation(screen: Repl) -> None:
    screen.type(b"import time; print('o' + 'n'); time.sleep(1000)\r")
    screen.expect(b"on\r\n")
    screen.process.send_signal(signal.SIGINT)  # as the terminal does, were it the process's own
    screen.expect(b"KeyboardInterrupt")
    screen.expect(b">>> ")
    screen.run(b"6 * 7", b"42")


def test_lines_from_a_pipe(served_glovebox: Glovebox) -> None:
    text = "x = 1\ndef f():\n    return x + 1\n\nf()\nprint('''a\nb''')\n"
    done = served_glovebox("repl", "demo", input=text)
    assert (done.returncode, done.stdout) == (0, "2\na\nb\n"), done.stderr
    missing = served_glovebox("repl", "demo", input="import no_such_module\n")
    assert "glovebox session install demo no_such_module]" in missing.stderr + missing.stdout
    assert served_glovebox("repl").returncode == 2
    assert served_glovebox("repl", "demo", input="").returncode == 0
