"""save(df, name) and load(name)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_process import KernelProcess

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")


def test_tables_of_every_kind_come_back_as_what_they_were(kernel: KernelProcess) -> None:
    code = """
import numpy as np, pandas as pd, pyarrow as pa
df = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["u", "v"])},
                  index=pd.date_range("2020-01-01", periods=2, tz="UTC", name="when"))
s = pd.Series([1.5, 2.5], index=["p", "q"], name="sizes")
t = pa.table({"k": pa.array([1, None], pa.int16())})
arrays = [np.arange(5, dtype="i2"), np.ones((3, 2), "f4"), np.arange(24).reshape(2, 3, 4), np.array(7.0),
          np.array([1 + 2j, 3j]), np.array([[1j, 2], [3, 4]]), np.array(["ab", "c"]), np.array([[True], [False]]),
          np.array(["2020-01-01", "NaT"], "M8[D]"), np.zeros((0, 3)), np.arange(3, dtype=">i4")]
def again(value):
    save(value, "it")
    return load("it")
pd.testing.assert_frame_equal(again(df), df, check_freq=False)
pd.testing.assert_series_equal(again(s), s)
assert again(t).equals(t) and again(t).schema.equals(t.schema, check_metadata=True)
for array in arrays:
    back = again(array)
    assert type(back) is np.ndarray and back.dtype == array.dtype and back.shape == array.shape, (back, array)
    np.testing.assert_array_equal(back, array)
"""
    result = kernel.run(code)
    assert result["status"] == "ok", result["error"]["traceback"]


def test_the_path_is_in_the_workspace_and_no_temporary_file_stays(kernel: KernelProcess, tmp_path: Path) -> None:
    kernel.run("import pandas as pd\nsave(pd.DataFrame({'a': [1]}), 'demo')")
    assert os.listdir(tmp_path / "data") == ["demo.parquet"]
    kernel.run("save(pd.DataFrame({'a': [object()]}), 'demo')")
    assert os.listdir(tmp_path / "data") == ["demo.parquet"]
    assert kernel.value("int(load('demo').a.sum())") == "1"


def test_a_kill_in_the_middle_leaves_the_old_file(kernel: KernelProcess, tmp_path: Path, start_kernel) -> None:
    kernel.run("import pandas as pd\nsave(pd.DataFrame({'a': [1]}), 'demo')")
    kernel.start("import os\nos.fsync = lambda fd: os.kill(os.getpid(), 9)\nsave(pd.DataFrame({'a': [2]}), 'demo')")
    with pytest.raises(EOFError):
        kernel.finish()
    assert start_kernel().value("int(load('demo').a.sum())") == "1"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("load('absent')", "there is: other"),
        ("save([1, 2], 'x')", "a pandas DataFrame or Series, a numpy array or a pyarrow Table, not list"),
        ("save('x', 'y')", "the data first and the name second"),
        ("load('../secret')", "is not a name"),
        ("load('')", "is not a name"),
        ("load('a\\nb')", "is not a name"),
        ("load('.hidden')", "is not a name"),
        ("load(5)", "must be text"),
        ("load('link')", "symbolic link"),
        ("load('broken')", "not a readable Parquet file"),
        ("save(__import__('numpy').array([object()]), 'x')", "have no Parquet form"),
    ],
)
def test_errors_say_what_is_wrong(kernel: KernelProcess, tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "other.parquet").write_bytes(b"")
    if "link" in code:
        (tmp_path / "data" / "link.parquet").symlink_to("/etc/passwd")
    if "broken" in code:
        (tmp_path / "data" / "broken.parquet").write_bytes(b"PAR1 nonsense")
    error = kernel.run(code)["error"]
    assert error["name"] == "StoreError"
    assert message in error["value"]


def test_suffix_that_is_given_is_not_doubled(kernel: KernelProcess, tmp_path: Path) -> None:
    code = "import pandas as pd\nsave(pd.DataFrame({'a': [1]}), 'x.parquet')"
    assert kernel.value(code).endswith("/x.parquet'")
    assert kernel.value("(load('x').shape, load('x.parquet').shape)") == "((1, 1), (1, 1))"
