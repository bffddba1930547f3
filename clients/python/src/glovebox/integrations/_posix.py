"""Files as a program in the sandbox sees them, for adapters whose frameworks want POSIX rules and Python's own errors.

`sandbox.files` goes past permissions and replaces links. Here a shell in the box checks or writes, with the rights that
code in the box has, so a file without read permission raises PermissionError and a write goes through a link.
"""

from __future__ import annotations

import errno
import os
import posixpath
from typing import NoReturn

from .. import AsyncSandbox
from ..errors import FileMissingError
from ..models import CommandResult

WORKSPACE = "/workspace"
REQUEST_MAX = 512 << 10  # longer argument lists travel in a file: the daemon takes requests of at most 1 MiB
USER_REQUEST_MAX = 96 << 10  # and commands as another user of at most 128 KiB

# The exit status of these scripts is an errno, 0 or one of _ERRNOS.
_ERRNOS = (errno.ENOENT, errno.EACCES, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)
_WHY_NO_PARENT = """
why_no_parent() {
    while [ ! -e "$1" ]; do set -- "${1%/*}"; [ -n "$1" ] || set -- /; done
    [ -d "$1" ] || exit 20
    [ -w "$1" ] && [ -x "$1" ] || exit 13
    exit 5
}
"""
_CHECK_READ = """
[ -d "$1" ] && exit 21
[ -e "$1" ] || exit 2
[ -f "$1" ] || exit 22
[ -r "$1" ] || exit 13
realpath -- "$1"
"""
_WRITE = f"""{_WHY_NO_PARENT}
[ -d "$1" ] && exit 21
parent=${{1%/*}}
mkdir -p -- "${{parent:-/}}" 2>/dev/null || why_no_parent "$parent"
[ ! -e "$1" ] || [ -w "$1" ] || exit 13
[ -e "$1" ] || [ -w "${{parent:-/}}" ] || exit 13
cat > "$1"
"""
_MAKE_DIR = f"""{_WHY_NO_PARENT}
[ -d "$1" ] && exit 0
[ -e "$1" ] && exit 17
mkdir -p -- "$1" 2>/dev/null || why_no_parent "$1"
"""
_REMOVE = """
[ -e "$1" ] || [ -L "$1" ] || exit 2
rm -rf -- "$1" || { [ -w "${1%/*}/" ] || exit 13; exit 5; }
"""
_DESCRIBE = r"""
describe() {
    if [ -d "$1" ]; then printf 'd - %s\0' "$1"
    elif [ -f "$1" ]; then printf 'f %s %s\0' "$(stat -L -c %s -- "$1")" "$1"
    else printf 'o - %s\0' "$1"; fi
}
"""
_STAT = f"""{_DESCRIBE}
[ -e "$1" ] || exit 2
describe "$1"
"""
_LIST = f"""{_DESCRIBE}
[ -e "$1" ] || exit 2
[ -d "$1" ] || exit 20
[ -r "$1" ] && [ -x "$1" ] || exit 13
for path in "${{1%/}}"/* "${{1%/}}"/.[!.]* "${{1%/}}"/..?*; do
    [ -e "$path" ] || [ -L "$path" ] || continue
    describe "$path"
done
"""
_REALPATH = 'realpath -m -- "$1"'
_EXEC_FROM_FILE = """
import os, sys
with open(sys.argv[1], "rb") as file:
    words = file.read().split(b"\\0")
try:
    os.unlink(sys.argv[1])
except PermissionError:  # another user runs this
    pass
try:
    os.execvp(words[0], words)
except OSError as error:
    sys.stderr.write(f"{words[0].decode(errors='replace')}: {error.strerror}\\n")
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
"""


def absolute(path: str) -> str:
    """Relative paths count from the workspace. `..` stays: after a link, only the box can resolve it."""
    return path if path.startswith("/") else f"{WORKSPACE}/{path}"


