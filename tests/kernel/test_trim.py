"""Trim: memory goes back to the system and the next run finds everything as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_process import SLEEP, TRIM, KernelProcess

pytest.importorskip("numpy")
pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

MIB = 1 << 20
SETUP = """
import numpy as np, pandas as pd, pyarrow as pa
a = np.random.rand(8 * 1024 * 1024); b = a; c = a[10:]
df = pd.DataFrame(np.random.rand(1024 * 1024, 4), columns=list("wxyz")); part = df.iloc[5:]; s = df["x"]
t = pa.table({"k": np.arange(4 * 1024 * 1024)})
held = {"inside": [np.ones(2 * 1024 * 1024)]}
small = np.arange(10)
sums = (a.sum(), df.to_numpy().sum(), t.column("k").to_numpy().sum())
addresses = (a.ctypes.data, id(df), id(c))
"""
CHECKS = """
assert sums == (a.sum(), df.to_numpy().sum(), t.column("k").to_numpy().sum())
assert addresses == (a.ctypes.data, id(df), id(c)) and b is a and c.base is a and np.shares_memory(part, df)
old = c[0]; c[0] = 7; assert a[10] == 7; c[0] = old
assert held["inside"][0].sum() == 2 * 1024 * 1024 and small.sum() == 45
assert s.iloc[3] == df.iloc[3]["x"]
"""


def test_memory_is_given_back_and_comes_back_by_itself(kernel: KernelProcess, tmp_path: Path) -> None:
    kernel.value(SETUP)
    before = kernel.resident_bytes()
    for _ in range(2):
        answer = kernel.request(TRIM, directory=str(tmp_path))
        assert answer["ok"], answer
        assert answer["bytes"] > 140 * MIB
        assert {"a", "df", "t", "held"} <= set(answer["names"])
        assert "small" not in answer["names"]
        assert before - kernel.resident_bytes() > 100 * MIB
        kernel.value(CHECKS)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_thresholds_come_from_the_environment(start_kernel, tmp_path: Path) -> None:
    kernel = start_kernel(DF_BYTES=str(1 << 40), NP_BYTES="200000")
    kernel.run("import numpy as np, pandas as pd\na = np.ones(30_000)\ndf = pd.DataFrame(np.ones((500_000, 2)))")
    assert kernel.request(TRIM, directory=str(tmp_path))["names"] == ["a"]
    assert kernel.value("a.sum(), df.sum().sum()") == "(np.float64(30000.0), np.float64(1000000.0))"


def test_a_trimmed_kernel_can_sleep(kernel: KernelProcess, tmp_path: Path) -> None:
    kernel.value(SETUP)
    assert kernel.request(TRIM, directory=str(tmp_path))["ok"]
    answer = kernel.request(SLEEP, path=str(tmp_path / "file"))
    assert answer["ok"], answer
    kernel.value(CHECKS)


def test_a_file_mapping_is_not_touched(kernel: KernelProcess, tmp_path: Path) -> None:
    code = "import numpy as np\nm = np.memmap('m', 'u1', 'w+', shape=4 << 20)\nm[:] = 3\nv = np.asarray(m)[5:]"
    kernel.value(code)
    assert kernel.request(TRIM, directory=str(tmp_path))["names"] == []
    assert kernel.value("int(v.sum())") == str(3 * ((4 << 20) - 5))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import threading; threading.Thread(target=threading.Event().wait, name='mine', daemon=True).start()", "mine"),
        ("import signal; signal.signal(signal.SIGALRM, lambda *a: None)", "signal 14"),
    ],
)
def test_code_that_could_look_meanwhile_prevents_it(kernel: KernelProcess, tmp_path: Path, code: str, why: str) -> None:
    kernel.run("import numpy as np; a = np.ones(1 << 20)")
    kernel.run(code)
    answer = kernel.request(TRIM, directory=str(tmp_path))
    assert not answer["ok"]
    assert why in answer["error"]
    assert kernel.value("float(a.sum())") == "1048576.0"


def test_no_room_for_the_file_changes_nothing(kernel: KernelProcess, tmp_path: Path) -> None:
    kernel.run("import numpy as np; a = np.ones(1 << 20)")
    answer = kernel.request(TRIM, directory=str(tmp_path / "absent"))
    assert not answer["ok"]
    assert kernel.value("float(a.sum())") == "1048576.0"
