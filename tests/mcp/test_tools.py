"""What a model gets from the tools, over both transports and in both eras."""

from __future__ import annotations

import base64
import re
import time

import pytest
from support.daemons import StartDaemon
from support.mcp import LEGACY, MODERN, TASKS, HttpPeer, Peer, StdioPeer, modern_meta, run_id_of
from support.service import Service

TOOLS = {
    "run_python", "run_shell", "read_file", "write_file", "list_files", "install_packages", "read_output", "interrupt",
    "create_sandbox", "list_sandboxes", "close_sandbox",
}  # fmt: skip
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)


def test_tools_are_few_and_each_is_described(peer: Peer) -> None:
    tools = {tool["name"]: tool for tool in peer.result("tools/list")["tools"]}
    assert set(tools) == TOOLS
    for tool in tools.values():
        assert len(tool["description"]) < 500
        assert tool["inputSchema"]["additionalProperties"] is False
    assert "No network." in tools["run_python"]["description"]
    assert tools["read_file"]["annotations"]["readOnlyHint"] is True


def test_first_call_works_and_variables_stay(peer: Peer) -> None:
    assert peer.text("run_python", code="x = 40") == "[no output]"
    assert peer.text("run_python", code="print('hi')\nx + 2") == "hi\n42"


def test_error_names_line_and_fix(peer: Peer) -> None:
    words = peer.refusal("run_python", code="a = 1\nprint('before')\na / 0")
    assert "before" in words and "line 3" in words and "ZeroDivisionError" in words
    words = peer.refusal("run_python", code="import no_such_module")
    assert "install_packages" in words and "glovebox session" not in words
    words = peer.refusal("run_python", code="x = 1\n%pip install humanize")
    assert "install_packages with humanize" in words and "glovebox session" not in words


def test_shell_reports_its_exit_status(peer: Peer) -> None:
    assert peer.text("run_shell", command="echo $((6*7)); echo oops >&2") in ("42\noops", "oops\n42")
    assert "exit status 3" in peer.refusal("run_shell", command="exit 3")


def test_figures_are_images(peer: Peer) -> None:
    code = f"class Figure:\n    def _repr_png_(self): return {PNG!r}\nFigure()"
    content = peer.call("run_python", code=code)["content"]
    image = next(block for block in content if block["type"] == "image")
    assert image["mimeType"] == "image/png" and base64.b64decode(image["data"]) == PNG


def test_output_is_bounded_and_the_rest_can_be_read(peer: Peer) -> None:
    result = peer.call("run_python", code="for i in range(20000): print(i)")
    words = result["content"][0]["text"]
    assert len(words) < 30_000 and words.startswith("0\n1\n") and words.endswith("19999")
    found = re.search(r'read_output run_id="([^"]+)" offset=(\d+)', words)
    assert found and found[1] == run_id_of(result)
    whole, offset = words[: int(found[2])], int(found[2])
    while True:
        part = peer.text("read_output", run_id=found[1], offset=offset)
        more = re.search(r'\n\[more follows: read_output run_id="[^"]+" offset=(\d+)\]$', part)
        whole += part[: more.start()] if more else part
        if not more:
            break
        assert int(more[1]) > offset
        offset = int(more[1])
    assert whole.split() == [str(i) for i in range(20000)]


def test_files_are_written_read_and_listed(peer: Peer) -> None:
    peer.text("write_file", path="src/a.txt", content="one\ntwo\nthree\n")
    assert peer.text("read_file", path="/workspace/src/a.txt", line=2, lines=1).startswith("two\n")
    assert "src/" in peer.text("list_files") and "a.txt  14" in peer.text("list_files", path="src")
    peer.text("write_file", path="p.png", content=base64.b64encode(PNG).decode(), base64=True)
    assert peer.call("read_file", path="p.png")["content"][0]["type"] == "image"
    peer.text("write_file", path="b.bin", content=base64.b64encode(bytes(range(256))).decode(), base64=True)
    assert peer.call("read_file", path="b.bin")["content"][1]["type"] == "resource_link"
    assert ".." in peer.refusal("read_file", path="../../etc/passwd")
    peer.text("run_shell", command="ln -s /etc/passwd out")
    peer.refusal("read_file", path="out")
    peer.refusal("read_file", path="none.txt")


