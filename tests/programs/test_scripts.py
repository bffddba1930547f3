"""A script, what lies beside it, and who interprets it. With and without a daemon."""

from __future__ import annotations

import ast
import json
import re
import socket
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.daemons import make_daemons
from support.glovebox import Completed

Run = Callable[..., Completed]


@pytest.fixture(params=["root", "user"], scope="module")
def daemon(binary: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    for make in make_daemons(binary):
        yield make("--pool", "1", "--preload", "json", who=request.param)


@pytest.fixture(params=["warm", "cold"])
def run(daemon: Daemon, request: pytest.FixtureRequest) -> Run:
    more = ("--socket", daemon.socket) if request.param == "warm" else ("--no-daemon",)

    def call(*words: str | Path, **options: object) -> Completed:
        return daemon.glovebox("run", *more, *words, **options)  # type: ignore[arg-type]

    return call


@pytest.fixture
def project(daemon: Daemon, request: pytest.FixtureRequest) -> Path:
    path = daemon.glovebox.place.make(f"project-{abs(hash(request.node.name))}")
    return path


def put(daemon: Daemon, path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    daemon.glovebox.place.give(path)
    return path


def test_modules_and_data_beside_a_script_are_there(daemon: Daemon, run: Run, project: Path) -> None:
    put(daemon, project / "helper.py", "VALUE = 7")
    put(daemon, project / "data.csv", "a,b")
    script = put(daemon, project / "main.py", "import helper; print(helper.VALUE, open('data.csv').read())")
    done = run(script)
    assert (done.returncode, done.stdout) == (0, "7 a,b\n"), done.stderr


def test_files_beside_a_script_can_only_be_read(daemon: Daemon, run: Run, project: Path) -> None:
    put(daemon, project / "data.csv", "a,b")
    script = put(daemon, project / "main.py", "open('data.csv', 'w').write('x')")
    done = run(script)
    assert done.returncode == 1 and "can only be read there" in done.stderr, done.stderr
    script = put(daemon, project / "main.py", "import os; os.remove('/run/code/data.csv')")
    assert run(script).returncode == 1
    assert (project / "data.csv").read_text() == "a,b"
    script = put(daemon, project / "main.py", "open('new.csv', 'w').write('x'); print(open('new.csv').read())")
    assert run(script).stdout == "x\n"
    assert not (project / "new.csv").exists()


def test_files_that_are_gone_with_the_box_are_named(daemon: Daemon, run: Run, project: Path) -> None:
    put(daemon, project / "beside.csv", "a,b")
    script = put(daemon, project / "main.py", "open('result.csv', 'w'); open('.cache', 'w')")
    said = 'glovebox: result.csv was written to the box\'s workspace, which is gone: "--workspace ." keeps it'
    assert said in run(script).stderr
    assert run("--quiet", script).stderr == ""
    assert json.loads(run("--json", script).stdout)["warning"] in f"{said}, or write below artifacts/"
    assert "is gone" not in run("--workspace", ".", script, cwd=project).stderr
    assert "is gone" not in run("-c", "open('artifacts/a', 'w')").stderr
    assert "warning" not in json.loads(run("--json", "-c", "0").stdout)
    mounted = run("--mount", f"{project}:/workspace/shown/here", "-c", "open('own', 'w')").stderr
    assert ": own was written" in mounted and "shown" not in mounted, mounted
    # The code in the box chooses the names.
    many = run("-c", "import os\nfor i in range(9): os.mkdir(f'\\33[31m{i}' + 'x' * 200)").stderr
    assert "and 6 more were written" in many and "\33" not in many and len(many) < 600, many


def test_a_file_that_is_written_beside_the_script_gets_a_place(daemon: Daemon, run: Run, project: Path) -> None:
    code = "import os; open(os.path.dirname(__file__) + '/result.csv', 'w')"
    done = run(put(daemon, project / "main.py", code))
    assert done.returncode == 1 and 'write to "artifacts/result.csv", which is kept' in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["-c", "import helper"], "helper.py"),
        (["-c", "open('data.csv')"], "data.csv"),
        (["-m", "helper"], "helper.py"),
        (["-m", "package.part"], "package"),
    ],
)
def test_a_file_of_the_current_directory_that_is_not_in_the_box_is_named(
    daemon: Daemon, run: Run, project: Path, words: list[str], name: str
) -> None:
    """-c and -m show no directory, unlike python3."""
    daemon.glovebox.place.make(f"{project.name}/package")
    for path in ("helper.py", "data.csv", "package/part.py", "package/__init__.py"):
        put(daemon, project / path, "")
    done = run(*words, cwd=project)
    assert done.returncode == 1, done.stderr
    assert f"glovebox: {name} is in this directory, which the box does not show; add --workspace ." in done.stderr
    assert run("--workspace", ".", *words, cwd=project).returncode == 0
    assert "in this directory" not in run(*words).stderr


