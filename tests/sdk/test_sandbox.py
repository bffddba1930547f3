"""Sandboxes by the Python package: making, finding and ending them; code and its results."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import warnings
from typing import Any

import pytest
from glovebox import (
    AsyncSandbox,
    AuthenticationError,
    CodeError,
    DaemonUnavailableError,
    EndEvent,
    ErrorEvent,
    Execution,
    InvalidArgumentError,
    LimitError,
    ResultEvent,
    Sandbox,
    SandboxClosedError,
    SandboxExistsError,
    SandboxNotFoundError,
    StartEvent,
    StderrEvent,
    StdoutEvent,
    UnsupportedError,
    run,
)
from support.daemon import Daemon, wait_for
from support.glovebox import REPOSITORY
from support.service import Service

Where = dict[str, Any]


def names(where: Where) -> list[str]:
    return [info.name for info in Sandbox.list(**where)]


def test_variables_stay_and_the_last_expression_is_the_text(sandbox: Sandbox) -> None:
    assert sandbox.run_code("x = 41").text is None
    execution = sandbox.run_code("x + 1")
    assert (execution.text, execution.status, execution.exit_code, execution.error) == ("42", "ok", 0, None)
    assert execution and execution.results[0].is_main_result and execution.execution_count == 2
    assert str(execution) == "42"


def test_an_execution_carries_all_that_is_known(sandbox: Sandbox) -> None:
    code = "import sys\nprint('out'); print('err', file=sys.stderr)\nopen('artifacts/a.txt', 'w').write('x')"
    execution = sandbox.run_code(code)
    assert (execution.stdout, execution.stderr) == ("out\n", "err\n")
    assert execution.logs.stdout == ["out\n"] and execution.logs.stderr == ["err\n"]
    assert [(artifact.name, artifact.size) for artifact in execution.artifacts] == [("a.txt", 1)]
    assert execution.isolation["no_new_privs"] is True and execution.isolation["network"] == "none"
    assert execution.duration_ms >= 0 and execution.run_id and execution.usage.cpu_ms >= 0
    assert execution.to_dict()["stdout"] == "out\n" and '"status": "ok"' in execution.to_json()


def test_code_that_fails_is_a_result_and_raises_when_asked(sandbox: Sandbox) -> None:
    execution = sandbox.run_code("1 / 0")
    assert not execution and execution.status == "error" and execution.error
    assert (execution.error.name, execution.error.value) == ("ZeroDivisionError", "division by zero")
    assert "1 / 0" in execution.error.traceback
    with pytest.raises(CodeError, match="ZeroDivisionError") as raised:
        execution.raise_for_error()
    assert raised.value.execution is execution
    assert sandbox.run_code("1").raise_for_error().text == "1"


def test_a_time_limit_interrupts_and_variables_stay(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 1")
    execution = sandbox.run_code("while True: pass", timeout=0.2)
    assert execution.status == "timeout" and execution.error and "time limit 0.2 s" in execution.error.value
    assert sandbox.run_code("x").text == "1"


def test_environment_of_one_run_is_gone_after_it(sandbox: Sandbox) -> None:
    assert sandbox.run_code("import os; os.environ['A']", env={"A": "b"}).text == "'b'"
    assert sandbox.run_code("os.environ.get('A', 'none')").text == "'none'"
    with pytest.raises(InvalidArgumentError, match="str"):
        sandbox.run_code("1", env={"A": 1})  # type: ignore[dict-item]


def test_callbacks_get_what_comes_as_it_comes(sandbox: Sandbox) -> None:
    received: list[tuple[str, Any]] = []
    sandbox.run_code(
        "import sys\nprint('a')\nprint('b', file=sys.stderr)\ndisplay(5)\n7",
        on_stdout=lambda text: received.append(("out", text)),
        on_stderr=lambda text: received.append(("err", text)),
        on_result=lambda result: received.append(("result", result.text)),
    )
    assert sorted(received) == sorted([("out", "a\n"), ("err", "b\n"), ("result", "5"), ("result", "7")])
    errors: list[str] = []
    sandbox.run_code("nope", on_error=lambda error: errors.append(error.name))
    assert errors == ["NameError"]


def test_output_comes_while_the_code_runs(sandbox: Sandbox) -> None:
    at: list[float] = []
    sandbox.run_code("import time\nprint(1, flush=True); time.sleep(0.5)", on_stdout=lambda _: at.append(time.time()))
    assert time.time() - at[0] > 0.3


def test_a_stream_is_typed_events_and_ends_with_the_execution(sandbox: Sandbox) -> None:
    events = list(sandbox.stream("import sys\nprint(1)\nprint(2, file=sys.stderr)\ndisplay('d')\n3"))
    kinds = [type(event) for event in events]
    assert kinds[0] is StartEvent and kinds[-1] is EndEvent
    assert {StdoutEvent, StderrEvent, ResultEvent} <= set(kinds)
    end = events[-1]
    assert isinstance(end, EndEvent) and end.execution.text == "3" and end.execution.stdout == "1\n"
    failed = list(sandbox.stream("oops"))
    assert any(isinstance(event, ErrorEvent) and event.error.name == "NameError" for event in failed)


def test_a_stream_that_is_closed_early_interrupts_its_run(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 5")
    with sandbox.stream("print('on', flush=True)\nwhile True: pass") as events:
        for event in events:
            if isinstance(event, StdoutEvent):
                break
    assert sandbox.run_code("x", timeout=20).text == "5"


def test_text_arrives_whole_whatever_the_pieces(sandbox: Sandbox) -> None:
    code = "import os, time\nfor byte in 'äöü€𝄞'.encode(): os.write(1, bytes([byte])); time.sleep(0.005)"
    assert sandbox.run_code(code).stdout == "äöü€𝄞"
    assert "\ufffd" in sandbox.run_code("import os; os.write(1, b'\\xff\\xfe')").stdout


def test_large_code_and_large_output(sandbox: Sandbox, where: Where) -> None:
    assert sandbox.run_code(f"x = {'a' * 1_200_000!r}\nlen(x)").text == "1200000"
    longer = f"x = {'a' * 3_000_000!r}\nlen(x)"
    if "socket" in where:
        assert sandbox.run_code(longer).text == "3000000"
    else:
        with pytest.raises(LimitError, match="put it into a file"):
            sandbox.run_code(longer)
    assert len(sandbox.run_code("print('y' * 4_000_000)").stdout) == 4_000_001


@pytest.mark.parametrize("kind", [Sandbox, AsyncSandbox])
def test_the_class_itself_says_how_a_sandbox_is_made(kind: Any) -> None:
    """Older versions of E2B's package were called so."""
    wrong: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), {}), (("python3",), {}), ((), {"timeout": 300})]
    for words, options in wrong:
        with pytest.raises(TypeError, match=rf"{kind.__name__}\.create\(…\) makes one"):
            kind(*words, **options)


