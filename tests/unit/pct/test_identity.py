"""Becoming a user, or ending; whose a directory in the RAM disk is; a processor in one launch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.link.sockets import UnsafeDirectory, own_directory
from agents.pct.errors import LoadFailed
from agents.pct.multiuser.processor_lock import ProcessorLock
from agents.pct.multiuser.prolog_epilog import take_owed, write_owed
from agents.pct.multiuser.system_mode import users_of

ROOT = Path(__file__).parents[3]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="chown and user namespaces need root")
#: Run in a user namespace that knows all groups and uid 0 alone: setgroups and setgid work, setuid fails (EINVAL).
ALONE = """
import ctypes, os, sys
ask, answer = os.pipe(), os.pipe()
child = os.fork()
if child:
    os.close(ask[1])  # so that a child that could not ask is one that has ended
    for kind, count in (("uid", 1), ("gid", 65536)) if os.read(ask[0], 1) else ():
        with open(f"/proc/{child}/{kind}_map", "w") as file:
            file.write(f"0 0 {count}")
    os.write(answer[1], b"x")
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert ctypes.CDLL(None).unshare(0x10000000) == 0  # CLONE_NEWUSER
os.write(ask[1], b"x")
os.read(answer[0], 1)
from agents.pct.multiuser.identity import User
ada = User(21001, 21001, "ada", [21001])
"""


def _alone(script: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([sys.executable, "-P", "-c", ALONE + script], capture_output=True, text=True, cwd=ROOT)
    if "AssertionError" in done.stderr:
        pytest.skip("no user namespaces here")
    return done


@needs_root
def test_who_cannot_become_the_user_raises() -> None:
    done = _alone(
        "try:\n    ada.become()\nexcept Exception as error:\n    print(type(error).__name__, error.message)\n"
    )
    assert done.stdout.startswith("LoadFailed cannot become uid 21001: Invalid"), done.stderr


@needs_root
def test_a_process_that_cannot_be_the_user_again_ends_at_once() -> None:
    done = _alone("ada.as_root(lambda: print('worked', flush=True))\nprint('went on as root')\n")
    assert (done.returncode, done.stdout) == (70, "worked\n"), done.stderr


@needs_root
def test_a_name_in_the_ram_disk_is_believed_only_where_its_owner_is_the_user(tmp_path: Path) -> None:
    for name, uid in (
        ("21001", 21001), ("21002", 21001), ("0", 0), ("00", 21001), ("4294967295", 21001),
        ("\N{SUPERSCRIPT TWO}", 21001), ("", 21001),
    ):  # fmt: skip
        (tmp_path / f"redmesh-programs-{name}").mkdir()
        os.chown(tmp_path / f"redmesh-programs-{name}", uid, uid)
    (tmp_path / "redmesh-programs-21003").symlink_to("/")
    os.chown(tmp_path / "redmesh-programs-21003", 21003, 21003, follow_symlinks=False)
    assert users_of(str(tmp_path)) == [21001]


@needs_root
def test_root_trusts_no_directory_below_one_that_a_user_owns(tmp_path: Path) -> None:
    (tmp_path / "above").mkdir()
    os.chown(tmp_path / "above", 21001, 21001)
    with pytest.raises(UnsafeDirectory):
        own_directory(str(tmp_path / "above" / "run"))
    os.chown(tmp_path / "above", 0, 0)
    own_directory(str(tmp_path / "above" / "run"))
    os.chmod(tmp_path / "above", 0o777)
    with pytest.raises(UnsafeDirectory):
        own_directory(str(tmp_path / "above" / "run"))
    os.chmod(tmp_path / "above", 0o1777)
    own_directory(str(tmp_path / "above" / "run"))


def test_a_processor_is_held_until_the_process_that_holds_it_lets_go_or_dies(tmp_path: Path) -> None:
    path = str(tmp_path / "processors")
    script = "import sys\nfrom agents.pct.multiuser.processor_lock import ProcessorLock as Held\n" \
        "held = Held(sys.argv[1], 'n1', [2, 3])\n" \
        "print('held', flush=True)\nsys.stdin.readline()\nheld.release()\nprint('let go', flush=True)\n" \
        "held = Held(sys.argv[1], 'n1', [2, 3])\nprint('held', flush=True)\nsys.stdin.readline()\n"  # fmt: skip
    command = [sys.executable, "-P", "-c", script, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        assert other.stdin is not None and other.stdout is not None
        try:
            assert other.stdout.readline() == "held\n"
            with pytest.raises(LoadFailed) as refused:
                ProcessorLock(path, "n1", [1, 2])
            assert refused.value.message == "n1: processor 2 is still in another launch"
            assert refused.value.fault == "node"
            ProcessorLock(path, "n1", [0, 1]).release()  # what was refused holds nothing
            other.stdin.write("\n")
            other.stdin.flush()
            assert [other.stdout.readline() for _ in range(2)] == ["let go\n", "held\n"]
        finally:
            other.kill()
            other.wait()
    ProcessorLock(path, "n1", [1, 2, 3]).release()


def test_an_epilog_is_owed_once(tmp_path: Path) -> None:
    path = str(tmp_path / "epilog-n1-7")
    assert take_owed(path) == -1
    write_owed(path, 21001)
    assert (take_owed(path), take_owed(path)) == (21001, -1)
