"""Values as MIME bundles, displays and figures."""

from __future__ import annotations

import base64

import pytest

from kernel_process import KernelProcess

PNG = b"\x89PNG\r\n"


def test_rich_forms_are_taken_from_the_type(kernel: KernelProcess) -> None:
    code = """
class Rich:
    def __repr__(self): return "plain"
    def _repr_html_(self): return "<b>html</b>"
    def _repr_markdown_(self): return None
    def _repr_latex_(self): raise NotImplementedError
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_json_(self): return {"a": [1, None]}
    def _repr_mimebundle_(self, include=None, exclude=None): return {"text/x-own": "own"}
Rich()
"""
    assert kernel.run(code)["result"] == {
        "text/plain": "plain",
        "text/x-own": "own",
        "text/html": "<b>html</b>",
        "image/svg+xml": "<svg/>",
        "image/png": base64.b64encode(b"\x89PNG").decode(),
        "application/json": {"a": [1, None]},
    }
    assert kernel.run("Rich")["result"] == {"text/plain": "<class '__main__.Rich'>"}
    assert kernel.run("from unittest.mock import MagicMock\nMagicMock()")["result"].keys() == {"text/plain"}


def test_a_repr_that_raises_is_the_runs_error(kernel: KernelProcess) -> None:
    code = "class Bad:\n    def __repr__(self):\n        raise ValueError('no repr')\nBad()"
    result = kernel.run(code)
    assert result["status"] == "error"
    assert result["result"] is None
    assert "raise ValueError('no repr')" in result["error"]["traceback"]
    assert "mime.py" not in result["error"]["traceback"]
    error = kernel.run("class E(Exception):\n    def __str__(self): raise KeyError\nraise E")["error"]
    assert error["name"] == "E"


@pytest.mark.parametrize("code", ["'a' * (3 << 20)", "list(range(2_000_000))", "dict.fromkeys(range(2_000_000))"])
def test_long_text_is_cut_and_marked(kernel: KernelProcess, code: str) -> None:
    text = kernel.value(code)
    assert len(text) < (1 << 20) + 200
    assert "cut" in text
    assert "in all" in text


def test_json_that_the_host_could_not_read_is_left_out_with_a_note(kernel: KernelProcess) -> None:
    kernel.run("class J:\n    def __init__(self, v): self.v = v\n    def _repr_json_(self): return self.v")
    for value in ("2 ** 64", "float('nan')", "'a\\0b'", "object()"):
        result = kernel.run(f"J({value})")
        assert result["status"] == "ok"
        assert "application/json" not in result["result"]
        assert "application/json not shown" in result["result"]["text/plain"]
    assert kernel.value("'\\ud800'") == "'\\ud800'"


def test_display_streams_in_order_with_the_output(kernel: KernelProcess) -> None:
    result = kernel.run("display(1, 'two')\ndisplay({'text/html': '<i>'}, raw=True)\n3")
    assert [display["data"] for display in kernel.displays] == [
        {"text/plain": "1"},
        {"text/plain": "'two'"},
        {"text/html": "<i>"},
    ]
    assert result["displays"] == 3
    assert kernel.displays[0]["id"] == result["id"]


def test_dataframe_has_html(kernel: KernelProcess) -> None:
    pytest.importorskip("pandas")
    bundle = kernel.run("import pandas as pd\npd.DataFrame({'x': [1, 2]})")["result"]
    assert "<table" in bundle["text/html"]
    assert "x" in bundle["text/plain"]


def test_figures_become_pictures_once_and_are_closed(kernel: KernelProcess, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "artifacts").mkdir()
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint('after')\nplt.figure();"
    result = kernel.run(code)
    assert result["displays"] == len(kernel.displays) == 2
    assert kernel.err == ""
    for display in kernel.displays:
        assert base64.b64decode(display["data"]["image/png"]).startswith(PNG)
    assert [path.rsplit("/", 1)[1] for path in result["figures"]] == ["figure-1.png", "figure-2.png"]
    assert (tmp_path / "artifacts" / "figure-1.png").read_bytes().startswith(PNG)
    assert kernel.value("plt.get_fignums()") == "[]"
    result = kernel.run("fig, ax = plt.subplots()\nfig")
    assert base64.b64decode(result["result"]["image/png"]).startswith(PNG)
    assert result["displays"] == 0
    result = kernel.run("plt.plot([1])\nraise ValueError('after the plot')")
    assert (result["status"], result["displays"]) == ("error", 1)


def test_wide_characters_are_drawn_by_a_font_of_the_host(kernel: KernelProcess) -> None:
    pytest.importorskip("matplotlib")
    code = "import matplotlib.pyplot as plt\nplt.title('图表 日本語')\nplt.plot([1])\nplt.show()"
    assert kernel.run(code)["status"] == "ok"
    assert kernel.err == "", "no warning: the tests' set-up installs such a font"
    kernel.run("plt.title('\U00013000')\nplt.plot([1])\nplt.show()")
    assert "there is no font here: \U00013000" in kernel.err and "glovebox_kernel" not in kernel.err
