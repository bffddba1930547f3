"""What one run promises: its value, its output, its errors, and a kernel that is there for the next one."""

from __future__ import annotations

import json
import os
import signal
import struct
import sys

import pytest

from kernel_process import ANSWER, CONTEXT, EXECUTE, PIECE, PING, PONG, REPEATED, RESULT, KernelProcess


def test_last_expression_is_the_result_and_variables_stay(kernel: KernelProcess) -> None:
    assert kernel.value("x = 6\nx * 7") == "42"
    assert kernel.value("x") == "6"
    assert kernel.run("y = 1")["result"] is None
    assert kernel.run("x;")["result"] is None
    assert kernel.run("")["status"] == "ok"
    assert kernel.run("# nothing")["result"] is None


def test_ready_comes_first_and_ping_returns_its_bytes(kernel: KernelProcess) -> None:
    assert kernel.ready["protocol"] == 2
    assert kernel.ready["pid"] == kernel.process.pid
    kernel.send(PING, b"\x00\xffraw")
    assert kernel.wait_for(PONG) == b"\x00\xffraw"


def test_all_output_is_in_the_pipes_when_the_result_arrives(kernel: KernelProcess) -> None:
    code = """
import sys, os, ctypes, subprocess
sys.stdout.write("python ")
sys.stdout.buffer.write(b"binary ")
sys.stdout.flush()
os.write(1, b"descriptor ")
ctypes.CDLL(None).printf(b"libc ")
sys.stderr.write("wrong")
"""
    assert kernel.run(code)["status"] == "ok"
    assert sorted(kernel.out.split()) == ["binary", "descriptor", "libc", "python"]
    assert kernel.err == "wrong"
    kernel.run("import subprocess; _ = subprocess.run(['echo', 'child'])")
    assert kernel.out == "child\n"


def test_lines_arrive_while_the_code_runs_also_after_a_flood(kernel: KernelProcess) -> None:
    code = """
import time
print("first")
for number in range(5000): print("line", number)
print("last before the wait")
while True: time.sleep(60)
"""
    kernel.start(code)
    kernel.wait_for_output("last before the wait\n")
    kernel.interrupt()
    assert kernel.finish()["status"] == "interrupted"
    assert kernel.out.startswith("first\nline 0\n")
    assert len(kernel.out.splitlines()) == 5002


def test_a_host_name_that_cannot_be_resolved_gives_a_hint_about_the_network(kernel: KernelProcess) -> None:
    kernel.run("import os, socket\nos.environ.pop('https_proxy', None)")
    code = (
        "try:\n    raise socket.gaierror(-3, 'no')\nexcept OSError as error:\n    raise ValueError('outer') from error"
    )
    error = kernel.run(code)["error"]
    assert error["value"] == "outer" and "--allow-host HOST" in error["traceback"].splitlines()[-1]
    kernel.run("os.environ['https_proxy'] = 'http://127.0.0.1:1'")
    assert "only through the proxy" in kernel.run(code)["error"]["traceback"].splitlines()[-1]
    assert "[this box" not in kernel.run("1 / 0")["error"]["traceback"]


def test_traceback_shows_the_users_lines_only(kernel: KernelProcess) -> None:
    kernel.run("def divide(a, b):\n    return a / b  # here")
    error = kernel.run("x = 1\ndivide(x, 0)")["error"]
    assert error["name"] == "ZeroDivisionError"
    assert error["value"] == "division by zero"
    assert 'File "<cell 2>", line 2, in <module>\n    divide(x, 0)' in error["traceback"]
    assert "return a / b  # here" in error["traceback"]
    assert "glovebox_kernel" not in error["traceback"]


def test_chained_exceptions_and_syntax_errors_are_shown_in_full(kernel: KernelProcess) -> None:
    error = kernel.run("try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('outer') from e")["error"]
    assert "KeyError: 'k'" in error["traceback"]
    assert "direct cause" in error["traceback"]
    error = kernel.run("x = (1 +\ny = = 2")["error"]
    assert error["name"] == "SyntaxError"
    assert "^" in error["traceback"]
    assert "<cell 2>" in error["traceback"]
    assert kernel.run("a\0b")["status"] == "error"
    if sys.version_info >= (3, 11):
        error = kernel.run("raise ExceptionGroup('many', [ValueError('one'), TypeError('two')])")["error"]
        assert "ValueError: one" in error["traceback"]
        assert "TypeError: two" in error["traceback"]


def test_a_cell_that_is_one_call_is_a_cell_like_any_other(kernel: KernelProcess) -> None:
    assert kernel.value("len('abc')") == "3"
    assert "print(1 2)" in kernel.run("print(1 2)")["error"]["traceback"]
    assert kernel.run(" print(1)")["error"]["name"] == "IndentationError"
    assert kernel.run("assert(0 == 1)")["error"]["name"] == "AssertionError"
    error = kernel.run("int('x')")["error"]
    assert "in <module>\n    int('x')\n" in error["traceback"]
    kernel.run("async def g(a):\n    return a")
    assert kernel.value("(await g(5))") == "5"
    assert kernel.value("await(g(6))") == "6"