@pytest.mark.parametrize("code", ["!ls", "%pip install six", "import os\nos?", "await f()", "x = 1\n%timeit x"])
def test_notebook_syntax_in_a_program_names_where_it_works(run: Run, code: str) -> None:
    done = run("-c", code)
    assert done.returncode == 1 and "work in a session: glovebox exec NAME" in done.stderr, done.stderr


@pytest.mark.parametrize("code", ["x = '''\n!ls\n'''\n1/0", "x = 1 +"])
def test_programs_that_fail_are_not_taken_for_cells(run: Run, code: str) -> None:
    done = run("-c", code)
    assert done.returncode == 1 and "in a session" not in done.stderr, done.stderr


def test_alone_hides_the_files_beside_a_script_and_prints_that(daemon: Daemon, run: Run, project: Path) -> None:
    put(daemon, project / "helper.py", "VALUE = 7")
    script = put(daemon, project / "main.py", "import helper")
    done = run("--alone", script)
    assert done.returncode == 1
    assert f"{project}/helper.py lies beside the script, but --alone hides it" in done.stderr, done.stderr
    script = put(daemon, project / "main.py", "open('helper.py')")
    assert "--alone hides it" in run("--alone", script).stderr
    script = put(daemon, project / "main.py", "print(__file__, open(__file__).read())")
    assert run("--alone", script).stdout.startswith("/run/code/main.py print(")


def test_a_directory_that_may_not_be_shown_is_left_out(daemon: Daemon, run: Run, project: Path) -> None:
    """The mount policy holds: keys beside a script are no neighbours."""
    glovebox = daemon.glovebox
    (project / ".ssh").mkdir(exist_ok=True)
    glovebox.place.give(project / ".ssh")
    put(daemon, project / "helper.py", "VALUE = 7")
    script = put(daemon, project / "main.py", "import os; print(os.listdir('/run/code')); import helper")
    done = run(script, env={"HOME": str(project)})
    assert done.stdout == "['main.py']\n", done.stderr
    assert "lies beside the script, but its directory is not shown: cannot mount" in done.stderr


def test_sockets_of_a_project_are_covered(daemon: Daemon, run: Run, project: Path) -> None:
    """A project's .sandbox leads to its daemon: no box may follow, nor put anything there."""
    for name in (".sandbox", ".sandbox/inner"):
        (project / name).mkdir()
        daemon.glovebox.place.give(project / name)
    code = "import os\nprint(os.listdir('.sandbox'))\nopen('.sandbox/new', 'w')"
    done = run("--workspace", project, "-c", code)
    assert done.stdout == "[]\n" and done.returncode == 1, done.stderr
    code = "import os\nprint(os.listdir('/run/code/.sandbox'))"
    assert run(put(daemon, project / "main.py", code)).stdout == "[]\n"


