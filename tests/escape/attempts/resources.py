"""Resources: taking more than the box was given. Each has a box of its own with small limits."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import threading
import time

from kit import CONFIG, attempt, blocked, describe, escaped, no_tool, read_text

MIB = 1 << 20
LIMITED = {"memory": "128m"}


def child_takes(action: object, seconds: float = 60) -> str:
    """Runs a greedy action in a child: 'all' if it got everything, else how it was stopped."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()  # type: ignore[operator]
            status = 0
        except (MemoryError, OSError):
            status = 2
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            if os.WIFSIGNALED(status):
                return "killed by " + signal.Signals(os.WTERMSIG(status)).name
            return {0: "all", 2: "refused"}.get(os.WEXITSTATUS(status), "failed")
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError("the greedy child did not end")


def judge_greed(got: str, what: str) -> None:
    if got == "all":
        escaped(f"got {what}")
    if got == "failed":
        raise RuntimeError("the greedy child failed by itself")
    blocked(f"{what}: {got}")


def touch(size: int) -> bytearray:
    block = bytearray(size)
    for offset in range(0, size, 4096):
        block[offset] = 1
    return block


@attempt("resources", "take more memory than given", promise="R34 D2", weak="host", box=LIMITED)
def take_memory() -> None:
    def greedy() -> None:
        kept = [touch(16 * MIB) for _ in range(24)]
        assert kept

    judge_greed(child_takes(greedy), "384 MiB of 128")


@attempt("resources", "take memory as a nameless file", promise="R34", weak="host", box=LIMITED)
def take_memfd() -> None:
    def greedy() -> None:
        descriptor = os.memfd_create("greedy")
        for _ in range(24):
            os.write(descriptor, b"x" * (16 * MIB))

    judge_greed(child_takes(greedy), "384 MiB of 128")


@attempt("resources", "take memory by many processes", promise="R34", weak="host", box=LIMITED)
def take_memory_together() -> None:
    def greedy() -> None:
        children = []
        for _ in range(6):
            child = os.fork()
            if child == 0:
                kept = touch(64 * MIB)
                time.sleep(3)
                os._exit(0 if kept else 1)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            raise MemoryError

    judge_greed(child_takes(greedy), "6 x 64 MiB of 128")


@attempt("resources", "take memory through System V", promise="R34", weak="host", box=LIMITED)
def take_shm() -> None:
    import ctypes

    from kit import call, libc

    def greedy() -> None:
        segment = call("shmget", 0, 384 * MIB, 0o1600)
        libc.shmat.restype = ctypes.c_void_p
        address = libc.shmat(segment, None, 0)
        call_rmid(segment)
        ctypes.memset(address, 1, 384 * MIB)

    def call_rmid(segment: int) -> None:
        libc.shmctl(segment, 0, None)

    judge_greed(child_takes(greedy), "384 MiB of 128")


@attempt("resources", "lock much memory", promise="R34", weak="-: the host bounds it too", box=LIMITED)
def lock_memory() -> None:
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if hard == resource.RLIM_INFINITY or hard > 64 * MIB:
        escaped(f"{hard} bytes may be locked")
    blocked(f"{hard} bytes may be locked")


def fill(place: str, size: int) -> str:
    """Writes until refused; gives how it was refused, or 'all'."""
    path = os.path.join(place, f"fill-{os.getpid()}")
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    written = 0
    try:
        while written < size:
            written += os.write(descriptor, b"x" * MIB)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        return f"{describe(error)} after {written // MIB} MiB"
    finally:
        os.close(descriptor)
        os.unlink(path)
    return "all"


@attempt("resources", "fill tmp", promise="R34", weak="host", box={"tmp_size": "16m"})
def fill_tmp() -> None:
    judge_greed(fill("/tmp", 64 * MIB), "64 MiB in /tmp of 16")


@attempt("resources", "fill the shared memory directory", promise="R34", weak="host", box={})
def fill_shm() -> None:
    if not os.path.isdir("/dev/shm"):
        no_tool("there is no /dev/shm")
    judge_greed(fill("/dev/shm", 200 * MIB), "200 MiB in /dev/shm")


@attempt("resources", "fill the workspace with one file", promise="R34", weak="host", box={"disk": "16m"})
def fill_workspace() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    judge_greed(fill(CONFIG["workspace"], 64 * MIB), "64 MiB in the workspace of 16")