def test_create_list_connect_kill(where: Where) -> None:
    made = Sandbox.create("keeper", memory="256m", timeout=7, env={"HELLO": "world"}, **where)
    try:
        assert "keeper" in names(where)
        info = made.info()
        assert (info.name, info.limits.memory_bytes, info.limits.timeout) == ("keeper", 256 << 20, 7)
        with Sandbox.connect("keeper", **where) as found:
            assert found.run_code("import os; os.environ['HELLO']").text == "'world'"
            assert found.id == made.id
        assert "keeper" in names(where), "a with block keeps what it connected to"
        assert Sandbox.connect(made.id, **where).name == "keeper"
        with pytest.raises(SandboxExistsError, match="connect"):
            Sandbox.create("keeper", **where)
        with warnings.catch_warnings(record=True) as received:
            warnings.simplefilter("always")
            assert Sandbox.create("keeper", exist_ok=True, memory="1g", **where).id == made.id
        assert "memory" in str(received[0].message)
        metrics = made.metrics()
        assert metrics.memory_limit_bytes == 256 << 20 and metrics.state in ("idle", "running", "new")
        made.run_code("sum(i * i for i in range(3_000_000))")
        assert made.metrics().cpu_ms > 20 and made.metrics().memory_bytes > 1 << 20
    finally:
        assert made.kill()
    assert not made.kill() and "keeper" not in names(where)
    with pytest.raises(SandboxNotFoundError, match=r"Sandbox\.create"):
        Sandbox.connect("keeper", **where)


def test_a_with_block_ends_what_it_created(where: Where) -> None:
    with Sandbox.create("brief", **where) as made:
        assert made.is_running()
    assert "brief" not in names(where)
    with pytest.raises(SandboxClosedError, match=r"Sandbox\.create\(\)"):
        made.run_code("1")
    with pytest.raises(SandboxClosedError):
        made.files.read("x")


def test_a_box_that_another_process_killed_is_not_made_again(where: Where) -> None:
    made = Sandbox.create("shared", **where)
    Sandbox.connect("shared", **where).kill()
    for use in (
        lambda: made.run_code("1"),
        lambda: made.commands.run("true"),
        lambda: made.files.write("a", "b"),
        lambda: made.files.list(),
        lambda: list(made.stream("1")),
        made.info,
    ):
        with pytest.raises(SandboxClosedError):
            use()
    assert not made.is_running() and "shared" not in names(where)


def test_a_nameless_sandbox_ends_with_its_object(where: Where) -> None:
    made = Sandbox.create(**where)
    name = made.name
    made.files.write("a", "b")
    assert name in names(where)
    del made
    gc.collect()
    assert name not in names(where)