def raise_os_error(number: int, path: str, words: str = "") -> NoReturn:
    raise OSError(number, words or os.strerror(number), path)


async def read_bytes(sandbox: AsyncSandbox, path: str, limit: int | None = None) -> bytes | None:
    """The content of a regular file. None: it is larger than the limit."""
    real = await _run(sandbox, _CHECK_READ, path)
    size = None if limit is None else limit + 1
    try:
        content = b"".join([piece async for piece in sandbox.files.read_pieces(real[:-1], size=size)])
    except FileMissingError:
        raise_os_error(errno.ENOENT, path)
    return None if limit is not None and len(content) > limit else content


async def write_bytes(sandbox: AsyncSandbox, path: str, content: bytes) -> None:
    """Writes a file, through a link if it is one, and makes the directories above it."""
    await _run(sandbox, _WRITE, path, content)


async def make_dir(sandbox: AsyncSandbox, path: str) -> None:
    await _run(sandbox, _MAKE_DIR, posixpath.normpath(absolute(path)))


async def remove(sandbox: AsyncSandbox, path: str) -> None:
    """Removes a file, a link itself, or a directory with all that is in it."""
    await _run(sandbox, _REMOVE, path)


async def stat(sandbox: AsyncSandbox, path: str) -> tuple[str, bool, int | None]:
    """The path, whether it is a directory, and the size of a regular file. Links are followed."""
    return _entries(await _run(sandbox, _STAT, path))[0]


async def list_dir(sandbox: AsyncSandbox, path: str) -> list[tuple[str, bool, int | None]]:
    """What is in a directory, as `stat` describes it, by name; the SDK's own directory is left out."""
    found = _entries(await _run(sandbox, _LIST, path))
    return sorted(entry for entry in found if entry[0] != WORKSPACE + "/.glovebox")


async def realpath(sandbox: AsyncSandbox, path: str) -> str:
    """The path without links; names that are not there stay. A loop of links raises OSError."""
    return (await _run(sandbox, _REALPATH, path))[:-1]


def _entries(text: str) -> list[tuple[str, bool, int | None]]:
    entries = []
    for line in text.split("\0")[:-1]:
        kind, size, path = line.split(" ", 2)
        entries.append((path, kind == "d", int(size) if size.isdigit() else None))
    return entries


async def _run(sandbox: AsyncSandbox, script: str, path: str, stdin: bytes | None = None) -> str:
    if "\0" in path:
        raise ValueError("a path has no NUL character")
    argv = ["sh", "-c", script, "sh", absolute(path)]
    done = await sandbox.commands.run(argv, stdin=stdin, check=False, cwd="/")
    if done.exit_code:
        known = done.exit_code in _ERRNOS and done.status == "error"
        words = "" if known else (done.error or done.stderr).strip()
        raise_os_error(done.exit_code if known else errno.EIO, path, words)
    return done.stdout


async def run_argv(
    sandbox: AsyncSandbox, argv: list[str], *, stdin: str | bytes | None = None, cwd: str | None = None,
    env: dict[str, str] | None = None, timeout: float | None = None, user: str | None = None,
) -> CommandResult:  # fmt: skip
    """Runs a program with arguments that may be longer in all than a request to the daemon."""
    if any("\0" in word for word in argv):
        raise ValueError("an argument has no NUL character")
    if sum(len(word) for word in argv) > (REQUEST_MAX if user is None else USER_REQUEST_MAX):
        if user is None:
            path = f"{WORKSPACE}/.glovebox/argv-{os.urandom(8).hex()}"
            await sandbox.files.write(path, "\0".join(argv))
        else:  # where all users read it
            path = f"/tmp/.glovebox-argv-{os.urandom(8).hex()}"
            await write_bytes(sandbox, path, "\0".join(argv).encode())
        argv = ["python3", "-c", _EXEC_FROM_FILE, path]
    return await sandbox.commands.run(argv, stdin=stdin, cwd=cwd, env=env, timeout=timeout, check=False, user=user)