def test_a_directory_that_all_users_can_write_to_is_left_out(daemon: Daemon, run: Run, project: Path) -> None:
    project.chmod(0o1777)
    put(daemon, project / "helper.py", "VALUE = 7")
    script = put(daemon, project / "main.py", "import helper")
    done = run(script)
    assert done.returncode == 1 and "all users can write to it" in done.stderr, done.stderr


def test_a_directory_that_holds_a_socket_is_left_out(daemon: Daemon, run: Run, project: Path) -> None:
    put(daemon, project / "helper.py", "VALUE = 7")
    code = "import os\nprint(os.path.exists(os.path.join(os.path.dirname(__file__), 'app.sock')))\nimport helper"
    script = put(daemon, project / "main.py", code)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(project / "app.sock"))
        done = run(script)
    assert (done.returncode, done.stdout) == (1, "False\n"), done.stderr
    assert "helper.py lies beside the script, but its directory is not shown: the UNIX socket app.sock" in done.stderr


def test_a_missing_file_that_is_beside_is_named_with_a_workspace_too(daemon: Daemon, run: Run, project: Path) -> None:
    put(daemon, project / "data.csv", "a,b")
    script = put(daemon, project / "main.py", "open('data.csv')")
    workspace = daemon.glovebox.place.make(f"work-{project.name}")
    done = run("--workspace", workspace, script)
    assert "which the box shows as /run/code/data.csv" in done.stderr, done.stderr


def test_a_script_is_found_through_a_link(daemon: Daemon, run: Run, project: Path) -> None:
    put(daemon, project / "helper.py", "VALUE = 7")
    put(daemon, project / "main.py", "import helper; print(helper.VALUE)")
    link = daemon.glovebox.place.path / f"link-{project.name}.py"
    if not link.is_symlink():
        link.symlink_to(project / "main.py")
    assert run(link).stdout == "7\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("tool.sh", "echo $0 $1", "/run/code/tool.sh one\n"),
        ("tool.bash", "echo ${BASH_VERSION:+bash}", "bash\n"),
        ("tool.pl", "print join(',', 1 + 1, @ARGV), qq(\\n);", "2,one\n"),
        ("tool", "#!/usr/bin/env python3\nimport sys; print(sys.argv[1:])", "['one']\n"),
        ("tool", "#!/bin/sh\necho shell $1", "shell one\n"),
        ("tool", "#!/usr/bin/perl -l\nprint 5;", "5\n"),
        ("tool", "#!/usr/bin/env -S perl -l\nprint 6;", "6\n"),
        ("tool", "print('no ending, no line')", "no ending, no line\n"),
    ],
)
def test_the_interpreter_is_chosen_by_ending_and_first_line(
    daemon: Daemon, run: Run, project: Path, name: str, text: str, expected: str
) -> None:
    done = run(put(daemon, project / name, text), "one")
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_an_interpreter_that_the_image_lacks_is_named(daemon: Daemon, run: Run, project: Path) -> None:
    done = run(put(daemon, project / "tool", "#!/usr/bin/env klingon\n"))
    assert done.returncode == 127 and '"klingon"' in done.stderr, done.stderr


def test_a_script_that_is_a_pipe_runs(daemon: Daemon, run: Run) -> None:
    if daemon.glovebox.who == "user":
        return  # the pipe is the tests', which are root's: only root may open it by this name
    done = run("/dev/stdin", input="print('from a pipe')")
    assert (done.returncode, done.stdout) == (0, "from a pipe\n"), done.stderr


def test_a_module_that_the_image_lacks_is_named_with_what_to_do(daemon: Daemon, run: Run) -> None:
    done = run("-c", "import no_such_module.inner")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("glovebox: image host has no module no_such_module;")
    assert "glovebox session install NAME no_such_module" in done.stderr
    assert "glovebox" not in run("--quiet", "-c", "import no_such_module").stderr