def test_a_nameless_sandbox_ends_with_the_program_and_a_named_one_stays(where: Where) -> None:
    code = (
        f"from glovebox import Sandbox; a = Sandbox.create(**{where!r}); b = Sandbox.create('stays', **{where!r})\n"
        "import os\n"
        "if os.fork() == 0: raise SystemExit  # a child must not take it along\n"
        "os.wait(); assert a.is_running(); print(a.run_code('6*7').text)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"PYTHONPATH": str(REPOSITORY / "clients/python/src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("42\n", "")
    assert names(where) == ["stays"]
    Sandbox.connect("stays", **where).kill()


def test_hibernate_restart_interrupt(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 1")
    assert sandbox.hibernate() == "asleep" and sandbox.info().state == "asleep"
    assert sandbox.run_code("x").text == "1"
    assert sandbox.interrupt() is False
    sandbox.restart()
    assert "NameError" in str(sandbox.run_code("x"))
    assert sandbox.isolation()["engine"] == "native"


def test_wrong_options_are_refused_with_advice(where: Where) -> None:
    with pytest.raises(UnsupportedError, match="native"):
        Sandbox.create(engine="firecracker", **where)
    with pytest.raises(InvalidArgumentError, match="SOURCE:DESTINATION"):
        Sandbox.create(mounts=["/tmp"], **where)
    with pytest.raises(InvalidArgumentError):
        Sandbox.create(memory="lots", **where)
    with pytest.raises(InvalidArgumentError):
        Sandbox.create("a name with spaces", **where)
    with pytest.raises(InvalidArgumentError, match="code is text"), Sandbox.create(**where) as made:
        made.run_code(b"1")  # type: ignore[arg-type]


def test_an_ephemeral_run_leaves_nothing(where: Where) -> None:
    before = names(where)
    execution = run("print('hi'); 6 * 7", **where)
    assert (execution.stdout, execution.text) == ("hi\n", "42")
    assert run("raise SystemExit(3)", **where).exit_code == 3
    code = "import atexit, os\natexit.register(print, 'bye')\nprint(os.environ['A'], end=' ')"
    told = run(code, env={"A": "b"}, memory="256m", timeout=20, **where)
    assert told.stdout == "b bye\n", "it ends as a program"
    assert names(where) == before


def test_notebooks_get_tables_and_figures(sandbox: Sandbox) -> None:
    code = "class T:\n    def _repr_html_(self): return '<table></table>'\nT()"
    bundle = sandbox.run_code(code)._repr_mimebundle_()
    assert bundle["text/html"] == "<table></table>" and "text/plain" in bundle
    both = sandbox.run_code("print('<b>')\nT()")._repr_mimebundle_()
    assert "<pre>&lt;b&gt;\n</pre>" in both["text/html"] and "<table></table>" in both["text/html"]
    result = sandbox.run_code("T()").results[0]
    assert result.formats() == ["text", "html"] and result["html"] == result.html == "<table></table>"
    assert sandbox.run_code("1")._repr_mimebundle_() == {"text/plain": "1"}


def test_a_wrong_key_and_no_key_say_so(service: Service) -> None:
    url = f"http://127.0.0.1:{service.port}"
    for key in ("gb_wrong", None):
        with pytest.raises(AuthenticationError, match="GLOVEBOX_API_KEY"):
            Sandbox.create(url=url, api_key=key)


def test_no_daemon_there_says_how_to_start_one(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DaemonUnavailableError, match="glovebox serve"):
        Sandbox.create(socket="/tmp/no-such-glovebox.sock")
    with pytest.raises(DaemonUnavailableError, match="does it run"):
        Sandbox.create(url="http://127.0.0.1:9")
    monkeypatch.setenv("GLOVEBOX_SOCKET", "/tmp/no-such-glovebox.sock")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("GLOVEBOX_PROGRAM", raising=False)
    with pytest.raises(DaemonUnavailableError, match="pip install glovebox-sandbox-runtime"):
        Sandbox.create()
    with pytest.raises(InvalidArgumentError, match="one of them"):
        Sandbox.create(socket="a", url="http://b")


def test_a_daemon_of_another_version_is_named(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    from glovebox import VersionMismatchError
    from glovebox._sync import transport

    monkeypatch.setattr(transport, "VERSION", "7.3.0")
    with pytest.raises(VersionMismatchError, match="glovebox stop"):
        Sandbox.list(socket=daemon.socket)


def test_a_run_that_waits_can_be_given_up(sandbox: Sandbox) -> None:
    """Closing the stream of a run that has not begun yet: it never begins."""
    with sandbox.stream("import time; time.sleep(1.5)") as first:
        assert isinstance(next(first), StartEvent)
        with sandbox.stream("x = 'ran'") as second:
            assert isinstance(next(second), StartEvent)
        assert isinstance(list(first)[-1], EndEvent)
    execution: Execution = sandbox.run_code("x")
    assert execution.error and execution.error.name == "NameError"


def test_the_process_is_no_child_of_anything_that_waits(start_daemon: Any) -> None:
    """A daemon that goes away for good: the next call says so in time, and does not hang."""
    daemon = start_daemon()
    made = Sandbox.create("lonely", socket=daemon.socket)
    daemon.stop()
    wait_for("the socket to be gone", lambda: daemon.process.poll() is not None)
    from glovebox._sync import unix

    unix.RETURN_S, before = 0.3, unix.RETURN_S
    try:
        with pytest.raises(DaemonUnavailableError):
            made.run_code("1")
    finally:
        unix.RETURN_S = before
