"""Output reaches the caller byte for byte, in bounded memory, whatever the program or the reader does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from support.glovebox import Glovebox, slowness
from support.host_count import count_host, left_behind

KEPT = 1 << 20


def to_file(glovebox: Glovebox, path: Path | str, *words: str) -> tuple[int, str]:
    """Exit status and standard error of a run whose output goes to a file of the host."""
    with open(path, "wb") as sink, glovebox.popen("run", *words, stdout=sink) as process:
        assert process.stderr
        said = process.stderr.read()
        return process.wait(60 * slowness()), said


def test_bytes_pass_through_unchanged(glovebox: Glovebox) -> None:
    path = glovebox.place.path / "out"
    code = "import os; os.write(1, bytes(range(256)) * 4096)"
    assert to_file(glovebox, path, "-c", code) == (0, "")
    assert path.read_bytes() == bytes(range(256)) * 4096


def test_json_survives_bytes_that_are_no_text(glovebox: Glovebox) -> None:
    code = "import os; os.write(1, b'a\\xff\\xfe\\0\\x1b[31m\\xc3'); os.write(2, b'\\xed\\xa0\\x80')"
    result = glovebox.json("-c", code)
    assert result["stdout"].startswith("a\ufffd") and "\0\x1b[31m" in result["stdout"], result["stdout"]
    assert "\ufffd" in result["stderr"]


def test_flood_is_cut_and_counted_in_bounded_memory(glovebox: Glovebox) -> None:
    """glovebox itself gets 100 MB of address space; the program writes 300 MB and must not be the wiser."""
    size = 300_000_000
    prlimit = Glovebox(Path("/usr/bin/prlimit"), glovebox.place, glovebox.groups)
    words = ["run", "--json", "--", "sh", "-c", f"head -c {size} /dev/zero && echo done >&2"]
    done = prlimit("--as=100000000", "--", glovebox.binary, *words, timeout=120)
    result = json.loads(done.stdout)
    assert (result["exit_code"], result["stderr"]) == (0, "done\n"), done.stderr
    assert len(result["stdout"]) == KEPT and result["stdout_cut_bytes"] == size - KEPT


def test_run_ends_quietly_when_its_output_has_no_reader(glovebox: Glovebox) -> None:
    before = count_host(glovebox)
    with glovebox.popen("run", "-c", "while True: print('x' * 1000)") as process:
        assert process.stdout and process.stderr
        assert process.stdout.read(5) == "xxxxx"
        process.stdout.close()
        assert process.wait(60 * slowness()) == 128 + signal.SIGPIPE
        assert process.stderr.read() == "", "the program lived to see its pipe closed"
    assert left_behind(glovebox, before) == {}


def test_slow_reader_gets_everything(glovebox: Glovebox) -> None:
    with glovebox.popen("run", "-c", "print('y' * 500_000)") as process:
        assert process.stdout
        total = 0
        while chunk := process.stdout.read(100_000):
            total += len(chunk)
        assert (total, process.wait(60 * slowness())) == (500_001, 0)


def test_interrupt_ends_a_run_whose_output_is_not_read(glovebox: Glovebox) -> None:
    """The pipe is full and stays open: neither the program nor the relay can write another byte."""
    with glovebox.popen("run", "-c", "while True: print('x' * 1000)") as process:
        assert process.stdout
        assert process.stdout.read(1) == "x"
        process.send_signal(signal.SIGINT)
        assert process.wait(60 * slowness()) == 130


def test_full_disk_is_an_error_and_not_a_broken_pipe(glovebox: Glovebox) -> None:
    status, said = to_file(glovebox, "/dev/full", "-c", "print('x')")
    assert status == 125 and "No space left on device" in said, said
    status, said = to_file(glovebox, "/dev/full", "--json", "-c", "print('x')")
    assert status == 125 and "No space left on device" in said, said


def test_artifacts_that_do_not_fit_are_an_error_and_leave_nothing(root_glovebox: Glovebox) -> None:
    """The data directory is a small tmpfs, in a mount namespace of its own."""
    data = root_glovebox.place.data
    code = "open('artifacts/a', 'w').write('fits'); open('artifacts/big', 'wb').write(bytes(1 << 20))"
    script = 'mount -t tmpfs -o size=256k,mode=700 none "$1" && { "$0" run -c "$2"; echo $?; ls "$1"/outputs; }'
    command = ["/usr/bin/unshare", "-m", "sh", "-c", script, str(root_glovebox.binary), str(data), code]
    environment = root_glovebox.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "No space left on device" in done.stderr and "artifacts/big" in done.stderr, done
    assert done.stdout == "125\n", done.stdout


def test_standard_descriptors_of_the_caller_are_left_as_they_were(glovebox: Glovebox) -> None:
    """A program that leaves a shell's terminal non-blocking breaks it."""
    read_fd, write_fd = os.pipe()
    with glovebox.popen("run", "--", "cat", stdin=read_fd) as process:
        os.write(write_fd, b"hello\n")
        os.close(write_fd)
        assert process.wait(60 * slowness()) == 0
    assert os.get_blocking(read_fd)
    os.close(read_fd)