def test_a_missing_module_is_named_by_the_package_that_has_it(run: Run) -> None:
    def missing(name: str) -> str:
        return run("-c", f'raise ModuleNotFoundError("No module named {name!r}")').stderr

    assert "glovebox session install NAME opencv-python-headless," in missing("cv2")
    assert '"glovebox image build" adds it' in missing("pandas")
    assert '"glovebox image build" adds it' in missing("sklearn.linear_model")
    part = missing("tkinter")
    assert "a part of Python that this image leaves out" in part and "session install" not in part, part


def test_packages_of_modules_are_the_same_in_runs_and_sessions() -> None:
    root = Path(__file__).parents[2]
    guest = (root / "guest/kernel/glovebox_kernel/magics.py").read_text()
    table = re.search(r"^PACKAGES = (\{.*?^\})", guest, re.MULTILINE | re.DOTALL)
    rows = re.findall(r'\{ "(\w+)", "([\w-]+)" \}', (root / "src/cli/missing_module.c").read_text())
    assert table and dict(rows) == ast.literal_eval(table[1]) != {}


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "import socket; socket.getaddrinfo('example.org', 80)"),
        ("--", "sh", "-c", "echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6"),
    ],
)
def test_a_program_that_needs_the_network_gets_a_hint(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode != 0 and "a box has no network; --allow-host HOST" in done.stderr, done.stderr
    assert "--allow-host" not in run("--allow-host", "example.com", *words).stderr
    assert "glovebox" not in run("--quiet", *words).stderr


REFUSE = "import sys; print('error: externally-managed-environment', file=sys.stderr); sys.exit(1)"


@pytest.mark.parametrize(
    "words", [("-c", REFUSE), ("-l", "bash", "-c", f'python3 -c "{REFUSE}"'), ("--", "python3", "-c", REFUSE)]
)
def test_a_pip_that_refuses_gets_a_hint(daemon: Daemon, run: Run, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 1
    assert "glovebox session install NAME PACKAGE" in done.stderr.splitlines()[-1], done.stderr
    assert "glovebox" not in run("--quiet", *words).stderr


def test_options_behind_a_module_are_the_modules(run: Run) -> None:
    """As USAGE.md writes it: python3 -m timeit -n 10."""
    done = run("-m", "timeit", "-n", "10", "-r", "2", "1+1")
    assert done.returncode == 0 and done.stdout.startswith("10 loops, best of 2"), done


def test_a_directory_stands_for_its_main(daemon: Daemon, run: Run, project: Path) -> None:
    put(daemon, project / "helper.py", "VALUE = 7")
    put(daemon, project / "__main__.py", "import helper, sys; print(__name__, helper.VALUE, sys.argv[1:])")
    done = run(project, "one")
    assert (done.returncode, done.stdout) == (0, "__main__ 7 ['one']\n"), done.stderr
    (project / "__main__.py").unlink()
    done = run(project)
    assert done.returncode == 2 and "is a directory; name a file in it" in done.stderr, done.stderr


def test_a_zip_archive_is_named_with_what_to_type(daemon: Daemon, run: Run, project: Path) -> None:
    with zipfile.ZipFile(project / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "print('zipped')")
    daemon.glovebox.place.give(project / "app.pyz")
    done = run(project / "app.pyz")
    assert done.returncode == 2 and "-- python3 /data/app.pyz" in done.stderr, done.stderr
    assert run("--data", project, "--", "python3", "/data/app.pyz").stdout == "zipped\n"


def test_text_is_utf8_and_the_rest_of_the_locale_is_plain(run: Run) -> None:
    """One file of the C library's is read for that, in each program, and not thirteen."""
    done = run("-l", "bash", "-c", "echo \"<${LANG-}${LC_ALL-}>\" $(locale charmap) $(printf 'é中' | wc -m)")
    assert (done.returncode, done.stdout) == (0, "<> UTF-8 2\n"), done.stderr
    assert run("-c", "import locale, sys; print(locale.getpreferredencoding(), 'é中')").stdout == "UTF-8 é中\n"
