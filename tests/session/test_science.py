"""What the scientific layer adds: tables, figures, load and save, and their hibernation."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from support.client import Client
from support.daemon import Daemon, is_gone, wait_for

pytestmark = pytest.mark.layer
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def client(layer_daemon: Daemon) -> Client:
    return layer_daemon.client()


def good(client: Client, code: str, name: str) -> dict:
    done = client.execute(code, name)
    assert done["status"] == "ok", done
    return done


def text(client: Client, code: str, name: str) -> str:
    return str(good(client, code, name)["result"]["text/plain"])


def test_a_dataframe_is_shown_as_text_and_as_html(client: Client) -> None:
    bundle = good(client, "import pandas as pd\ndf = pd.DataFrame({'x': [1, 2], 'name': ['<b>', 'c']})\ndf", "html")[
        "result"
    ]
    assert "name" in bundle["text/plain"] and "<table" in bundle["text/html"]
    assert "&lt;b&gt;" in bundle["text/html"] and "<b>" not in bundle["text/html"]


def test_figures_are_results_displays_and_artifacts(client: Client) -> None:
    code = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(figsize=(2, 2)); ax.plot([1, 2])\n"
    done = good(client, code + "fig", "figure")
    assert base64.b64decode(done["result"]["image/png"]).startswith(PNG)
    shown = good(client, code + "plt.show()", "figure")
    assert base64.b64decode(shown["displays"][0]["image/png"]).startswith(PNG), shown
    artifacts = done["artifacts"] + shown["artifacts"]
    assert len(artifacts) >= 2 and {item["mime"] for item in artifacts} == {"image/png"}, artifacts
    for item in artifacts:
        assert Path(item["host_path"]).read_bytes().startswith(PNG)


def test_save_and_load_keep_tables_in_the_workspace(client: Client) -> None:
    good(client, "import pandas as pd, numpy as np\ndf = pd.DataFrame({'x': np.arange(5)})\nsave(df, 'table')", "store")
    workspace = Path(client.request("session.show", session="store")["workspace"])
    assert (workspace / "data/table.parquet").read_bytes()[:4] == b"PAR1"
    client.request("session.restart", session="store")
    assert text(client, "int(load('table').x.sum())", "store") == "10"
    good(
        client, "import numpy as np, pandas as pd\nsave(pd.Series([1.5], name='s'), 's'); save(np.eye(2), 'n')", "store"
    )
    for code, word in (
        ("load('nowhere')", "nowhere"),
        ("save(df if 'df' in globals() else load('table'), '../out')", "name"),
        ("save({'a': 1}, 'dict')", "dict"),
    ):
        done = client.execute(code, "store")
        assert done["status"] == "error" and word in done["error"]["value"], (code, done["error"])
    assert not (workspace / "out.parquet").exists()


BIG = """
import numpy as np, pandas as pd
df = pd.DataFrame({'i': np.arange(1_000_000), 'f': np.linspace(0, 1, 1_000_000)}, index=pd.RangeIndex(5, 1_000_005))
df['c'] = pd.Categorical(['a', 'b'] * 500_000); same = df; a = np.arange(1_000_000); view = a[::2]
def measure(): return (float(df.f.sum()), int(a.sum()), str(df.dtypes.to_dict()), df.index[:2].tolist())
check = measure()
"""
SAME = "(same is df, view.base is a, check == measure())"


def test_trim_gives_the_memory_of_tables_back_and_sleep_all_of_it(layer_daemon: Daemon, client: Client) -> None:
    good(client, BIG, "big")
    before = client.request("session.show", session="big")["memory_bytes"]
    answered = client.request("session.hibernate", session="big", depth="trim")
    assert answered["state"] == "trimmed" and answered["bytes"] > 20 << 20, answered
    trimmed = client.request("session.show", session="big")
    assert trimmed["memory_bytes"] < before - (15 << 20) and trimmed["state"] == "trimmed", (before, trimmed)
    assert text(client, SAME, "big") == "(True, True, True)"
    agent = layer_daemon.agent_of("big")
    assert client.request("session.hibernate", session="big", depth="sleep")["state"] == "asleep"
    wait_for("the box to be gone", lambda: is_gone(agent))
    assert text(client, SAME, "big") == "(True, True, True)"
    assert text(client, "a[0] = 77; int(view[0])", "big") == "77"  # still the same memory
    client.request("session.remove", session="big")


def test_molecules_keep_their_properties_and_coordinates_in_a_sleep(client: Client) -> None:
    good(
        client,
        "from rdkit import Chem\nfrom rdkit.Chem import AllChem\n"
        "mol = Chem.AddHs(Chem.MolFromSmiles('CCO')); AllChem.EmbedMolecule(mol, randomSeed=1)\n"
        "mol.SetProp('_Name', 'ethanol'); mol.SetDoubleProp('logp', 0.25); mol.SetProp('note', 'kept')\n"
        "mol.GetAtomWithIdx(1).SetProp('label', 'two'); mol.GetBondWithIdx(0).SetIntProp('rank', 3)\nmols = [mol]",
        "molecules",
    )
    look = (
        "mol is mols[0], mol.GetPropsAsDict(True), mol.GetAtomWithIdx(1).GetProp('label'),"
        " mol.GetBondWithIdx(0).GetIntProp('rank'), mol.GetConformer().GetPositions().tolist(),"
        " int(Chem.GetDefaultPickleProperties())"
    )
    before = text(client, look, "molecules")
    assert "ethanol" in before and "0.25" in before
    answered = client.request("session.hibernate", session="molecules", depth="sleep")
    assert answered["state"] == "asleep" and "not_carried" not in answered, answered
    assert text(client, look, "molecules") == before


def test_the_thresholds_of_trimming_are_the_daemons(client: Client) -> None:
    # The daemon was started with 64 KiB; the kernel's own default is 1 MiB.
    good(client, "import numpy as np; small = np.ones(32_000)", "threshold")
    answered = client.request("session.hibernate", session="threshold", depth="trim")
    assert answered["bytes"] >= 200_000, answered
    assert text(client, "int(small.sum())", "threshold") == "32000"


def test_numpy_generators_do_not_repeat(client: Client) -> None:
    code = "import numpy as np\n(float(np.random.rand()), float(np.random.default_rng().random()))"
    seen = {client.execute(code)["result"]["text/plain"] for _ in range(3)}
    assert len(seen) == 3, seen