def test_artifacts_are_links_that_can_be_read(peer: Peer) -> None:
    code = "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/ä b.csv', 'w').write('1,2')\nNone"
    link = next(b for b in peer.call("run_python", code=code)["content"] if b["type"] == "resource_link")
    assert link["name"] == "ä b.csv" and link["size"] == 3
    contents = peer.result("resources/read", {"uri": link["uri"]})["contents"] if link["uri"].isascii() else []
    assert contents == [{"uri": link["uri"], "mimeType": link["mimeType"], "text": "1,2"}]
    peer.text("write_file", path="b.bin", content=base64.b64encode(b"\x00\xff").decode(), base64=True)
    blob = peer.result("resources/read", {"uri": "glovebox://default/b.bin"})["contents"][0]["blob"]
    assert base64.b64decode(blob) == b"\x00\xff"


@pytest.mark.parametrize(
    "uri",
    [
        "glovebox://default/../../../etc/passwd", "glovebox://default/%2e%2e/%2e%2e/etc/passwd", "file:///etc/passwd",
        "glovebox://default/", "glovebox://", "glovebox:///x", "glovebox://no-such/x", "glovebox://default/%00",
        "glovebox://default/%zz", "glovebox://default/" + "a" * 6000, "glovebox://" + "a" * 300 + "/x",
        "glovebox://default/artifacts", "", "glovebox://ann%2Fdefault/x",
    ],
)  # fmt: skip
def test_hostile_uris_are_refused_in_the_protocols_form(service: Service, uri: str) -> None:
    legacy, modern = HttpPeer(service), HttpPeer(service, MODERN)
    legacy.text("run_python", code="1")
    assert legacy.request("resources/read", {"uri": uri})["error"]["code"] == -32002
    if uri and len(uri) < 6000:  # a longer one does not fit into the header that must repeat it
        error = modern.request("resources/read", {"uri": uri})["error"]
        assert error["code"] == -32602 and error["data"]["uri"] == uri


def test_handles_are_arguments_and_unknown_ones_are_refused(peer: Peer) -> None:
    handle = re.search(r'sandbox="([^"]+)"', peer.text("create_sandbox"))
    assert handle
    peer.text("run_python", code="y = 1", sandbox=handle[1])
    assert "NameError" in peer.refusal("run_python", code="y")
    assert handle[1] in peer.text("list_sandboxes")
    assert peer.text("close_sandbox", sandbox=handle[1]) == "closed"
    assert "create_sandbox" in peer.refusal("run_python", code="y", sandbox=handle[1])
    for hostile in ("../x", "a/b", "", "x" * 65, "ann/default"):
        peer.refusal("run_python", code="1", sandbox=hostile)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "missing"), ({"code": 1}, "text"), ({"code": "1", "timeout_s": "x"}, "number"),
        ({"code": "1", "timeout_s": -1}, "between"), ({"code": "1", "tiemout": 1}, "no argument"),
        ({"code": "1", "background": 1}, "true or false"), ({"code": "a\0b"}, "NUL"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_reported_to_the_model(service: Service, arguments: dict[str, object], word: str) -> None:
    peer = HttpPeer(service)
    if "NUL" in word:
        assert "error" in peer.request("tools/call", {"name": "run_python", "arguments": arguments})
        return
    assert word in peer.refusal("run_python", **arguments)


def test_unknown_tools_and_methods_are_errors_of_the_protocol(peer: Peer) -> None:
    assert peer.request("tools/call", {"name": "rm_rf", "arguments": {}})["error"]["code"] == -32602
    assert peer.request("tools/call", {"name": "run_python", "arguments": []})["error"]["code"] == -32602
    assert peer.request("no/such")["error"]["code"] == -32601
    assert peer.request("tools/list", {"cursor": "x"})["error"]["code"] == -32602


def test_a_long_run_goes_on_in_the_background(peer: Peer) -> None:
    code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.3)\n7 * 6"
    result = peer.call("run_python", code=code, background=True)
    run_id = run_id_of(result)
    assert "still running" in result["content"][0]["text"]
    assert "still running" in peer.text("read_output", run_id=run_id, wait_s=0)
    assert peer.text("read_output", run_id=run_id, wait_s=30) == "0\n1\n2\n42"
    assert peer.text("read_output", run_id=run_id, offset=4) == "2\n42"
    peer.refusal("read_output", run_id="default." + "0" * 32)
    peer.refusal("read_output", run_id="nonsense")


def test_a_run_that_waits_for_another_is_reported_as_waiting(peer: Peer) -> None:
    first = run_id_of(peer.call("run_python", code="import time; time.sleep(60)", background=True))
    words = peer.text("run_python", code="6 * 7", background=True)
    assert f'waits for run_id="{first}"' in words, words
    assert peer.text("interrupt", run_id=first) == "interrupted"
    found = re.search(r'this one is run_id="([^"]+)"', words)
    assert found and peer.text("read_output", run_id=found[1], wait_s=30) == "42"


