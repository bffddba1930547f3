"""Seed 001: sessions, ephemeral runs, artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.seeds import block_with


def test_the_example_leaves_its_artifact_at_the_path_of_the_text(place: Path) -> None:
    from glovebox.compat.code_sandbox import SessionManager

    with SessionManager(sessions_dir=place / "sessions") as manager:
        run = manager.exec(block_with("001", "hello from sandbox"), session_id="conv")
        assert run.ok, run
        host = place / "sessions/conv/artifacts/output.txt"
        assert dict(run.artifact_map) == {"/session/artifacts/output.txt": str(host)}
        assert host.read_text() == "hello from sandbox"
        assert run.artifact_map["/workspace/artifacts/output.txt"] == str(host)
        assert manager.exec("print(x)", session_id="conv").stdout == "42\n"
        assert "NameError" in manager.exec("print(x)", session_id="other").stderr
    assert host.exists()


def test_ephemeral_runs_promote_their_artifacts(place: Path) -> None:
    from glovebox.compat.code_sandbox import SessionManager

    (place / "datasets").mkdir()
    (place / "datasets/in.txt").write_text("seven")
    code = (
        "import os; os.makedirs('/work/artifacts/deep', exist_ok=True); x = open('/data/in.txt').read()\n"
        "open('/work/artifacts/deep/out.txt', 'w').write(x)\nimport sys; print('o'); print('e', file=sys.stderr)"
    )
    manager = SessionManager("ephemeral", outputs_dir=place / "outputs", datasets_dir=place / "datasets")
    run = manager.exec(code)
    assert (run.status, run.stdout, run.stderr) == ("ok", "o\n", "e"), run
    host = place / "outputs" / run.run_id / "deep/out.txt"
    assert dict(run.artifact_map) == {"/work/artifacts/deep/out.txt": str(host)}
    assert host.read_text() == "seven"
    assert "NameError" in manager.exec("print(x)").stderr


def test_an_id_that_is_no_name_leads_nowhere_else(place: Path) -> None:
    from glovebox.compat.code_sandbox import SessionManager

    with SessionManager(sessions_dir=place / "sessions") as manager:
        run = manager.exec("open('/session/artifacts/a', 'w').write('1')", session_id="../../escape me")
        (host,) = run.artifact_map.values()
        assert Path(host).is_file() and (place / "sessions") in Path(host).parents
    with pytest.raises(ValueError, match="mode"):
        SessionManager("forever")
