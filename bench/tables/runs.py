"""`glovebox run` as people call it: processes of the command line beside a daemon, and plain python3 without a box."""

from __future__ import annotations

from collections.abc import Callable

from context import Bench, Daemon
from measure import Bar, Contender, Lazy, Table, take_turns
from peers import python
from peers.command import runner

NAME = "runs"
TITLE = "`glovebox run` as a process, a daemon running"
PRINT = "print(42)"
PANDAS = 'import pandas as pd\nprint(pd.DataFrame({"x": [1, 2, 3]}).shape)'
SHAPE = "(3, 1)"
POOL = 2


class Runs:
    """Calls of the command line beside one daemon."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.daemon: Daemon = bench.daemon(POOL)
        self.client = self.daemon.connect()
        self.directory = bench.scratch / "runs"
        self.directory.mkdir(exist_ok=True)
        self.script = self.directory / "cell.py"
        self.script.write_text(PANDAS)
        self.environment = {key: value for key, value in bench.environment.items() if key != "GLOVEBOX_NO_DAEMON"}

    def wait(self) -> None:
        self.daemon.wait_for_pool(self.client)

    def once(self, words: list[str], expected: str) -> Callable[[], None]:
        command = [str(self.bench.glovebox), "run", "--quiet", "--socket", self.daemon.socket, *words]
        return runner(command, expected, self.environment)

    def stop(self) -> None:
        self.client.close()


def runs(bench: Bench) -> Runs:
    return bench.share("runs", lambda: Runs(bench))


def measure(bench: Bench) -> Table:
    table = Table(NAME, TITLE)
    directory = str(bench.scratch / "runs")
    settings: dict[str, tuple[list[str], str]] = {
        "print(42)": (["-c", PRINT], "42"),
        "bash echo": (["-l", "bash", "-c", "echo 42"], "42"),
        "pandas": (["-c", PANDAS], SHAPE),
        "pandas, --workspace": (["--workspace", directory, "-c", PANDAS], SHAPE),
        "pandas, --data": (["--data", directory, "-c", PANDAS], SHAPE),
        "pandas, -e": (["-e", "MODE=fast", "-c", PANDAS], SHAPE),
        "pandas, arguments": (["-c", PANDAS, "one", "two"], SHAPE),
        "pandas, a script file": ([f"{directory}/cell.py"], SHAPE),
    }
    contenders = []
    for name, (words, expected) in settings.items():

        def make(words: list[str] = words, expected: str = expected) -> Callable[[], None]:
            return runs(bench).once(words, expected)

        contenders.append(Contender(f"run, {name}", Lazy(make), "ours", before=lambda: runs(bench).wait()))
    for name, code in {"print(42)": PRINT, "pandas": PANDAS}.items():

        def make_json(code: str = code) -> Callable[[], None]:
            once = runs(bench).once(["--json", "-c", code], "")
            return lambda: _ignore_output(once)

        contenders.append(Contender(f"run --json, {name}", Lazy(make_json), "ours", before=lambda: runs(bench).wait()))
    plain = python.environment(bench)
    contenders.append(Contender("python3, no box, print(42)", Lazy(lambda: runner(python.command(PRINT), "42", plain))))
    contenders.append(
        Contender("python3, no box, pandas", Lazy(lambda: runner(python.command(PANDAS), SHAPE, plain)), every=4)
    )
    table.bars = [
        Bar("run, print(42)", "faster", 4, "python3, no box, print(42)"),
        Bar("run, pandas", "faster", 50, "python3, no box, pandas"),
        Bar("run --json, print(42)", "within", 1.3, "run, print(42)"),
        Bar("run --json, pandas", "within", 1.3, "run, pandas"),
        Bar("run, bash echo", "within", 1.5, "run, print(42)"),
        *(
            Bar(f"run, {name}", "faster", 30, "python3, no box, pandas")
            for name in settings
            if name.startswith("pandas,")
        ),
    ]
    take_turns(table, contenders, bench.rounds(40, 10))
    return table


def _ignore_output(once: Callable[[], None]) -> None:
    """The JSON text is not compared: ids and times differ."""
    try:
        once()
    except RuntimeError as error:
        if '"exit_code":0' not in str(error) and "status 0" not in str(error):
            raise
