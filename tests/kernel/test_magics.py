"""What people type in notebooks and is no Python."""

from __future__ import annotations

import pytest

from kernel_process import KernelProcess


def test_underscore_is_the_last_value(kernel: KernelProcess) -> None:
    assert kernel.value("6 * 7") == "42"
    assert kernel.value("_ + 1") == "43"
    assert kernel.value("[_]") == "[43]"
    assert kernel.run("x = 5")["result"] is None
    assert kernel.value("_") == "[43]"
    assert kernel.value("_ = 'mine'\n_") == "'mine'"
    assert kernel.value("1") == "1"
    assert kernel.value("_") == "'mine'"


def test_a_translation_function_that_is_installed_stays(kernel: KernelProcess) -> None:
    assert kernel.run("import gettext; gettext.install('x')")["status"] == "ok"
    assert kernel.value("1 + 1") == "2"
    assert kernel.value("_('word')") == "'word'"


def test_shell_lines_run_between_python(kernel: KernelProcess) -> None:
    code = "name = 'earth'\nfor i in range(2):\n    !echo hello {name} $((6 * 7))\nprint('end')"
    assert kernel.run(code)["status"] == "ok"
    assert kernel.out == "hello earth 42\nhello earth 42\nend\n"
    assert kernel.value("lines = !printf 'a\\nb'\nlines") == "['a', 'b']"
    assert kernel.value("!exit 3\n_exit_code") == "3"
    kernel.run("!echo one \\\n  two\nprint('after')")
    assert kernel.out == "one two\nafter\n"


def test_lines_in_strings_are_not_touched(kernel: KernelProcess) -> None:
    assert kernel.value("text = '''\n!ls\n%pwd\nx?\n'''\ntext") == repr("\n!ls\n%pwd\nx?\n")
    outcome = kernel.run("text = '''\n!ls\n'''\nif if")
    assert outcome["error"]["name"] == "SyntaxError" and "if if" in outcome["error"]["traceback"]


def test_tracebacks_name_the_right_line_behind_a_magic(kernel: KernelProcess) -> None:
    outcome = kernel.run("!true\n\n1 / 0")
    assert "line 3, in <module>\n    1 / 0" in outcome["error"]["traceback"]


def test_line_and_cell_magics(kernel: KernelProcess) -> None:
    assert kernel.run("%timeit -n 10 -r 2 sum(range(10))")["status"] == "ok"
    assert "per loop (mean ± std. dev. of 2 runs, 10 loops each)" in kernel.out
    assert kernel.value("%time 6 * 7") == "42"
    assert "wall time" in kernel.out
    assert kernel.run("%%bash\necho $((1 + 1))\nfor i in a b; do echo $i; done")["status"] == "ok"
    assert kernel.out == "2\na\nb\n"
    kernel.run("%%writefile note.txt\nhello\nworld")
    assert kernel.value("open('note.txt').read()") == "'hello\\nworld\\n'"
    assert kernel.run("%matplotlib inline\n%load_ext autoreload\nx = 1")["status"] == "ok"
    assert kernel.value("%%time\ny = 20\ny + 1") == "21"
    kernel.run("%whos")
    assert "y " in kernel.out and "20" in kernel.out
    outcome = kernel.run("%nosuch")
    assert outcome["error"]["name"] == "MagicError" and "%timeit" in outcome["error"]["value"]


def test_question_mark_shows_documentation(kernel: KernelProcess) -> None:
    kernel.run("def f(a, b=2):\n    '''Adds.'''\n    return a + b")
    for code in ("f?", "?f", "f ?"):
        kernel.run(code)
        assert "Signature: f(a, b=2)" in kernel.out and "Adds." in kernel.out
    kernel.run("f??")
    assert "return a + b" in kernel.out
    kernel.run("nothing?")
    assert "NameError" in kernel.out


@pytest.mark.parametrize("code", ["%pip install humanize", "!pip install humanize", "!python3 -m pip install humanize"])
def test_pip_names_the_command_to_use_instead(kernel: KernelProcess, code: str) -> None:
    outcome = kernel.run(code)
    assert "glovebox session install NAME humanize" in outcome["error"]["value"]
    outcome = kernel.run(code, install_hint="glovebox session install demo")
    assert "glovebox session install demo humanize" in outcome["error"]["value"]
    assert "NAME humanize" in kernel.run(code)["error"]["value"], "of one run only"


def test_column_of_a_traceback_is_right_without_a_final_newline(kernel: KernelProcess) -> None:
    for code in ("a = 1; b = a / 0", "a = 1; b = a / 0\n"):
        shown = kernel.run(code)["error"]["traceback"].splitlines()
        line = next(number for number, text in enumerate(shown) if text.strip() == "a = 1; b = a / 0")
        if "~" in shown[line + 1]:  # Python 3.11 and later
            assert shown[line + 1].index("~") == shown[line].index("a / 0"), shown


def test_file_has_its_name_and_arguments(kernel: KernelProcess) -> None:
    code = "import sys\nprint(sys.argv, __file__)\n1 / 0"
    outcome = kernel.run(code, file="analysis.py", args=["--fast", "x"])
    printed = kernel.out
    assert kernel.value("import os; os.environ['WORKSPACE_DIR'] + '/analysis.py'") == repr(printed.split()[-1])
    assert printed.startswith("['analysis.py', '--fast', 'x'] /")
    assert 'File "analysis.py", line 3, in <module>\n    1 / 0' in outcome["error"]["traceback"]
    assert kernel.value("'__file__' in globals(), sys.argv") == "(False, [''])"
