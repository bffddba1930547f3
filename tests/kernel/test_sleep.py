"""Sleep and wake: the same variables in another process, or a name for what stands in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_process import CONTEXT, SLEEP, WAKE, KernelProcess

DEFINITIONS = """
import abc, collections, enum, functools, os.path, random, typing, xml.dom.minidom
from dataclasses import dataclass, field, fields
def fact(n): return 1 if n < 2 else n * fact(n - 1)
def counter():
    n = 0
    def step(k=1, *, j=2):
        nonlocal n; n += k; return n
    def peek(): return n
    return step, peek
step, peek = counter(); step(); step()
class Base(abc.ABC):
    registry = []
    def __init_subclass__(cls, **kw): Base.registry.append(cls.__name__)
    __slots__ = ("__dict__",)
    @abc.abstractmethod
    def m(self): ...
class Child(Base):
    "doc"
    __slots__ = ("v",)
    def __init__(self, v): super().__init__(); self.v = v
    def m(self): return self.v
    @property
    def p(self): return self.v + 1
    @p.setter
    def p(self, x): self.v = x
    @staticmethod
    def s(): return "s"
    @classmethod
    def k(cls): return cls.__name__
    @functools.cached_property
    def cp(self): return "cached"
kid = Child(5); kid.me = kid
@dataclass(order=True)
class D:
    x: int
    y: list = field(default_factory=list, compare=False)
dd = D(3)
class Color(enum.Enum):
    RED = 1
    BLUE = "b"
    ALIAS = 1
    @property
    def nice(self): return self.name.lower()
class Flag(enum.IntFlag):
    A = 1; B = 2
red = Color.RED; ab = Flag.A | Flag.B
P = collections.namedtuple("P", "x y"); p = P(1, 2)
class NT(typing.NamedTuple):
    q: int = 7
nt = NT()
T = typing.TypeVar("T")
class G(typing.Generic[T]):
    def get(self) -> T: ...
gi = G[int]; g = G()
class TD(typing.TypedDict): a: int
class Pr(typing.Protocol):
    def close(self): ...
@functools.lru_cache(maxsize=10)
def cached(n): return n * 2
part_fn = functools.partial(fact, 5)
lam = lambda q: q + kid.v
@functools.wraps(fact)
def wrapped(n): return fact(n)
gl = globals(); main = __import__("__main__"); ospath = os.path
loop = []; loop.append(loop)
twins = [kid, kid]
err = ValueError("kept"); meth = kid.m
random.seed(5); os.environ["MINE"] = "yes"
raw = bytearray(b"x" * 3_000_000)
"""

CHECKS = """
assert fact(5) == 120 and fact.__globals__ is globals()
assert step() == 3 and peek() == 3 and step.__kwdefaults__ == {"j": 2}
assert Base.registry == ["Child"], Base.registry
assert kid.me is kid and kid.m() == 5 and kid.p == 6 and Child.s() == "s" and Child.k() == "Child"
assert kid.cp == "cached" and twins[0] is kid and twins[1] is kid
kid.p = 8
assert kid.v == 8 and lam(1) == 9 and Child.__doc__ == "doc" and isinstance(kid, Base)
try: Base()
except TypeError: pass
else: assert False, "abstract classes stay abstract"
assert dd == D(3) and [x.name for x in fields(D)] == ["x", "y"] and D(1) < D(2) and D(4).y == []
assert repr(dd) == "D(x=3, y=[])"
assert red is Color.RED and Color("b") is Color.BLUE and Color.ALIAS is Color.RED and red.nice == "red"
assert ab == Flag.A | Flag.B and ab == 3 and isinstance(ab, Flag)
assert p == P(1, 2) and p.x == 1 and type(p) is P and p._replace(x=3).x == 3
assert nt.q == 7 and NT(3).q == 3
assert gi.__args__ == (int,) and type(g) is G and G.__parameters__ == (T,) and G[str]
assert TD(a=1) == {"a": 1} and cached(3) == 6 and cached.cache_info().maxsize == 10
assert part_fn() == 120 and wrapped(3) == 6 and wrapped.__wrapped__ is fact
assert gl is globals() and ospath.join("a", "b") == "a/b" and loop[0] is loop and main is __import__("__main__")
assert err.args == ("kept",) and meth() == 8 and os.environ["MINE"] == "yes" and xml.dom.minidom
assert raw == b"x" * 3_000_000
import inspect, pickle
assert "def fact" in inspect.getsource(fact)
assert pickle.loads(pickle.dumps(kid)).v == 8
"""

DATA = """
import numpy as np, pandas as pd, pyarrow as pa
a = np.arange(1_000_000.0); b = a; c = a[10:]
f = np.asfortranarray(np.ones((700, 700))); ft = f.T[3:, ::-2]
perm = np.arange(24000.).reshape(20, 30, 40).transpose(1, 0, 2).copy("K"); pv = perm[2:, 3]
ro = np.arange(5); ro.flags.writeable = False
d8 = np.array(["2020-01-01", "2021-01-01"], "M8[ns]"); d8v = d8[1:]
objs = np.array([1, "x", None], object); ov = objs[1:]
raw = bytearray(b"0123456789" * 1000); over = np.frombuffer(raw, "u1")[5:]
N = 300_000
df = pd.DataFrame({"x": np.arange(N), "y": np.random.rand(N), "s": ["t%d" % (i % 7) for i in range(N)]},
    index=pd.date_range("2020-01-01", periods=N, freq="s"))