@attempt("resources", "fill the workspace with many files", promise="R34", weak="host", box={"disk": "16m"})
def fill_workspace_files() -> None:
    made = []
    try:
        for number in range(64):
            path = os.path.join(CONFIG["workspace"], f"piece-{number}")
            made.append(path)
            with open(path, "wb") as stream:
                stream.write(b"x" * MIB)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        blocked(f"{describe(error)} after {len(made)} MiB")
    finally:
        for path in made:
            if os.path.exists(path):
                os.unlink(path)
    escaped("64 files of 1 MiB in a workspace of 16 MiB")


@attempt("resources", "make a file longer than the disk", promise="R34", weak="host", box={"disk": "16m"})
def long_file() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = os.path.join(CONFIG["workspace"], "long")
    try:
        with open(path, "wb") as stream:
            os.truncate(stream.fileno(), 1 << 34)
            os.pwrite(stream.fileno(), b"x", 1 << 34)
    except OSError as error:
        blocked(describe(error))
    finally:
        if os.path.exists(path):
            os.unlink(path)
    escaped("a file of 16 GiB in a workspace of 16 MiB")


@attempt("resources", "find a writable place without bounds", promise="R34", weak="host", box={})
def unbounded_places() -> None:
    seen = []
    for line in read_text("/proc/self/mountinfo").splitlines():
        place = line.split()[4].replace("\\040", " ")
        kind = line.partition(" - ")[2].split()[0]
        if not os.path.isdir(place) or kind in ("proc", "devpts", "mqueue"):  # what they hold is bounded otherwise
            continue
        path = os.path.join(place, f"probe-{os.getpid()}")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.unlink(path)
        except OSError:
            continue
        status = os.statvfs(place)
        size, files = status.f_blocks * status.f_frsize, status.f_files
        if size > 2048 * MIB or size == 0 or files == 0 or files > 300000:
            escaped(f"{place} holds {size // MIB} MiB and {files} files")
        seen.append(f"{place} {size // MIB} MiB {files} files")
    if not seen:
        no_tool("nothing can be written")
    blocked(", ".join(seen))


@attempt("resources", "make endless empty files in tmp", promise="R34", weak="host", box={}, seconds=120)
def endless_files() -> None:
    top, count = f"/tmp/files-{os.getpid()}", 0
    os.mkdir(top)
    try:
        for count in range(120000):
            if count % 2000 == 0:
                os.mkdir(f"{top}/{count // 2000}")
            os.close(os.open(f"{top}/{count // 2000}/{count}", os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        blocked(f"{describe(error)} after {count} files")
    finally:
        import shutil

        shutil.rmtree(top, ignore_errors=True)
    escaped(f"{count} files")


@attempt("resources", "fork without end", promise="R34", weak="host", box={"pids": "30"})
def fork_without_end() -> None:
    children = []
    try:
        for _ in range(90):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError as error:
        blocked(f"{describe(error)} after {len(children)}")
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    escaped("90 processes of 30")


@attempt("resources", "start threads without end", promise="R34", weak="host", box={"pids": "30"})
def threads_without_end() -> None:
    stop, threads = threading.Event(), []
    try:
        for _ in range(90):
            thread = threading.Thread(target=stop.wait)
            thread.start()
            threads.append(thread)
    except RuntimeError as error:
        blocked(f"{error} after {len(threads)}")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    escaped("90 threads of 30")


@attempt("resources", "explode in a fork bomb", promise="R34 R40", weak="-: would hurt the host it is shown on",
         box={"pids": "40", "timeout": "3", "leftover": True}, only="glovebox")  # fmt: skip
def fork_bomb() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)


@attempt("resources", "use more processor time than given", promise="R34 D2", weak="host", box={"cpus": "0.2"})
def burn() -> None:
    def spin(end: float) -> None:
        while time.monotonic() < end:
            pass

    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = []
    for _ in range(12):  # many, to get a share of a busy machine as well
        child = os.fork()
        if child == 0:
            spin(begin + 3)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    share = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / (time.monotonic() - begin)
    if share > 0.6:
        escaped(f"{share:.2f} processors of 0.2")
    blocked(f"{share:.2f} processors of 0.2")


@attempt("resources", "open files without end", promise="R34", weak="-: the host bounds it too", box={})
def open_without_end() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    descriptors = []
    try:
        for _ in range(20000):
            descriptors.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        blocked(f"{describe(error)} after {len(descriptors)}")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    escaped("20000 open files")


@attempt("resources", "flood the output", promise="R34", weak="-: Glovebox's own bound", box={"json": True},
         only="glovebox")  # fmt: skip
def flood_output() -> None:
    piece = b"y" * 65535 + b"\n"
    for _ in range(1600):
        sys.stdout.buffer.write(piece)
        sys.stderr.buffer.write(piece)
    sys.stdout.flush()
    blocked("200 MiB written; the host decides")