def test_deep_recursion_is_an_error_of_the_run(kernel: KernelProcess) -> None:
    error = kernel.run("def f(): return f()\nf()")["error"]
    assert error["name"] == "RecursionError"
    assert len(error["traceback"]) < 20_000
    assert kernel.value("1 + 1") == "2"


@pytest.mark.parametrize(
    ("code", "exit_code", "message"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('the reason')", 1, "the reason\n"),
        ("exit(4)", 4, ""),
    ],
)
def test_sys_exit_ends_the_run_and_not_the_kernel(
    kernel: KernelProcess, code: str, exit_code: int, message: str
) -> None:
    kernel.run("kept = 1")
    result = kernel.run(code)
    assert (result["status"], result["exit_code"], result["error"]) == ("exit", exit_code, None)
    assert kernel.err == message
    assert kernel.value("kept") == "1"


def test_os_exit_and_crash_end_the_process_with_its_output_kept(kernel: KernelProcess) -> None:
    kernel.start("import os\nfor i in range(3000): print(i)\nos._exit(7)")
    with pytest.raises(EOFError):
        kernel.finish()
    assert kernel.wait_end() == 7
    assert kernel.out.endswith("2999\n")


def test_segfault_is_seen_as_the_signal_it_is(kernel: KernelProcess) -> None:
    kernel.start("import ctypes\nprint('before', flush=True)\nctypes.string_at(0)")
    with pytest.raises(EOFError):
        kernel.finish()
    assert kernel.wait_end() == -signal.SIGSEGV
    assert kernel.out == "before\n"


def test_input_fails_at_once_with_the_reason(kernel: KernelProcess) -> None:
    for code in ("input('name? ')", "import sys; sys.stdin.readline()", "import sys; next(sys.stdin)"):
        error = kernel.run(code)["error"]
        assert error["name"] == "InputError"
        assert "no one is there to answer" in error["value"]
    assert kernel.value("import subprocess; subprocess.run(['cat'], capture_output=True).stdout") == "b''"


def test_top_level_await_works_and_tasks_go_on_in_the_next_cell(kernel: KernelProcess) -> None:
    assert kernel.value("import asyncio\nawait asyncio.sleep(0, 'done')") == "'done'"
    assert kernel.value("async def g():\n    return 1\nawait g()") == "1"
    assert kernel.value("asyncio.run(g())") == "1"
    kernel.value("async def later():\n    return 9\nt = asyncio.ensure_future(later())\nawait asyncio.sleep(0)")
    assert kernel.value("await t") == "9"
    error = kernel.run("async def bad():\n    raise ValueError('inside')\nawait bad()")["error"]
    assert "base_events" not in error["traceback"]
    assert "raise ValueError('inside')" in error["traceback"]


def test_interrupt_stops_the_run_and_keeps_the_variables(kernel: KernelProcess) -> None:
    kernel.start("n = 0\nprint('go', flush=True)\nwhile True: n += 1")
    kernel.wait_for_output("go")
    kernel.interrupt()
    result = kernel.finish()
    assert result["status"] == "interrupted"
    assert result["exit_code"] == 130
    assert int(kernel.value("n")) >= 0
    kernel.start("import asyncio\nprint('go')\nawait asyncio.sleep(600)")
    kernel.wait_for_output("go")
    kernel.interrupt()
    assert kernel.finish()["status"] == "interrupted"


def test_signal_storm_between_and_during_runs_never_ends_the_kernel(kernel: KernelProcess) -> None:
    kernel.run("kept = 'yes'")
    for _ in range(200):
        kernel.interrupt()
    assert kernel.value("kept") == "'yes'"
    for number in range(30):
        kernel.start(f"x{number} = 1")
        for _ in range(10):
            kernel.interrupt()
        assert kernel.finish()["status"] in ("ok", "interrupted")
    assert kernel.value("kept") == "'yes'"


def test_interrupt_works_again_after_code_that_ignored_it(kernel: KernelProcess) -> None:
    kernel.run("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)")
    kernel.run("_ = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])")
    kernel.interrupt()
    assert kernel.value("1") == "1"
    kernel.start("print('go')\nwhile True: pass")
    kernel.wait_for_output("go")
    kernel.interrupt()
    assert kernel.finish()["status"] == "interrupted"


def test_classes_of_cells_can_be_pickled_and_sent_to_processes(kernel: KernelProcess) -> None:
    code = """
import pickle, multiprocessing
class Point:
    def __init__(self, x): self.x = x
def double(p): return Point(p.x * 2)
again = pickle.loads(pickle.dumps(Point(4)))
with multiprocessing.get_context("fork").Pool(1) as pool:
    far = pool.map(double, [Point(1), Point(2)])
again.x, [p.x for p in far], __name__
"""
    assert kernel.value(code) == "(4, [2, 4], '__main__')"


