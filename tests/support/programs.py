"""Small programs that show what a program can see of its interpreter. Each must do the same however it is run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    name: str
    code: str | bytes
    stdin: bytes = b""  # what it reads
    files: dict[str, str] = field(default_factory=dict)  # beside the script
    needs: str = ""  # the only setting that makes sense: "script", "module"
    plain: bool = True  # plain python3 prints the same


def _program(name: str, code: str | bytes, **options: object) -> Program:
    return Program(name, code, **options)  # type: ignore[arg-type]


PROGRAMS = [
    _program("prints", "print('one'); print('two', end='')"),
    _program(
        "last_expression_is_silent",
        "x = 40\nx + 2\n'text'",
    ),
    _program("argv", "import sys; print(sys.argv[1:], len(sys.argv))"),
    _program("main_name", "print(__name__, __doc__, __package__, __spec__)"),
    _program(
        "main_module",
        "import __main__, sys\nx = 5\nprint(__main__.x, sys.modules['__main__'] is __main__)",
    ),
    _program(
        "main_guard",
        "def main():\n    print('main')\n\nif __name__ == '__main__':\n    main()",
    ),
    _program("namespace", "print(sorted(name for name in globals()))"),
    _program(
        "main_dict",
        "import __main__; print(type(__main__.__loader__).__name__, __main__.__builtins__.__name__)",
    ),
    _program(
        "docstring",
        '"""What it is for."""\nprint(__doc__)',
    ),
    _program("exit_zero", "import sys; print('x'); sys.exit()"),
    _program("exit_number", "import sys; sys.exit(3)"),
    _program("exit_large", "import sys; sys.exit(257)"),
    _program("exit_negative", "import sys; sys.exit(-1)"),
    _program("exit_text", "import sys; sys.exit('a reason')"),
    _program("exit_object", "import sys; sys.exit([1, 2])"),
    _program("exit_raised", "raise SystemExit(4)"),
    _program("exit_builtin", "print('before'); exit(5)"),
    _program("exit_at_once", "import os; print('shown'); os._exit(6)"),
    _program(
        "exit_in_thread",
        "import sys, threading\nt = threading.Thread(target=sys.exit, args=(9,))\nt.start(); t.join()",
    ),
    _program(
        "error",
        "print('before')\ndef f(x):\n    return 1 / x\nf(0)",
    ),
    _program(
        "error_chained",
        "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('why') from e",
    ),
    _program(
        "error_in_context",
        "try:\n    {}['a']\nexcept KeyError:\n    1 / 0",
    ),
    _program("error_group", 'raise ValueError("it\'s\\n two lines")'),
    _program(
        "error_syntax",
        "print('never'\nx =",
    ),
    _program(
        "error_indent",
        "if True:\nprint(1)",
    ),
    _program(
        "error_column",
        "a = {'b': None}\nprint(a['b']['c'] + a['b'])",
    ),
    _program(
        "error_without_newline",
        "x = 1\ny = x + None",
    ),
    _program("error_name", "print(value)"),
    _program("error_import", "import no_such_module_at_all"),
    _program(
        "error_recursion",
        "import sys\n"
        "sys.setrecursionlimit(150)\n"
        "def f():\n"
        "    f()\n"
        "try:\n"
        "    f()\n"
        "except RecursionError as e:\n"
        "    print(type(e).__name__)",
    ),
    _program("error_surrogate", "raise ValueError('\\udc80 \\u20ac')"),
    _program(
        "error_note",
        "e = ValueError('x')\ne.add_note('and this') if hasattr(e, 'add_note') else None\nraise e",
    ),
    _program(
        "excepthook",
        "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t.__name__, v, file=sys.stderr)\n1 / 0",
    ),
    _program(
        "excepthook_fails",
        "import sys\ndef hook(*_):\n    raise KeyError('worse')\nsys.excepthook = hook\n1 / 0",
    ),
    _program(
        "await_is_no_syntax",
        "import asyncio\nawait asyncio.sleep(0)",
    ),
    _program(
        "asyncio_run",
        "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print('ran')\nasyncio.run(main())",
    ),
    _program(
        "atexit",
        "import atexit\natexit.register(print, 'first')\natexit.register(print, 'last')\nprint('body')",
    ),
    _program(
        "atexit_globals",
        "import atexit\nprint('__file__' in globals())\natexit.register(lambda: print(sorted(globals())))",
    ),
    _program(
        "atexit_after_error",
        "import atexit\natexit.register(print, 'still')\nraise RuntimeError('x')",
    ),
    _program(
        "atexit_fails",
        "import atexit\n@atexit.register\ndef f():\n    raise ValueError('late')\nprint('body')",
    ),
    _program(
        "finalizer",
        "class A:\n    def __del__(self):\n        print('gone')\na = A()\nprint('body')",
    ),
    _program(
        "finalizer_in_cycle",
        "class A:\n"
        "    def __del__(self):\n"
        "        print('gone')\n"
        "a = A()\n"
        "a.me = a\n"
        "def f():\n"
        "    return a\n"
        "print('body')",
    ),
    _program(
        "weakref_finalize",
        "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\nprint('body')",
    ),
    _program(
        "unraisable",
        "class A:\n    def __del__(self):\n        raise ValueError('in del')\na = A()\ndel a\nprint('on')",
    ),
    _program(
        "generator_closed",
        "def g():\n    try:\n        yield 1\n    finally:\n        print('closed')\nx = g()\nnext(x)",
    ),
    _program(
        "thread_is_joined",
        "import threading, time\n"
        "def f():\n"
        "    time.sleep(0.05)\n"
        "    print('thread')\n"
        "threading.Thread(target=f).start()\n"
        "print('main')",
    ),
    _program(
        "thread_daemon",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('main')",
    ),
    _program(
        "thread_fails",
        "import threading\n"
        "t = threading.Thread(target=lambda: 1 / 0, name='worker')\n"
        "t.start(); t.join()\n"
        "print('main')",
    ),
    _program(
        "thread_ids",
        "import threading\nprint(threading.current_thread() is threading.main_thread(), threading.active_count())",
    ),
    _program(
        "thread_pool",
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as p:\n"
        "    print(sum(p.map(abs, range(-5, 5))))",
    ),
    _program(
        "fork",
        "import os\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    print('child'); os._exit(7)\n"
        "print('parent', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    ),
    _program(
        "fork_child_falls_off",
        "import os, sys\n"
        "pid = os.fork()\n"
        "if pid:\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "else:\n"
        "    print('child')\n"
        "print('both')",
    ),
    _program(
        "subprocess",
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True))",
    ),
    _program(
        "subprocess_inherits",
        "import subprocess\n"
        "print('before', flush=True)\n"
        "subprocess.run('echo out; echo err >&2', shell=True)\n"
        "print('after')",
    ),
    _program("system", "import os; print(os.system('exit 3') >> 8)"),
    _program(
        "multiprocessing_fork",
        "import multiprocessing as m\n"
        "def f(x):\n"
        "    return x * x\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('fork').Pool(2) as p:\n"
        "        print(p.map(f, [1, 2, 3]))",
    ),
    _program(
        "multiprocessing_spawn",
        "import multiprocessing as m\n"
        "def f(x):\n"
        "    return x * x\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as p:\n"
        "        print(p.map(f, [1, 2, 3]))",
        needs="script",
    ),
    _program(
        "multiprocessing_forkserver",
        "import multiprocessing as m\n"
        "def f(q):\n"
        "    q.put('child ' + __name__)\n"
        "if __name__ == '__main__':\n"
        "    c = m.get_context('forkserver')\n"
        "    q = c.Queue()\n"
        "    p = c.Process(target=f, args=(q,))\n"
        "    p.start(); print(q.get()); p.join(); print(p.exitcode)",
        needs="script",
    ),
    _program(
        "signal_own_handler",
        "import os, signal\n"
        "signal.signal(signal.SIGUSR1, lambda s, f: print('usr1'))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print('on')",
    ),
    _program(
        "signal_default_kills",
        "import os, signal\nprint('before', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)",
    ),
    _program(
        "signal_interrupt",
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)",
    ),
    _program(
        "signal_interrupt_caught",
        "import os, signal, time\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(5)\n"
        "except KeyboardInterrupt:\n"
        "    print('caught')",
    ),
    _program(
        "signal_handlers",
        "import signal\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(sign"
        "al.SIGPIPE), [s.name for s in sorted(signal.valid_signals()) if isinstance(s, signal.Signa"
        "ls) and signal.getsignal(s) not in (signal.SIG_DFL, None)])",
    ),
    _program(
        "signal_alarm",
        "import signal, time\n"
        "signal.signal(signal.SIGALRM, lambda s, f: print('alarm'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
        "time.sleep(0.1)",
    ),
    _program(
        "abort",
        "import os\nprint('before', flush=True)\nos.abort()",
    ),
    _program(
        "segfault",
        "import ctypes\nprint('before', flush=True)\nctypes.string_at(0)",
    ),
    _program(
        "callback_from_c",
        "import ctypes\n"
        "C = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))\n"
        "a = (ctypes.c_int * 3)(3, 1, 2)\n"
        "ctypes.CDLL(None).qsort(a, 3, 4, C(lambda x, y: x[0] - y[0]))\n"
        "print(list(a))",
    ),
    _program(
        "stdin_input",
        "print(input('name? ') + '!')\nprint(input())",
        stdin=b"one\ntwo\n",
    ),
    _program(
        "stdin_end",
        "try:\n    input()\nexcept EOFError as e:\n    print(repr(e))",
    ),
    _program(
        "stdin_lines",
        "import sys\nfor line in sys.stdin:\n    print(repr(line))",
        stdin=b"a\r\nb\nc",
    ),
    _program(
        "stdin_bytes",
        "import sys\nprint(sys.stdin.buffer.read())",
        stdin=bytes(range(256)),
    ),
    _program(
        "stdin_bad_text",
        "import sys\nprint(ascii(sys.stdin.read()))",
        stdin=b"\xff\xfe caf\xc3\xa9\n",
    ),
    _program(
        "stdin_large",
        "import sys\nprint(len(sys.stdin.read()))",
        stdin=b"x" * 300_000,
    ),
    _program(
        "streams",
        "import sys\n"
        "for s in (sys.stdin, sys.stdout, sys.stderr):\n"
        "    print(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.newli"
        "nes, s.isatty(), s.fileno(), s.closed, type(s.buffer).__name__, s is getattr(sys, '__' + s"
        ".name[1:-1] + '__'))",
    ),
    _program(
        "stream_seekable",
        "import sys\nprint(sys.stdin.seekable(), sys.stdout.seekable())",
    ),
    _program(
        "output_order",
        "import sys\nfor i in range(50):\n    print(i)\n    print(i, file=sys.stderr)",
    ),
    _program(
        "output_binary",
        "import sys\nsys.stdout.buffer.write(bytes(range(1, 256)))",
    ),
    _program("output_unicode", "print('h\\xe9llo \\u4f60\\u597d \\U0001f600')"),
    _program("output_surrogate", "print('\\udcff')"),
    _program("output_large", "print('x' * 400_000)"),
    _program(
        "output_by_os",
        "import os\nos.write(1, b'raw\\n')\nprint('text')\nos.write(2, b'err\\n')",
    ),
    _program(
        "output_by_name",
        "import os\nos.system('echo shell >/dev/stderr; echo one | tee /dev/stderr')\n"
        "open('/dev/stdout', 'w').write('out\\n')\nopen('/dev/fd/2', 'w').write('err\\n')",
    ),
    _program(
        "stdin_by_name",
        "print(open('/dev/stdin').read())",
        stdin=b"by name\n",
    ),
    _program(
        "stdout_closed",
        "import sys\nprint('x')\nsys.stdout.close()",
    ),
    _program(
        "stdout_replaced",
        "import io, sys\nsys.stdout = io.StringIO()\nprint('lost')\nsys.stderr.write('kept\\n')",
    ),
    _program(
        "warnings",
        "import warnings\nwarnings.warn('careful')\nwarnings.warn('old', DeprecationWarning)\nprint('on')",
    ),
    _program(
        "warning_as_error",
        "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('now')",
    ),
    _program(
        "resource_warning",
        "f = open('/dev/null')\ndel f\nprint('quiet')",
    ),
    _program(
        "flags",
        "import sys\nprint(sys.flags)",
    ),
    _program(
        "path",
        "import sys\nprint(sys.path[1:3], len(sys.path) == len(set(sys.path)))",
        plain=False,
    ),
    _program(
        "path_first",
        "import sys\nprint(repr(sys.path[0]))",
        plain=False,
    ),
    _program(
        "environment",
        "import os\nprint(sorted((k, v) for k, v in os.environ.items()))",
        plain=False,
    ),
    _program(
        "environment_passed_on",
        "import subprocess\nprint(subprocess.run('env | sort', shell=True, capture_output=True, text=True).stdout)",
        plain=False,
    ),
    _program(
        "process",
        "import os\n"
        "print(os.getpid() == os.getpgrp(), os.getcwd(), os.umask(0), sorted(os.listdir('/proc/self"
        "/fd'))[:3])",
        plain=False,
    ),
    _program("descriptors", "print([open('/dev/null').fileno() for _ in range(3)], open('/dev/null').fileno())"),
    _program(
        "builtins",
        "import builtins\nprint(input is builtins.input, repr(input), repr(exit)[:20], hasattr(builtins, 'display'))",
    ),
    _program("save_and_load", "print(callable(save), callable(load), save.__name__, load.__name__)", plain=False),
    _program(
        "pickle_main",
        "import pickle\nclass A:\n    pass\nprint(pickle.loads(pickle.dumps(A())).__class__ is A)",
    ),
    _program(
        "dataclass",
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class A:\n"
        "    x: int = 1\n"
        "print(A(), __annotations__ if '__annotations__' in globals() else None)",
    ),
    _program(
        "annotations",
        "x: int = 1\nprint(__annotations__)",
    ),
    _program(
        "future",
        "from __future__ import annotations\ndef f(x: nothing): pass\nprint(f.__annotations__)",
    ),
    _program(
        "random_is_new",
        "import random\nrandom.seed(5)\nprint(random.random())",
    ),
    _program(
        "logging",
        "import logging\nlogging.basicConfig()\nlogging.warning('careful %d', 1)\nlogging.getLogger('x').error('bad')",
    ),
    _program(
        "traceback_printed",
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()",
    ),
    _program(
        "inspect_source",
        "import inspect\n"
        "def f():\n"
        "    return 1\n"
        "try:\n"
        "    print(inspect.getsource(f))\n"
        "except OSError as e:\n"
        "    print(e)",
        needs="script",
    ),
    _program("bom", b"\xef\xbb\xbfprint('bom')\n", needs="script"),
    _program("coding_line", b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n", needs="script"),
    _program("coding_unknown", b"# -*- coding: klingon -*-\nprint(1)\n", needs="script"),
    _program("coding_bad_byte", b"print('\xe9')\n", needs="script"),
    _program("crlf", b"if True:\r\n    print('dos')\r\n", needs="script"),
    _program(
        "tabs",
        "if True:\n\tprint('tab')\n",
    ),
    _program(
        "file_name",
        "import os\nprint(os.path.basename(__file__), os.path.isfile(__file__), __cached__)",
        needs="script",
    ),
    _program(
        "neighbour",
        "import helper\nprint(helper.VALUE, helper.__name__)",
        files={"helper.py": "VALUE = 7\n"},
        needs="script",
    ),
    _program(
        "neighbour_package",
        "from pack.inner import value\nprint(value())",
        files={
            "pack/__init__.py": "",
            "pack/inner.py": ("from . import other\ndef value():\n    return other.X\n"),
            "pack/other.py": "X = 8\n",
        },
        needs="script",
    ),
    _program(
        "neighbour_shadows",
        "import calendar\nprint(calendar.MINE)",
        files={"calendar.py": "MINE = 'ours'\n"},
        needs="script",
    ),
    _program(
        "neighbour_shadows_json",
        "import json\nprint(json.MINE)",
        files={"json.py": "MINE = 'ours'\n"},
        needs="script",
    ),
    _program(
        "neighbour_data",
        "import pathlib\nprint((pathlib.Path(__file__).parent / 'data.txt').read_text(), open('data.txt').read())",
        files={"data.txt": "the data"},
        needs="script",
    ),
    _program(
        "neighbour_fails",
        "import broken",
        files={"broken.py": ("x = 1\nraise ValueError('broken')\n")},
        needs="script",
    ),
    _program("relative_import_fails", "from . import helper", files={"helper.py": ""}, needs="script"),
    _program(
        "module",
        "",
        files={"tool.py": ("import sys\nprint(__name__, sys.argv[1:], __spec__.name, __package__)\n")},
        needs="module",
    ),
    _program(
        "module_package",
        "",
        files={
            "tool/__init__.py": "",
            "tool/__main__.py": ("import sys\nprint('package', __name__, __package__)\nsys.exit(2)\n"),
        },
        needs="module",
    ),
    _program(
        "runpy",
        "import runpy\nprint(sorted(k for k in runpy.run_module('this_tool') if not k.startswith('_')))",
        files={"this_tool.py": "a = 1\n"},
        needs="script",
    ),
    _program(
        "code_module",
        "import code\nprint(code.InteractiveInterpreter().runsource('print(5)'))",
    ),
    _program(
        "exec_and_eval",
        "x = 2\nexec('y = x + 1')\nprint(eval('y'), y)",
    ),
    _program(
        "closure_in_main",
        "data = [3, 1]\nprint([x for x in sorted(data) if x in data], (lambda: data)())",
    ),
    _program(
        "sqlite",
        "import sqlite3\nprint(sqlite3.connect(':memory:').execute('select 6 * 7').fetchone())",
    ),
    _program(
        "tempfile",
        "import tempfile, os\nwith tempfile.NamedTemporaryFile() as f:\n    print(os.path.dirname(f.name))",
    ),
    _program(
        "artifact",
        "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/a.txt', 'w').write('kept')",
        plain=False,
    ),
    _program(
        "faulthandler",
        "import faulthandler\nprint(faulthandler.is_enabled())",
    ),
    _program(
        "gc",
        "import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.garbage)",
    ),
    _program(
        "hooks",
        "import sys\n"
        "print(sys.gettrace(), sys.getprofile(), sys.displayhook is sys.__displayhook__, sys.except"
        "hook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__)",
    ),
    _program(
        "limits",
        "import sys\nprint(sys.getrecursionlimit(), sys.getswitchinterval(), sys.maxsize, sys.byteorder)",
    ),
    _program(
        "time_zone",
        "import time\nprint(time.tzname, time.localtime(0)[:5])",
        plain=False,
    ),
]
