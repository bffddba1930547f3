"""What people run works in a box unchanged: real code in each library and tool.

The scientific layer is root's (see conftest.py); one script with all of it also runs as an ordinary user."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest
from support.glovebox import Completed, Glovebox

LIBRARIES = {
    "numpy": """
        import numpy as np
        a = np.random.default_rng(1).normal(size=(300, 300))
        assert np.allclose(a @ np.linalg.inv(a), np.eye(300), atol=1e-6)
        np.save("artifacts/a.npy", a)
        assert np.array_equal(np.load("artifacts/a.npy", mmap_mode="r"), a)
    """,
    "pandas": """
        import pandas as pd
        frame = pd.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3]})
        frame.to_csv("f.csv", index=False)
        assert pd.read_csv("f.csv").groupby("k").v.sum().to_dict() == {"a": 4, "b": 2}
    """,
    "scipy": """
        from scipy import integrate, optimize
        assert abs(optimize.brentq(lambda x: x * x - 2, 0, 2) - 2 ** 0.5) < 1e-9
        assert abs(integrate.quad(lambda x: x * x, 0, 3)[0] - 9) < 1e-9
    """,
    "scikit-learn": """
        from sklearn.datasets import make_classification
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import cross_val_score
        x, y = make_classification(300, random_state=0)
        assert cross_val_score(LogisticRegression(), x, y, cv=2, n_jobs=2).mean() > 0.7
    """,
    "pyarrow": """
        import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
        pq.write_table(pa.table({"x": list(range(1000))}), "t.parquet")
        assert pc.sum(pq.read_table("t.parquet")["x"]).as_py() == 499500
        assert pa.cpu_count() <= 2
    """,
    "rdkit": """
        from rdkit import Chem
        from rdkit.Chem import AllChem, Descriptors
        molecule = Chem.MolFromSmiles("CC(=O)Oc1ccccc1C(=O)O")
        assert round(Descriptors.MolWt(molecule), 1) == 180.2
        assert AllChem.EmbedMolecule(Chem.AddHs(molecule), randomSeed=7) == 0
    """,
    "matplotlib": """
        import matplotlib.pyplot as plt
        plt.plot([1, 2, 4])
        plt.title("a title")
        plt.savefig("artifacts/plot.png")
        assert open("artifacts/plot.png", "rb").read(4) == b"\\x89PNG"
    """,
}

STANDARD = {
    "multiprocessing": """
        import multiprocessing as mp
        from concurrent.futures import ProcessPoolExecutor
        def square(n):
            return n * n
        if __name__ == "__main__":
            with mp.Pool(2) as pool:
                assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
            with ProcessPoolExecutor(2, mp_context=mp.get_context("spawn")) as pool:
                assert list(pool.map(square, [3])) == [9]
            queue, lock = mp.Queue(), mp.Lock()
            process = mp.Process(target=queue.put, args=("x",))
            process.start()
            assert queue.get(timeout=60) == "x"
            process.join()
    """,
    "asyncio": """
        import asyncio
        async def main():
            async def serve(reader, writer):
                writer.write(await reader.readline())
                writer.close()
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"echo\\n")
            assert await reader.readline() == b"echo\\n"
            child = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
            assert (await child.communicate())[0] == b"child\\n"
        asyncio.run(main())
    """,
    "sqlite3": """
        import sqlite3
        base = sqlite3.connect("base.db")
        base.execute("pragma journal_mode=wal")
        base.execute("create table t (x)")
        base.executemany("insert into t values (?)", [(i,) for i in range(1000)])
        base.commit()
        assert sqlite3.connect("base.db").execute("select sum(x) from t").fetchone() == (499500,)
    """,
    "subprocess": """
        import subprocess, tempfile, threading
        assert subprocess.run("echo a | tr a b", shell=True, capture_output=True).stdout == b"b\\n"
        threads = [threading.Thread(target=subprocess.check_call, args=(["true"],)) for _ in range(5)]
        [t.start() for t in threads]; [t.join() for t in threads]
        with tempfile.TemporaryDirectory() as place:
            open(place + "/f", "w").write("x")
    """,
}

TOOLS = {
    "bash": """
        set -euo pipefail
        declare -A map=([a]=1 [b]=2)
        diff <(printf '%s\\n' "${!map[@]}" | sort) <(printf 'a\\nb\\n')
        (sleep 0.01; echo late) & wait
        mkfifo p; echo through >p & test "$(cat p)" = through
    """,
    "git": """
        set -e
        git init -q repo; cd repo
        git config user.email a@b.c; git config user.name n
        echo x >f; git add f; git commit -qm first
        git clone -q . ../copy; git -C ../copy log --oneline | grep -q first
    """,
    "gcc": """
        set -e
        printf '#include <stdio.h>\\nint main(void) { return puts("compiled") < 0; }\\n' >a.c
        gcc -O2 -o a a.c && ./a | grep -qx compiled
    """,
    "tar": """
        set -e
        mkdir d; head -c 100000 /dev/urandom >d/f; ln -s f d/l
        tar czf d.tgz d; mv d e; tar xzf d.tgz; cmp d/f e/f; test -L d/l
    """,
}


def body(code: str) -> str:
    """A block as it is written above, as a program."""
    return "if True:" + code + "\nprint('worked')" if "__main__" not in code else dedent(code) + "\n    print('worked')"


def dedent(code: str) -> str:
    return "\n".join(line[8:] for line in code.splitlines())


def check(done: Completed) -> None:
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["worked"]), done.stdout + done.stderr


@pytest.mark.layer
@pytest.mark.parametrize("name", LIBRARIES)
def test_library_works_in_a_box(layer_glovebox: Glovebox, name: str) -> None:
    words = ["--cpus", "2", "--memory", "1g", "--output-dir", layer_glovebox.place.path / "out"]
    check(layer_glovebox("run", *words, "-c", body(LIBRARIES[name]), timeout=100))


@pytest.mark.layer
def test_whole_layer_works_for_a_user(user_layer_glovebox: Glovebox) -> None:
    code = "".join(body(code) + "\n" for code in LIBRARIES.values())
    words = ["--cpus", "2", "--memory", "1g", "--timeout", "100s"]
    done = user_layer_glovebox("run", *words, "-c", code, timeout=110)
    assert done.stdout.count("worked\n") == len(LIBRARIES), done.stdout + done.stderr


@pytest.mark.parametrize("name", STANDARD)
def test_standard_library_works_in_a_box(glovebox: Glovebox, name: str) -> None:
    file = glovebox.place.write("program.py", body(STANDARD[name]))
    check(glovebox("run", file))


@pytest.mark.parametrize("name", TOOLS)
def test_tool_works_in_a_box(glovebox: Glovebox, name: str) -> None:
    check(glovebox("run", "-l", "bash", "-c", dedent(TOOLS[name]) + "\necho worked"))


def make_wheel(directory: Path) -> Path:
    """The smallest wheel that pip takes."""
    path = directory / "glovetest-1.0-py3-none-any.whl"
    files = {
        "glovetest.py": "answer = 42\n",
        "glovetest-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: glovetest\nVersion: 1.0\n",
        "glovetest-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(text)}\n"
        wheel.writestr("glovetest-1.0.dist-info/RECORD", record + "glovetest-1.0.dist-info/RECORD,,\n")
    return path


def test_pip_installs_a_wheel_without_network(glovebox: Glovebox) -> None:
    wheels = glovebox.place.make("wheels", 0o755)
    glovebox.place.give(make_wheel(wheels))
    code = """
        set -e
        python3 -m pip install -q --no-index --find-links /data --target /workspace glovetest
        python3 -c 'import glovetest; print(glovetest.answer)' | grep -qx 42
    """
    check(glovebox("run", "--data", wheels, "-l", "bash", "-c", dedent(code) + "\necho worked"))


@pytest.mark.layer
def test_numpy_works_with_more_processors_than_the_host_has(layer_glovebox: Glovebox) -> None:
    """One thread for each of 64 processors exceeds the limit of processes, and OpenBLAS hangs."""
    code = "import numpy as np; a = np.ones((1000, 1000)); print((a @ a).sum())"
    assert layer_glovebox("run", "--cpus", "64", "--timeout", "20", "-c", code).stdout == "1000000000.0\n"