def test_a_forked_child_that_returns_does_not_answer_for_the_kernel(kernel: KernelProcess) -> None:
    code = """
import os, sys
print("once")
pid = os.fork()
if pid == 0:
    display("from the child")
    sys.exit(5)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
    assert kernel.value(code) == "5"
    assert kernel.out == "once\n'from the child'\n"
    assert kernel.displays == []


def test_a_failed_run_lets_go_of_its_data(kernel: KernelProcess) -> None:
    code = """
import gc, weakref
gc.disable()
class Big: pass
def fail(how):
    global ref
    big = Big()
    ref = weakref.ref(big)
    raise how
"""
    kernel.run(code)
    for failure in ("ValueError", "SystemExit", "KeyboardInterrupt"):
        assert kernel.run(f"fail({failure})")["status"] != "ok"
        assert kernel.value("ref() is None") == "True"


def test_closing_stdout_does_not_outlast_the_run(kernel: KernelProcess) -> None:
    kernel.run("import sys, os; sys.stdout.close(); os.close(1)")
    assert kernel.run("print('back')")["status"] == "ok"
    assert kernel.out == "back\n"


def test_future_imports_carry_over_but_the_kernels_own_do_not_leak(kernel: KernelProcess) -> None:
    assert kernel.run("def f(x: undefined_name): pass")["status"] == "error"
    assert kernel.run("from __future__ import annotations")["status"] == "ok"
    assert kernel.run("def f(x: undefined_name): pass")["status"] == "ok"


def test_contexts_are_apart(kernel: KernelProcess) -> None:
    assert kernel.request(CONTEXT, op="new", name="other")["contexts"] == ["default", "other"]
    kernel.run("x = 'default'")
    kernel.run("x = 'other'\nclass C: pass", context="other")
    assert kernel.value("x") == "'default'"
    assert kernel.value(
        "x, type(__import__('pickle').loads(__import__('pickle').dumps(C()))) is C", context="other"
    ) == ("('other', True)")
    assert kernel.request(CONTEXT, op="drop", name="other")["ok"]
    kernel.send(EXECUTE, json.dumps({"id": 99, "code": "1", "context": "other"}).encode())
    answer = kernel.wait_for(ANSWER)
    assert not answer["ok"]
    assert "there is no context 'other'" in answer["error"]


def test_malformed_requests_are_refused_and_the_kernel_goes_on(kernel: KernelProcess) -> None:
    for kind, payload in ((EXECUTE, b"{"), (EXECUTE, b"[]"), (EXECUTE, b'{"id":1}'), (77, b"{}"), (CONTEXT, b"\xff")):
        kernel.send(kind, payload)
        answer = kernel.wait_for(ANSWER)
        assert answer["ok"] is False
        assert answer["error"]
    assert kernel.value("1 + 1") == "2"


def test_a_frame_out_of_step_ends_the_kernel_with_a_reason(kernel: KernelProcess) -> None:
    os.write(kernel.requests_fd, b"\xff" * 64)
    assert kernel.wait_end() == 76
    assert "out of step" in kernel.err


def test_closing_the_channel_ends_the_kernel(kernel: KernelProcess) -> None:
    kernel.close_requests()
    assert kernel.wait_end() == 0


def pieces(kind: int, payload: bytes, size: int = 4000) -> list[bytes]:
    return [
        struct.pack("<III", len(payload), at, kind) + payload[at : at + size] for at in range(0, len(payload), size)
    ]


def test_a_repeated_request_is_not_executed_again(kernel: KernelProcess) -> None:
    """A host that takes over from another does not know whether its last request arrived."""
    kernel.run("x = 0")
    request = json.dumps({"id": "run-1", "code": "x += 1; x"}).encode()
    for _ in range(3):
        kernel.send(EXECUTE, request)
    assert kernel.wait_for(RESULT)["result"] == {"text/plain": "1"}
    assert [kernel.wait_for(REPEATED) for _ in range(2)] == [b"run-1"] * 2
    new = json.dumps({"id": "ask-1", "op": "new", "name": "other"}).encode()
    for _ in range(2):
        kernel.send(CONTEXT, new)
    assert kernel.wait_for(ANSWER)["ok"] is True
    assert kernel.wait_for(REPEATED) == b"ask-1"
    kernel.send(EXECUTE, request)  # another was in between: this is no repetition
    assert kernel.wait_for(RESULT)["result"] == {"text/plain": "2"}


def test_a_frame_in_pieces_is_whole_and_one_that_was_broken_off_is_forgotten(kernel: KernelProcess) -> None:
    payload = json.dumps({"id": "large", "code": "len('" + "y" * 50000 + "')"}).encode()
    half = pieces(EXECUTE, payload)[:5]
    for piece in [*half, *pieces(EXECUTE, payload)]:
        kernel.send(PIECE, piece)
    assert kernel.wait_for(RESULT)["result"] == {"text/plain": "50000"}
    for piece in half:
        kernel.send(PIECE, piece)
    assert kernel.value("6 * 7") == "42"
    kernel.send(PIECE, pieces(EXECUTE, payload)[3])  # not the first: out of step
    with pytest.raises(EOFError):
        kernel.wait_for(RESULT)