def test_a_run_has_an_hour_unless_it_is_given_less(start_daemon: StartDaemon) -> None:
    """A run in the background would be of little use with the time that a sandbox allows otherwise."""
    peer = StdioPeer(start_daemon("--timeout", "1"), MODERN)
    run_id = run_id_of(peer.call("run_python", code="import time; time.sleep(3); 6 * 7", background=True))
    assert peer.text("read_output", run_id=run_id, wait_s=45) == "42"
    peer.close()


def test_reading_past_the_end_is_reported(peer: Peer) -> None:
    peer.text("write_file", path="two.txt", content="one\ntwo\n")
    for line in (3, 100):
        assert peer.refusal("read_file", path="two.txt", line=line) == "the file has only 2 lines"
    assert peer.text("read_file", path="two.txt", line=1, lines=1) == "one\n"
    run_id = run_id_of(peer.call("run_python", code="print('hi')"))
    assert peer.text("read_output", run_id=run_id, offset=100) == "[the output has only 3 bytes]"


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("python3 -m no_such_module", "install_packages"),
        ("echo 'error: externally-managed-environment'; exit 1", "install_packages"),
        ("python3 -c 'input()'", "standard input is empty"),
        ("exit 137", "memory"),
    ],
)
def test_shell_errors_come_with_what_helps_here(peer: Peer, command: str, word: str) -> None:
    assert word in peer.refusal("run_shell", command=command)


def test_interrupt_stops_the_run_and_keeps_variables(peer: Peer) -> None:
    run_id = run_id_of(peer.call("run_python", code="z = 7\nimport time\ntime.sleep(60)", background=True))
    assert "still running" in peer.text("read_output", run_id=run_id, wait_s=0.3)
    assert peer.text("interrupt") == "interrupted"
    assert "interrupted" in peer.refusal("read_output", run_id=run_id, wait_s=30)
    assert peer.text("run_python", code="z") == "7"
    assert peer.text("interrupt") == "nothing was running"


def test_a_time_limit_stops_the_run(peer: Peer) -> None:
    started = time.monotonic()
    words = peer.refusal("run_python", code="import time; time.sleep(50)", timeout_s=0.5)
    assert "time limit 0.5 s reached" in words and "Fix: a larger timeout_s." in words, words
    assert "exit status" not in words and "raise the" not in words
    assert time.monotonic() - started < 30


def test_progress_comes_while_it_runs_and_only_if_wanted(peer: Peer) -> None:
    code = "import time\nfor i in range(4):\n    print('step', i, flush=True)\n    time.sleep(0.25)"
    peer.call("run_python", code=code)
    assert not peer.notes
    peer.call("run_python", _meta={"progressToken": "p"}, code=code)
    notes = [note["params"] for note in peer.notes]
    assert all(note["progressToken"] == "p" for note in notes) and any("step" in note["message"] for note in notes)
    numbers = [note["progress"] for note in notes]
    assert numbers == sorted(set(numbers)) and len(numbers) >= 2


def test_a_client_that_takes_tasks_gets_one_for_long_work(service: Service) -> None:
    peer = HttpPeer(service, MODERN)
    meta = modern_meta(extensions={TASKS: {}})
    arguments = {"code": "import time; time.sleep(1); print('slept'); 5", "background": True}
    created = peer.result("tools/call", {"name": "run_python", "arguments": arguments}, meta=meta)
    assert created["resultType"] == "task" and created["status"] == "working", created
    task = {"taskId": created["taskId"]}
    assert peer.request("tasks/get", task)["error"]["code"] == -32021
    deadline = time.monotonic() + 60
    while (state := peer.result("tasks/get", task, meta=meta))["status"] == "working":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert state["status"] == "completed" and state["result"]["content"][0]["text"] == "slept\n5"
    assert peer.request("tasks/get", {"taskId": "default.x.1"}, meta=meta)["error"]["code"] == -32602
    arguments["code"] = "time.sleep(60)"
    again = peer.result("tools/call", {"name": "run_python", "arguments": arguments}, meta=meta)
    peer.result("tasks/cancel", {"taskId": again["taskId"]}, meta=meta)
    while (state := peer.result("tasks/get", {"taskId": again["taskId"]}, meta=meta))["status"] == "working":
        assert time.monotonic() < deadline
    assert state["status"] == "cancelled"


def test_versions_are_negotiated(service: Service) -> None:
    peer = HttpPeer(service)
    for asked, given in (("2025-06-18", "2025-06-18"), (LEGACY, LEGACY), ("2024-11-05", LEGACY), ("x", LEGACY)):
        hello = {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        assert peer.result("initialize", hello)["protocolVersion"] == given
    assert MODERN in HttpPeer(service, MODERN).hello["supportedVersions"]
