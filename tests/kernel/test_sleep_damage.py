"""Bits that flip on the disk: noticed, named, and never taken for data."""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
from pathlib import Path

import pytest

from kernel_process import PACKAGE, SLEEP, TRIM, WAKE, KernelProcess

FLIPS = int(os.environ.get("GLOVEBOX_TEST_FLIPS", "60"))

MAKE = """
import numpy as np
a = np.arange(50_000); b = np.arange(50_000) * 2.0; view = a[10:]; both = {'a': a, 'b': b}
text = 'x' * 30_000; number = 7
def double(v): return v * 2
"""
CHECK = """
found = dict(globals())
assert 'a' not in found or (a == np.arange(50_000)).all()
assert 'b' not in found or (b == np.arange(50_000) * 2.0).all()
assert 'view' not in found or (view == np.arange(10, 50_000)).all()
assert 'both' not in found or ((both['a'] == np.arange(50_000)).all() and (both['b'] == np.arange(50_000) * 2.0).all())
assert 'text' not in found or text == 'x' * 30_000
assert 'number' not in found or number == 7
assert 'double' not in found or double(4) == 8
sorted(name for name in ('a', 'b', 'view', 'both', 'text', 'number', 'double') if name in found)
"""
ALL = ["a", "b", "both", "double", "number", "text", "view"]


@pytest.fixture
def asleep(kernel: KernelProcess, tmp_path: Path) -> Path:
    pytest.importorskip("numpy")
    tree = tmp_path / "tmp"
    tree.mkdir()
    (tree / "large").write_bytes(b"l" * 100_000)
    kernel.value(MAKE)
    answer = kernel.request(SLEEP, path=str(tmp_path / "file"), files=[str(tree)])
    assert answer["ok"], answer
    return tmp_path / "file"


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def forget(kernel: KernelProcess) -> None:
    kernel.run("for name in [n for n in globals() if not n.startswith('__')]: del globals()[name]\ndel name")


def test_every_flipped_bit_is_noticed_and_what_comes_back_is_right(asleep: Path, start_kernel) -> None:
    kernel = start_kernel()
    choose = random.Random(11)
    size = asleep.stat().st_size
    for _ in range(FLIPS):
        bit = choose.randrange(8 * size)
        flip(asleep, bit)
        answer = kernel.request(WAKE, path=str(asleep))
        flip(asleep, bit)
        if not answer["ok"]:
            assert answer["error"], answer
            continue
        assert answer["damaged"] or answer["files_lost"], f"bit {bit} of {8 * size} went unnoticed: {answer}"
        kernel.run("import numpy as np")
        left = [name for name in ALL if name not in answer["damaged"]]
        assert kernel.value(CHECK) == repr(left), answer
        forget(kernel)
    answer = kernel.request(WAKE, path=str(asleep))
    assert answer["ok"] and answer["damaged"] == answer["files_lost"] == answer["lost"] == [], answer
    assert kernel.value(CHECK) == repr(ALL)


def test_only_the_variables_of_damaged_memory_are_left_out(asleep: Path, start_kernel) -> None:
    fields = json.loads(asleep.read_bytes()[:4096].split(b"\n")[1])
    table_at, size, _ = fields["table"]
    buffers = json.loads(asleep.read_bytes()[table_at : table_at + size])["buffers"]
    offset = next(one[0] for one in buffers if one[1] == 400_000)  # of a or of b, whichever comes first: a
    flip(asleep, 8 * (fields["area"] + offset + 1000))
    kernel = start_kernel()
    answer = kernel.request(WAKE, path=str(asleep))
    assert answer["ok"] and sorted(answer["damaged"]) == ["a", "both", "view"], answer
    assert kernel.value(CHECK) == "['b', 'double', 'number', 'text']"


def test_a_damaged_stream_names_what_is_lost(asleep: Path, start_kernel) -> None:
    flip(asleep, 8 * 20_000)
    kernel = start_kernel()
    answer = kernel.request(WAKE, path=str(asleep))
    assert not answer["ok"] and "checksum" in answer["error"], answer
    assert sorted(name for name in answer["damaged"] if name != "np") == ALL
    assert kernel.value("1 + 1") == "2"


def test_a_file_of_version_1_is_still_read(kernel: KernelProcess, tmp_path: Path) -> None:
    """Made here as version 1 made it: no checksums, all variables in one pickle."""
    script = f"""
import io, json, sys
sys.path.insert(0, {str(PACKAGE)!r})
from glovebox_kernel.sleep import SleepPickler
from glovebox_kernel.arrays import ArrayReducers
from glovebox_kernel.context import Context
stream = io.BytesIO()
context = Context("default")
pickler = SleepPickler(stream, ArrayReducers(None))
pickler.dump({{"recursion": 1234}})
pickler.dump_places([context])
pickler.dump({{"sources": {{}}, "count": 3}})
pickler.dump([("default", [("x", [1, 2]), ("y", "text")])])
data = stream.getvalue()
area = -(-(4096 + len(data)) // 4096) * 4096
header = json.dumps({{"python": sys.implementation.cache_tag, "area": area, "bytes": area}}).encode()
head = (b"GLOVEBOX-SLEEP 1\\n" + header + b"\\n").ljust(4096, b"\\0")
open({str(tmp_path / "old")!r}, "wb").write((head + data).ljust(area, b"\\0"))
"""
    import subprocess

    subprocess.run([sys.executable, "-c", script], check=True)
    answer = kernel.request(WAKE, path=str(tmp_path / "old"))
    assert answer["ok"] and answer["names"] == 2, answer
    assert kernel.value("x, y, __import__('sys').getrecursionlimit()") == "([1, 2], 'text', 1234)"
    assert pickle.HIGHEST_PROTOCOL >= 5


def test_trimmed_memory_that_changed_on_the_disk_ends_the_kernel_with_a_message(
    kernel: KernelProcess, tmp_path: Path
) -> None:
    pytest.importorskip("numpy")
    kernel.run("import numpy as np; a = np.ones(1 << 20)")
    assert kernel.request(TRIM, directory=str(tmp_path))["bytes"] > 0
    pid = kernel.process.pid
    for entry in os.listdir(f"/proc/{pid}/fd"):
        if str(tmp_path) in os.readlink(f"/proc/{pid}/fd/{entry}"):
            with open(f"/proc/{pid}/fd/{entry}", "r+b") as file:
                file.seek(5000)
                file.write(b"?")
    with pytest.raises(EOFError, match="checksum"):
        kernel.run("a.sum()")
    assert kernel.process.wait(60) == 74