expected = pd.util.hash_pandas_object(df).sum()
df2 = df; part = df.iloc[100:200_000]; col = df["x"]; cat = df.s.astype("category")
plain = pd.DataFrame(np.ones((100_000, 2)), columns=["u", "v"]); keys = pd.Index(plain.u, copy=False)
mi = df.iloc[:10].set_index(["x", "s"]); nul = pd.array([1, None, 3], dtype="Int64")
t = pa.table({"a": np.arange(500_000), "b": ["s"] * 500_000}); tsl = t.slice(10, 400_000)
np.random.seed(5); rng = np.random.default_rng(3); pd.set_option("display.max_rows", 11)
"""

DATA_CHECKS = """
assert b is a and c.base is a and a.flags.owndata and len(c) == 999_990 and a[-1] == 999_999
c[0] = -5; assert a[10] == -5
assert f.flags.f_contiguous and f.flags.owndata and ft.base is f
ft[0, 0] = 9; assert f[-1, 3] == 9
assert perm.flags.owndata and perm.strides == (320, 9600, 8) and pv.base is perm
assert np.array_equal(perm, np.arange(24000.).reshape(20, 30, 40).transpose(1, 0, 2))
assert not ro.flags.writeable
assert d8v.base is d8 and str(d8v[0]) == "2021-01-01T00:00:00.000000000"
ov[0] = "changed"; assert objs[1] == "changed"
raw[5] = 65; assert over[0] == 65
assert df2 is df and df.index.freq is not None and pd.util.hash_pandas_object(df).sum() == expected
assert np.shares_memory(part["x"].values, df["x"].values) and np.shares_memory(col.values, df["x"].values)
if int(pd.__version__.split(".")[0]) >= 3:
    part.iloc[0, 0] = -1; assert df.iloc[100, 0] == 100
    df.iloc[0, 0] = 77; assert col.iloc[0] == 0
    plain.iloc[0, 0] = 5; assert keys[0] == 1
