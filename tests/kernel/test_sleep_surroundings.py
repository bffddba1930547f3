"""What a session holds besides its variables: carried through a sleep, held back, or named as not carried."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_process import SLEEP, WAKE, KernelProcess


def through_sleep(kernel: KernelProcess, tmp_path: Path, start_kernel, **fields: object) -> KernelProcess:
    answer = kernel.request(SLEEP, path=str(tmp_path / "sleeping"), exit=True, **fields)
    assert answer["ok"], answer
    fresh = start_kernel()
    answer = fresh.request(WAKE, path=str(tmp_path / "sleeping"))
    assert answer["ok"] and answer["lost"] == answer["files_lost"] == answer["damaged"] == [], answer
    return fresh


@pytest.mark.parametrize(
    ("change", "look"),
    [
        ("import os; os.umask(0o027)", "(lambda m: (os.umask(m), m)[1])(os.umask(0))"),
        ("import os; os.makedirs('deep/er', exist_ok=True); os.chdir('deep/er')", "os.path.basename(os.getcwd())"),
        ("import os; os.environ['MINE'] = 'a'; del os.environ['HOME']", "os.environ['MINE'], 'HOME' in os.environ"),
        ("import sys; sys.path.append('/mine')", "sys.path[-1]"),
        ("import sys; sys.setrecursionlimit(2345)", "sys.getrecursionlimit()"),
        ("import gc; gc.disable(); gc.set_threshold(9, 8, 7)", "gc.isenabled(), gc.get_threshold()"),
        ("import random; random.seed(3)", "random.getstate()[1][:3]"),
        ("import decimal; decimal.getcontext().prec = 5", "decimal.getcontext().prec, str(decimal.Decimal(1) / 3)"),
        ("import warnings; warnings.simplefilter('error', UserWarning)", "warnings.filters[0][:3]"),
        (
            "import warnings; warnings.filterwarnings('ignore', 'abc.*', DeprecationWarning, 'mod', 3)",
            "[getattr(one, 'pattern', one) for one in warnings.filters[0]]",
        ),
        ("import logging; logging.basicConfig(level=logging.INFO, format='%(message)s!')",
         "logging.root.level, [type(h).__name__ for h in logging.root.handlers], logging.root.handlers[0].formatter._fmt"),
        ("import logging; logging.getLogger('a.b').setLevel(5)", "logging.getLogger('a.b').level"),
        ("import socket; socket.setdefaulttimeout(2.5)", "socket.getdefaulttimeout()"),
        ("import os, time; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()", "time.tzname"),
    ],
)  # fmt: skip
def test_settings_are_carried(kernel: KernelProcess, tmp_path: Path, start_kernel, change: str, look: str) -> None:
    kernel.run(change)
    expected = kernel.value(look)
    assert through_sleep(kernel, tmp_path, start_kernel).value(look) == expected


def test_a_log_line_is_printed_after_a_sleep(kernel: KernelProcess, tmp_path: Path, start_kernel) -> None:
    kernel.run("import logging, sys; logging.basicConfig(level=logging.INFO, stream=sys.stdout)")
    fresh = through_sleep(kernel, tmp_path, start_kernel)
    fresh.run("logging.info('still here')")
    assert b"still here" in b"".join(bytes(text) for text in fresh.pipes.values())


def test_libraries_settings_are_carried(kernel: KernelProcess, tmp_path: Path, start_kernel) -> None:
    for module in ("numpy", "pandas", "matplotlib"):
        pytest.importorskip(module)
    kernel.value(
        "import numpy as np, pandas as pd, matplotlib as mpl\n"
        "np.set_printoptions(precision=3); np.random.seed(5); pd.set_option('display.max_rows', 7)\n"
        "mpl.rcParams['figure.figsize'] = [3, 2]; frame = pd.DataFrame({'a': [1]}); frame.attrs['unit'] = 'kg'"
    )
    look = (
        "np.get_printoptions()['precision'], pd.get_option('display.max_rows'), list(mpl.rcParams['figure.figsize']),"
        " frame.attrs, int(np.random.get_state()[1][7])"
    )
    expected = kernel.value(look)
    assert through_sleep(kernel, tmp_path, start_kernel).value(look) == expected


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "memory"
    path.mkdir()
    return path


def test_files_in_memory_are_carried(kernel: KernelProcess, tmp_path: Path, tree: Path, start_kernel) -> None:
    (tree / "deep").mkdir(mode=0o750)
    (tree / "deep" / "small").write_text("small")
    (tree / "large").write_bytes(os.urandom(200_000))
    (tree / "empty").touch(mode=0o400)
    os.symlink("deep/small", tree / "link")
    os.link(tree / "large", tree / "twin")
    os.mkfifo(tree / "pipe")
    os.utime(tree / "deep", ns=(10**18, 10**18))
    content = (tree / "large").read_bytes()
    kernel.run(f"import os; os.chdir({str(tree / 'deep')!r})")  # a directory that must be there first
    answer = kernel.request(SLEEP, path=str(tmp_path / "sleeping"), exit=True, files=[str(tree)])
    assert answer["ok"] and answer["files"] == 7, answer
    for entry in ("deep/small", "large", "empty", "link", "twin", "pipe"):
        (tree / entry).unlink()
    (tree / "deep").rmdir()
    fresh = start_kernel()
    answer = fresh.request(WAKE, path=str(tmp_path / "sleeping"))
    assert answer["ok"] and answer["lost"] == answer["files_lost"] == [], answer
    assert (tree / "large").read_bytes() == content and (tree / "link").read_text() == "small"
    assert (tree / "large").stat().st_ino == (tree / "twin").stat().st_ino
    assert (tree / "deep").stat().st_mtime_ns == 10**18 and (tree / "deep").stat().st_mode & 0o777 == 0o750
    assert (tree / "empty").stat().st_mode & 0o777 == 0o400 and (tree / "pipe").is_fifo()
    assert fresh.value("os.getcwd()") == repr(str(tree / "deep"))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("open({tree!r} + '/much', 'wb').truncate(300 << 20)", "256 MiB"),
        ("import socket; socket.socket(socket.AF_UNIX).bind({tree!r} + '/s')", "socket"),
        ("for i in range(10_001): open({tree!r} + f'/{{i}}', 'w').close()", "10000 files"),
        ("import os; os.open({tree!r} + '/open', os.O_CREAT | os.O_WRONLY)", "open for writing"),
        ("import signal; signal.setitimer(signal.ITIMER_REAL, 3600)", "timer"),
        ("import socket; socket.socket().detach()", "connection"),
    ],
)
def test_a_value_that_cannot_be_saved_prevents_the_sleep_and_is_named(
    kernel: KernelProcess, tmp_path: Path, tree: Path, code: str, why: str
) -> None:
    kernel.run("x = 1")
    done = kernel.run(code.format(tree=str(tree)))
    assert done["status"] == "ok", done
    answer = kernel.request(SLEEP, path=str(tmp_path / "sleeping"), exit=True, files=[str(tree)])
    assert not answer["ok"] and why in answer["held"][0]["why"], answer
    assert not list(tmp_path.glob("sleeping*")) and kernel.value("x") == "1"


def test_surroundings_that_a_sleep_does_not_carry_are_named_at_both_ends(
    kernel: KernelProcess, tmp_path: Path, start_kernel
) -> None:
    (tmp_path / "mymodule.py").write_text("state = 0")
    kernel.run(
        "import sys, builtins, logging, mymodule\nmymodule.state = 5\nbuiltins.extra = 1\n"
        "sys.excepthook = lambda *a: None\n"
        "logging.getLogger('q').addHandler(logging.StreamHandler())\n"
        "sys.path.append('x')"
    )
    answer = kernel.request(SLEEP, path=str(tmp_path / "sleeping"), exit=True)
    assert answer["ok"], answer
    answered = "\n".join(answer["not_carried"])
    for word in ("excepthook", "extra", "mymodule", "q: StreamHandler"):
        assert word in answered, answered
    assert start_kernel().request(WAKE, path=str(tmp_path / "sleeping"))["not_carried"] == answer["not_carried"]


def test_an_ordinary_session_leaves_nothing_behind(kernel: KernelProcess, tmp_path: Path, start_kernel) -> None:
    kernel.run("import json, re, math\nx = json.dumps([1])")
    assert kernel.request(SLEEP, path=str(tmp_path / "sleeping"))["not_carried"] == []
