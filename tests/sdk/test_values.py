"""Variables that move between a program and its sandbox."""

from __future__ import annotations

import datetime
import decimal
import math
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import glovebox
import numpy
import pandas
import pyarrow
import pytest
from glovebox import CodeError, InvalidArgumentError, Sandbox, TransferError, _values
from support.daemon import Daemon

PLAIN = [
    None,
    True,
    7,
    -(10**40),
    1.5,
    math.inf,
    "größe \0 \ud7ff",
    b"\x00\xff",
    1 + 2j,
    [1, [2, (3, 4)], {5, 6}, frozenset([7])],
    {"a": 1, 2: "b", ("t",): None, "$": "mark"},
    {"$": ["int", "0x1"]},
    datetime.datetime(2026, 11, 17, 5, 4, 3, 2, datetime.timezone.utc),
    datetime.date(2026, 11, 17),
    datetime.timedelta(1, 2, 3),
    decimal.Decimal("1.10"),
    uuid.UUID(int=5),
    "long " * 100_000,
]


@pytest.fixture(scope="module")
def science(layer_daemon: Daemon) -> Iterator[Sandbox]:
    with Sandbox.create(socket=layer_daemon.socket, memory="1g") as made:
        yield made


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:30])
def test_plain_values_come_back_equal(sandbox: Sandbox, value: Any) -> None:
    sandbox.set("x", value)
    back = sandbox.get("x")
    assert back == value and type(back) is type(value)


def test_nan_paths_and_expressions(sandbox: Sandbox) -> None:
    assert math.isnan(sandbox.get("float('nan')"))
    assert sandbox.get("__import__('pathlib').Path('/a/b')") == pathlib.PurePosixPath("/a/b")
    sandbox.run_code("x = [1, 2, 3]")
    assert sandbox.get("x[1:]") == [2, 3] and sandbox.get("sum(x)") == 6
    with pytest.raises(TransferError, match="NameError"):
        sandbox.get("nope")
    with pytest.raises(InvalidArgumentError):
        sandbox.set("not a name", 1)
    before = sandbox.run_code("1").execution_count
    sandbox.get("x")
    assert sandbox.run_code("1").execution_count == (before or 0) + 1, "moving values is not counted"
    sandbox.set("y", 1)
    assert sandbox.files.list("/workspace/.glovebox") == []


def test_objects_do_not_leave_a_sandbox(sandbox: Sandbox) -> None:
    """Nothing that comes out is unpickled: a class of the sandbox's own stays there."""
    sandbox.run_code(
        "import os\nclass Evil:\n    def __reduce__(self): return (os.system, ('touch /tmp/glovebox-was-here',))"
    )
    with pytest.raises(TransferError, match="cannot leave the sandbox"):
        sandbox.get("Evil()")
    with pytest.raises(TransferError):
        sandbox.get("[1, {'a': Evil()}]")


@pytest.mark.parametrize(
    "description",
    [
        {"kind": "pickle", "text": "gASVJAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAl0b3VjaCAvdG1wL3iUhZRSlC4="},
        {"kind": "json", "text": '{"$": ["eval", "1"]}'},
        {"kind": "json", "text": '{"$": 5}'},
        {"kind": "json", "text": "nonsense"},
        {"kind": "npy", "text": ""},
        {"kind": "json"},
    ],
)
def test_a_hostile_description_is_refused(sandbox: Sandbox, description: dict[str, Any]) -> None:
    """Code in the sandbox can claim anything about a value: what it says is data, or an error."""
    sandbox.run_code(
        f"import glovebox_kernel.transfer as transfer\ntransfer.give = lambda *args: transfer.Given({description!r})"
    )
    with pytest.raises(TransferError):
        sandbox.get("x")


def test_a_hostile_path_is_refused() -> None:
    with pytest.raises(glovebox.ProtocolError):
        _values.description_of({_values.MIME: {"kind": "json", "path": "/workspace/other"}})


@pytest.mark.layer
def test_tables_travel_as_arrow(science: Sandbox) -> None:
    frame = pandas.DataFrame(
        {"n": [1, 2, None], "t": ["a", "b", "c"], "when": pandas.to_datetime(["2026-01-01"] * 3)}, index=[5, 6, 7]
    )
    science.set("df", frame)
    assert science.run_code("type(df).__module__.split('.')[0], df.shape").text == "('pandas', (3, 3))"
    pandas.testing.assert_frame_equal(science.get("df"), frame, check_dtype=False)
    series = science.get("df['n']")
    assert isinstance(series, pandas.Series) and series.name == "n" and series.iloc[1] == 2
    assert science.get("df.n.rename(None)").name is None
    science.set("s", pandas.Series([1, 2], name="s"))
    assert science.get("s.sum()") == 3
    table = pyarrow.table({"a": [1, 2]})
    science.set("table", table)
    assert science.get("table").equals(table)
    science.set("odd", pandas.DataFrame({"o": [1, "x", (2,)]}))
    assert science.run_code("odd.o.tolist()").text == "[1, 'x', (2,)]"


@pytest.mark.layer
def test_arrays_travel_as_npy(science: Sandbox) -> None:
    array = numpy.arange(24.0).reshape(2, 3, 4)
    science.set("a", array)
    assert numpy.array_equal(science.get("a * 2"), array * 2)
    assert science.get("a.sum()") == 276.0 and science.get("a.shape") == (2, 3, 4)
    with pytest.raises(TransferError, match="Python objects"):
        science.get("__import__('numpy').array([object()])")


@pytest.mark.layer
def test_figures_and_tables_are_shown(science: Sandbox) -> None:
    figure = science.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    (result,) = figure.results
    image = result.image()
    assert image is not None and image.startswith(b"\x89PNG")
    assert figure.artifacts and figure._repr_mimebundle_()["image/png"]
    table = science.run_code("import pandas as pd\npd.DataFrame({'a': [1]})")
    assert "<table" in table._repr_mimebundle_()["text/html"]


def test_a_failed_preload_says_so_and_leaves_nothing(where: dict[str, Any]) -> None:
    with Sandbox.create(preload=["json", "decimal"], **where) as made:
        assert made.run_code("import sys; 'decimal' in sys.modules").text == "True"
    before = len(Sandbox.list(**where))
    with pytest.raises((TransferError, CodeError), match="no_such_module"):
        Sandbox.create(preload=["no_such_module"], **where)
    assert len(Sandbox.list(**where)) == before
