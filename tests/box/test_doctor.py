"""`glovebox doctor`: what it says must be complete, must agree with its exit status, and must change nothing."""

from __future__ import annotations

import json
import os
import pty
import re
import select
from pathlib import Path
from typing import Any

import pytest
from support.glovebox import Glovebox, slowness

NAMES = {
    "kernel", "user_namespaces", "namespaces", "mounts", "proc", "seccomp", "system_calls", "cgroups", "memory_limit",
    "pids_limit", "cpu_limit", "kill", "landlock", "idmapped_mounts", "container", "userns_settings", "tiocsti",
    "io_uring", "ksm", "swap", "python", "python_layer",
}  # fmt: skip
STATUS = {"full": 0, "weaker": 1, "impossible": 1}
NO_GROUP = {"GLOVEBOX_CGROUP_PARENT": "glovebox-test-nobody-made-this"}


def ask(glovebox: Glovebox, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = glovebox("doctor", "--json", env=env)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    assert done.returncode == STATUS[report["verdict"]]
    return report


def check_schema(report: dict[str, Any]) -> None:
    assert set(report) == {"verdict", "summary", "kernel", "cgroups", "root", "container", "checks", "engines"}
    assert report["kernel"] == os.uname().release
    assert report["cgroups"] in {"v1", "v2", "hybrid", "none"}
    assert isinstance(report["root"], bool)
    assert isinstance(report["container"], bool)
    assert {check["name"] for check in report["checks"]} == NAMES
    for check in report["checks"]:
        assert set(check) == {"name", "title", "need", "state", "detail", "fix"}, check
        assert check["need"] in {"box", "limits", "advice"}, check
        assert check["state"] in {"yes", "weaker", "no"}, check
        assert check["title"] and check["detail"], check
        assert bool(check["fix"]) == (check["state"] != "yes"), check


@pytest.mark.smoke
def test_report_is_complete_and_every_lack_has_a_fix(glovebox: Glovebox) -> None:
    report = ask(glovebox)
    check_schema(report)
    assert report["root"] == (glovebox.place.uid == 0)


@pytest.mark.vm
def test_host_with_groups_gives_full_limits(glovebox: Glovebox) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to delegate a control group")
    report = ask(glovebox)
    lacking = [check for check in report["checks"] if check["state"] == "no" and check["need"] != "advice"]
    assert (report["verdict"], lacking) == ("full", [])


@pytest.mark.vm
def test_user_without_a_group_gets_advice(user_glovebox: Glovebox) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to know that no group was delegated")
    report = ask(user_glovebox, NO_GROUP)
    check_schema(report)
    assert report["verdict"] == "weaker"
    assert "--allow-weaker" in report["summary"]
    fixes = {check["name"]: check["fix"] for check in report["checks"]}
    for name in ("memory_limit", "pids_limit", "cpu_limit"):
        assert re.search(r"Delegate=yes|install -d -o|read-only", fixes[name]), fixes[name]
        assert "--allow-weaker" in fixes[name]


def test_forbidden_user_namespaces_make_boxes_impossible(glovebox: Glovebox) -> None:
    """As in a container that forbids them: the doctor itself runs where no further namespace may be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to forbid user namespaces")
    inner = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" doctor --json'
    forbidding = Glovebox(Path("/usr/bin/unshare"), glovebox.place, glovebox.groups)
    done = forbidding("--user", "--map-root-user", "sh", "-c", inner, glovebox.binary)
    report = json.loads(done.stdout)
    check_schema(report)
    assert (report["verdict"], done.returncode) == ("impossible", 1)
    assert report["root"] is False
    lack = {check["name"]: check["fix"] for check in report["checks"] if check["state"] == "no"}
    assert "max_user_namespaces" in lack["user_namespaces"]


def test_looking_changes_nothing(glovebox: Glovebox) -> None:
    absent = glovebox.place.path / "absent"

    def state() -> tuple[set[Path], str, list[Path]]:
        groups = {path for path in glovebox.groups.directories if path.exists()}
        return groups, Path("/proc/self/mountinfo").read_text(), sorted(glovebox.place.path.rglob("*"))

    before = state()
    ask(glovebox, {"GLOVEBOX_DATA_DIR": str(absent)})
    assert state() == before


def test_table_is_aligned_and_ends_with_the_verdict(glovebox: Glovebox) -> None:
    report = ask(glovebox)
    done = glovebox("doctor")
    lines = done.stdout.splitlines()
    assert done.returncode == STATUS[report["verdict"]]
    assert lines[-1] == report["summary"]
    assert "\x1b" not in done.stdout
    mark = {"yes": "✓", "weaker": "!", "no": "✗"}
    width = max(len(check["title"]) for check in report["checks"])
    for check in report["checks"]:
        assert f"  {mark[check['state']]} {check['title']:<{width}}  {check['detail']}" in lines
        assert check["fix"] in done.stdout


def on_terminal(glovebox: Glovebox, env: dict[str, str]) -> str:
    """What doctor writes to a terminal."""
    ours, theirs = pty.openpty()
    with glovebox.popen("doctor", env={"TERM": "xterm", **env}, stdout=theirs) as process:
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], 60 * slowness())[0]:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            seen += chunk
        os.close(ours)
        process.wait(60 * slowness())
    return seen.decode()


def test_colour_is_for_terminals_and_can_be_refused(root_glovebox: Glovebox) -> None:
    assert "\x1b[" in on_terminal(root_glovebox, {})
    plain = on_terminal(root_glovebox, {"NO_COLOR": "1"})
    assert "✓" in plain
    assert "\x1b" not in plain


def test_unknown_words_are_refused(root_glovebox: Glovebox) -> None:
    for words in (["--jsn"], ["patient"]):
        done = root_glovebox("doctor", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("glovebox: ")
