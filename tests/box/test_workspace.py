"""The workspace and the files of a run: their owner, which of them are artifacts, and what hostile code can do."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.glovebox import Glovebox

SECRET = "the host's own\n"


def artifacts(result: dict) -> list[str]:
    return [item["path"].removeprefix("/workspace/artifacts/") for item in result["artifacts"]]


@pytest.mark.vm
def test_files_belong_to_the_owner_of_the_workspace(glovebox: Glovebox) -> None:
    workspace = glovebox.place.make("workspace")
    code = "import os; os.mkdir('d'); open('d/f', 'w'); os.symlink('f', 'd/l'); os.mkfifo('d/p')"
    done = glovebox("run", "--workspace", workspace, "-c", code)
    assert done.returncode == 0, done.stderr
    for path in (workspace / "d", *(workspace / "d").iterdir()):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (workspace.stat().st_uid, workspace.stat().st_gid), path


def test_a_file_in_the_place_of_a_directory_is_refused_with_what_to_write_instead(glovebox: Glovebox) -> None:
    table = glovebox.place.make("files") / "table.csv"
    table.write_text("a,b\n")
    for option in ("--data", "--workspace"):
        done = glovebox("run", option, table, "-c", "1")
        assert done.returncode == 2 and f"{option}: {table} is not a directory" in done.stderr, done.stderr
        done = glovebox("run", option, f"{table}/", "-c", "1")
        assert done.returncode == 2 and done.stderr.endswith(f"{option}: {table}/ is not a directory\n"), done.stderr
    wrong = glovebox("run", "--data", table, "-c", "1")
    advice = wrong.stderr.strip().rpartition(": ")[2]
    assert advice == f"--mount {table}:/data/table.csv"
    done = glovebox("run", *advice.split(), "-c", "print(open('/data/table.csv').read(), end='')")
    assert done.stdout == "a,b\n", done.stderr


@pytest.mark.vm
def test_root_writes_as_the_owner_of_another_users_workspace(root_glovebox: Glovebox) -> None:
    workspace = root_glovebox.place.make("workspace")
    os.chown(workspace, 12345, 23456)
    other = root_glovebox.place.write("workspace/other", "root's")
    code = "open('mine', 'w'); print(open('other').read(), end=''); open('other', 'a')"
    done = root_glovebox("run", "--workspace", workspace, "-c", code)
    assert (done.returncode, done.stdout) == (1, "root's") and "PermissionError" in done.stderr, done
    made = (workspace / "mine").stat()
    assert (made.st_uid, made.st_gid, other.read_text()) == (12345, 23456, "root's")


def test_workspace_without_a_name_is_gone_afterwards(glovebox: Glovebox) -> None:
    assert glovebox("run", "-c", "open('/workspace/f', 'w').write('x')").returncode == 0
    assert glovebox("run", "-l", "bash", "-c", "ls /workspace; ls /workspace/artifacts").stdout == "artifacts\n"


def test_only_new_and_changed_files_are_artifacts(glovebox: Glovebox) -> None:
    workspace = glovebox.place.make("workspace")
    directory = glovebox.place.make("workspace/artifacts")
    for name in ("kept", "rewritten", "renamed", "deleted"):
        glovebox.place.write(f"workspace/artifacts/{name}", "as it was")
    code = """if True:
        import os
        os.chdir("artifacts")
        before = os.stat("rewritten")
        with open("rewritten", "w") as file:
            file.write("as IT was")  # same size, and the times put back
        os.utime("rewritten", ns=(before.st_atime_ns, before.st_mtime_ns))
        os.rename("renamed", "moved")
        os.unlink("deleted")
        os.makedirs("a/b")
        open("a/b/new.csv", "w").write("1,2")
        open("../outside", "w")
        print(open("kept").read())
    """
    result = glovebox.json("--workspace", workspace, "-c", code)
    assert artifacts(result) == ["a/b/new.csv", "moved", "rewritten"], result
    first = result["artifacts"][0]
    assert (first["size"], first["mime"], first["host_path"]) == (3, "text/csv", str(directory / "a/b/new.csv"))


def test_artifacts_of_an_empty_workspace_are_kept(glovebox: Glovebox) -> None:
    done = glovebox("run", "-c", "open('artifacts/plot.png', 'wb').write(b'PNG')")
    path = Path(done.stderr.removeprefix("glovebox: artifact ").strip())
    assert path.read_bytes() == b"PNG" and path.stat().st_uid == glovebox.place.uid
    assert path.parent.parent == glovebox.place.data / "outputs"


def test_output_directory_gets_the_artifacts_again_and_again(glovebox: Glovebox) -> None:
    out = glovebox.place.path / "out"
    for content in ("first", "second"):
        result = glovebox.json("--output-dir", out, "-c", f"open('artifacts/f', 'w').write('{content}')")
        assert [item["host_path"] for item in result["artifacts"]] == [str(out / "f")], result
        assert (out / "f").read_text() == content
    assert not (glovebox.place.data / "outputs").exists()


def test_link_in_the_output_directory_is_replaced_and_not_followed(glovebox: Glovebox) -> None:
    out = glovebox.place.make("out")
    target = glovebox.place.write("target", SECRET)
    (out / "f").symlink_to(target)
    assert glovebox("run", "--output-dir", out, "-c", "open('artifacts/f', 'w').write('x')").returncode == 0
    assert target.read_text() == SECRET and not (out / "f").is_symlink()


def test_unused_artifacts_directory_is_taken_away_again(glovebox: Glovebox) -> None:
    workspace = glovebox.place.make("workspace")
    assert glovebox("run", "--workspace", workspace, "-c", "pass").returncode == 0
    assert os.listdir(workspace) == []


@pytest.mark.parametrize("named", [True, False], ids=["workspace", "empty"])
def test_links_fifos_and_sockets_are_no_artifacts(glovebox: Glovebox, named: bool) -> None:
    """Nothing is followed and nothing hangs, with a workspace of the host and with an empty one."""
    secret = glovebox.place.write("secret", SECRET)
    code = f"""if True:
        import os, socket
        os.chdir("artifacts")
        for name, target in [("l", "{secret}"), ("e", "/etc/passwd"), ("up", "../../.."), ("fd", "/proc/self/fd")]:
            os.symlink(target, name)
        os.mkfifo("fifo")
        socket.socket(socket.AF_UNIX).bind("socket")
        open("real", "w").write("x")
    """
    words = ["--workspace", glovebox.place.make("workspace")] if named else []
    result = glovebox.json(*words, "-c", code)
    assert artifacts(result) == ["real"], result
    assert SECRET not in (Path(result["artifacts"][0]["host_path"])).read_text()


def test_artifacts_directory_swapped_for_a_link_leads_nowhere(glovebox: Glovebox) -> None:
    outside = glovebox.place.make("outside")
    glovebox.place.write("outside/f", SECRET)
    workspace = glovebox.place.make("workspace")
    code = f"import os; os.rmdir('artifacts'); os.symlink('{outside}', 'artifacts')"
    result = glovebox.json("--workspace", workspace, "-c", code)
    assert (result["exit_code"], result["artifacts"]) == (0, []), result
    out = glovebox.place.path / "out"
    again = glovebox.json("--workspace", workspace, "--output-dir", out, "-c", "pass")
    assert (again["exit_code"], again["artifacts"], out.exists()) == (0, [], False), again
    assert (outside / "f").read_text() == SECRET


def test_sparse_giants_cost_the_host_nothing(glovebox: Glovebox) -> None:
    code = """if True:
        import os
        for name in ("a", "b"):
            with open("artifacts/" + name, "wb") as file:
                file.truncate(600 << 20)
                file.seek(300 << 20)
                file.write(b"middle")
    """
    result = glovebox.json("-c", code)
    assert artifacts(result) == ["a"] and result["artifacts_cut"], "the second is over the limit of 1 GiB in all"
    path = Path(result["artifacts"][0]["host_path"])
    assert path.stat().st_size == 600 << 20 and path.stat().st_blocks * 512 < 10 << 20
    with path.open("rb") as file:
        file.seek(300 << 20)
        assert file.read(7) == b"middle\0"


def test_hostile_names_do_no_harm(glovebox: Glovebox) -> None:
    names = [b"new\nline", b"\x1b[31mred\x07", b"\xff\xfe", b"-rf", b"..x", b"a" * 255, "ü\u202e".encode(), b"\\", b'"']
    code = f"for n in {names}: open(b'artifacts/' + n, 'w').write('x')"
    out = glovebox.place.path / "out"
    done = glovebox("run", "--output-dir", out, "-c", code)
    assert sorted(os.listdir(bytes(out))) == sorted(names)
    assert done.stderr.count("\n") == len(names) and "\x1b" not in done.stderr and "\x07" not in done.stderr
    result = glovebox.json("-c", code)
    assert len(result["artifacts"]) == len(names) and not result["artifacts_cut"]


def test_deep_and_many_artifacts_are_bounded(glovebox: Glovebox) -> None:
    code = """if True:
        import os
        os.chdir("artifacts")
        open("top", "w")
        for _ in range(60):
            os.mkdir("d")
            os.chdir("d")
        open("bottom", "w")
    """
    result = glovebox.json("-c", code)
    assert artifacts(result) == ["top"] and result["artifacts_cut"], result


def test_run_cannot_leave_a_set_user_id_file(glovebox: Glovebox) -> None:
    """It would run as the owner of the workspace, on the host, for any user who finds it."""
    workspace = glovebox.place.make("workspace")
    code = """if True:
        import ctypes, errno, os, stat
        libc = ctypes.CDLL(None, use_errno=True)
        open("f", "w").close()
        fd = os.open("f", os.O_RDWR)
        how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
        ways = {
            "chmod": lambda: os.chmod("f", 0o4755),
            "fchmod": lambda: os.fchmod(fd, 0o2755),
            "fchmodat": lambda: os.chmod("f", 0o6755, dir_fd=os.open(".", os.O_RDONLY)),
            "open": lambda: os.open("g", os.O_CREAT | os.O_WRONLY, 0o4755),
            "tmpfile": lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755),
            "mknod": lambda: os.mknod("h", 0o4755 | stat.S_IFREG),
        }
        for name, way in ways.items():
            try:
                way()
                print(name, "worked")
            except PermissionError:
                pass
        for name, call in {
            "fchmodat2": lambda: libc.syscall(452, -100, b"f", 0o4755, 0),
            "openat2": lambda: libc.syscall(437, -100, b"i", how, 24),
            "creat": lambda: libc.syscall(85, b"j", 0o4755),
        }.items():
            if call() >= 0:
                print(name, "worked")
        os.chmod("f", 0o755)
        os.close(os.open("k", os.O_CREAT | os.O_WRONLY, 0o755))
        print("tried")
    """
    done = glovebox("run", "--workspace", workspace, "-c", code)
    assert done.stdout == "tried\n", done
    for path in workspace.iterdir():
        assert not path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID), path


def test_workspace_that_is_missing_or_no_directory_is_refused(glovebox: Glovebox) -> None:
    file = glovebox.place.write("file", "x")
    missing = glovebox("run", "--workspace", glovebox.place.path / "missing", "-c", "pass")
    assert missing.returncode == 125 and "does not exist; create it first" in missing.stderr, missing.stderr
    assert not (glovebox.place.path / "missing").exists()
    wrong = glovebox("run", "--workspace", file, "-c", "pass")
    assert wrong.returncode == 2 and "is not a directory" in wrong.stderr, wrong.stderr