assert str(cat.dtype) == "category" and cat.iloc[8] == "t1" and mi.index.nlevels == 2 and nul.sum() == 4
assert t.column("a")[499_999].as_py() == 499_999 and tsl.num_rows == 400_000 and tsl.column("b")[5].as_py() == "s"
assert pd.get_option("display.max_rows") == 11
"""


def put_to_sleep(kernel: KernelProcess, path: Path, start_kernel) -> KernelProcess:
    answer = kernel.request(SLEEP, path=str(path), exit=True)
    assert answer["ok"], answer
    assert path.stat().st_size == answer["bytes"]
    assert kernel.wait_end() == 0
    fresh = start_kernel()
    answer = fresh.request(WAKE, path=str(path))
    assert answer["ok"], answer
    assert answer["lost"] == []
    return fresh


def test_definitions_of_cells_are_restored_twice(kernel: KernelProcess, tmp_path: Path, start_kernel) -> None:
    kernel.value(DEFINITIONS)
    fresh = put_to_sleep(kernel, tmp_path / "one", start_kernel)
    fresh = put_to_sleep(fresh, tmp_path / "two", start_kernel)
    fresh.value(CHECKS)
    error = fresh.run("fact('x')")["error"]
    assert "def fact(n): return 1 if n < 2" in error["traceback"]


def test_data_is_restored_with_its_views_identity_and_bookkeeping(
    kernel: KernelProcess, tmp_path: Path, start_kernel
) -> None:
    for module in ("numpy", "pandas", "pyarrow"):
        pytest.importorskip(module)
    kernel.value(DATA)
    again = "np.random.rand(), rng.random()"
    path = tmp_path / "file"
    assert kernel.request(SLEEP, path=str(path))["ok"]
    expected = kernel.value(again)
    kernel.close_now()
    fresh = start_kernel()
    assert fresh.request(WAKE, path=str(path))["ok"]
    assert fresh.value(again) == expected
    fresh.value(DATA_CHECKS)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("bad = open('/dev/null')", "bad"),
        ("bad = (i for i in range(3))", "bad"),
        ("import threading; bad = {'deep': [threading.Lock()]}", "bad"),
        ("import socket; bad = socket.socket()", "bad"),
        ("import threading\ne = threading.Event()\nthreading.Thread(target=e.wait, daemon=True).start(); e = 0", "*"),
        ("import subprocess; subprocess.Popen(['sleep', '600']).pid", "*"),
        ("import signal; signal.signal(signal.SIGUSR1, lambda *a: None); signal = 0", "*"),
        ("class Bad:\n    def __reduce__(self): return int, ('no number',)\nb = [Bad()]", "b"),
    ],
)
def test_values_that_cannot_be_saved_are_named_and_nothing_changes(
    kernel: KernelProcess, tmp_path: Path, code: str, name: str
) -> None:
    pid = kernel.value("good = [1]\n" + code)
    answer = kernel.request(SLEEP, path=str(tmp_path / "file"), exit=True)
    assert not answer["ok"]
    assert [entry["name"] for entry in answer["held"]] == [name]
    assert answer["held"][0]["why"]
    assert not list(tmp_path.glob("file*"))
    assert kernel.value("good") == "[1]"
    if "Popen" in code:
        kernel.run(f"import os; os.kill({pid}, 9)")


def test_contexts_sleep_together_and_stay_apart(kernel: KernelProcess, tmp_path: Path, start_kernel) -> None:
    kernel.request(CONTEXT, op="new", name="other")
    kernel.run("x = [1]\ndef f(): return x")
    kernel.run("x = [2]\ndef f(): return x", context="other")
    fresh = put_to_sleep(kernel, tmp_path / "file", start_kernel)
    assert fresh.value("f(), f.__globals__ is globals()") == "([1], True)"
    assert fresh.value("f(), f.__globals__ is globals()", context="other") == "([2], True)"


def test_a_file_that_is_cut_is_refused_and_the_kernel_stays_usable(kernel: KernelProcess, tmp_path: Path) -> None:
    kernel.run("x = 1")
    path = tmp_path / "file"
    assert kernel.request(SLEEP, path=str(path))["ok"]
    kernel.run("del x")
    os.truncate(path, path.stat().st_size - 1)
    answer = kernel.request(WAKE, path=str(path))
    assert not answer["ok"]
    assert "bytes and should have" in answer["error"]
    assert kernel.value("1 + 1") == "2"


def test_no_room_for_the_file_changes_nothing(kernel: KernelProcess, tmp_path: Path) -> None:
    kernel.run("x = bytes(50_000_000)\nimport resource")
    kernel.run("resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))")
    answer = kernel.request(SLEEP, path=str(tmp_path / "file"))
    assert not answer["ok"]
    assert "File too large" in answer["error"]
    assert "held" not in answer
    assert not list(tmp_path.glob("file*"))
    assert kernel.value("len(x)") == "50000000"
