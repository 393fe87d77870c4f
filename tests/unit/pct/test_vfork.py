"""The list of system calls that a vforked child makes (agents/pct/ranks/vfork.py)."""

import ctypes
import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux import cgroup
from agents.pct.ranks import vfork

pytestmark = pytest.mark.skipif(vfork.RUN_SYSCALLS is None, reason="no vfork by tape on this machine")


def _address(text: bytes) -> tuple[int, ctypes.c_char_p]:
    kept = ctypes.c_char_p(text)
    return ctypes.cast(kept, ctypes.c_void_p).value or 0, kept


class Program:
    """``path`` as the last call of a tape, behind ``calls``; what C points into is kept alive here."""

    def __init__(self, path: bytes, *arguments: bytes, calls: tuple[tuple[int, ...], ...] = ()) -> None:
        where, self._path = _address(path)
        self._argv = (ctypes.c_char_p * (len(arguments) + 2))(path, *arguments, None)
        self._env = (ctypes.c_char_p * 1)(None)
        last = (vfork.EXECVE, where, ctypes.addressof(self._argv), ctypes.addressof(self._env))
        self.tape = vfork.SyscallList([*calls, last])


def _status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_program_runs_and_its_status_comes_back() -> None:
    program = Program(b"/bin/sh", b"-c", b"exit 7")
    for _ in range(3):  # the same list again and again
        pid, failed, number = program.tape.run()
        assert pid > 0 and (failed, number) == (-1, 0)
        assert _status(pid) == 7


def test_calls_happen_in_the_child_alone(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    where, kept = _address(os.fsencode(tmp_path))
    calls = ((vfork.SETSID,), (vfork.DUP2, writer, 1), (vfork.CHDIR, where), (vfork.UMASK, 0o27))
    before = os.getcwd(), os.getsid(0)
    program = Program(b"/bin/sh", b"-c", b"umask; pwd; echo $$; cut -d' ' -f6 /proc/$$/stat", calls=calls)
    pid, _, _ = program.tape.run()
    os.close(writer)
    with open(reader, "rb") as file:
        umask, cwd, own, session = file.read().decode().split()
    assert _status(pid) == 0 and kept.value == os.fsencode(tmp_path)
    assert (umask, cwd, own, session) == ("0027", str(tmp_path), str(pid), str(pid))
    assert (os.getcwd(), os.getsid(0)) == before


def test_the_call_that_fails_is_named_and_the_rest_not_made(tmp_path: Path) -> None:
    where, kept = _address(os.fsencode(tmp_path / "nothing"))
    program = Program(b"/bin/touch", os.fsencode(tmp_path / "made"), calls=((vfork.SETSID,), (vfork.CHDIR, where)))
    for _ in range(2):  # and the list is whole again afterwards
        pid, failed, number = program.tape.run()
        assert (failed, number) == (vfork.CHDIR, errno.ENOENT)
        assert _status(pid) == 126
    assert not (tmp_path / "made").exists() and kept.value


def test_a_failed_exec_leaves_the_parent_as_it_was(tmp_path: Path) -> None:
    secret = [os.urandom(64) for _ in range(200)]
    copies = list(secret)
    plain = tmp_path / "plain"
    plain.write_bytes(b"no program")
    for path, expected in ((b"/no/such/program", errno.ENOENT), (os.fsencode(plain), errno.EACCES)):
        pid, failed, number = Program(path).tape.run()
        assert (failed, number) == (vfork.EXECVE, expected)
        assert _status(pid) == 126
    assert copies == secret and subprocess.run(["/bin/true"]).returncode == 0


def test_signals_that_do_not_have_their_default_action_are_known() -> None:
    old = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert signal.SIGUSR1 in vfork.changed_signals()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert signal.SIGUSR1 in vfork.changed_signals()
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        assert signal.SIGUSR1 not in vfork.changed_signals()
    finally:
        signal.signal(signal.SIGUSR1, old)


@pytest.fixture
def group() -> Iterator[Path]:
    parent = cgroup.parent_directory()
    if not parent:
        pytest.skip("no cgroup v2 to write to")
    path = Path(parent) / f"redmesh-test-{os.getpid()}"
    path.mkdir()
    try:
        yield path
    finally:
        assert cgroup.remove(str(path))


@pytest.mark.parametrize("how", ["vfork", "fork"])
def test_a_process_begins_in_its_control_group(group: Path, how: str) -> None:
    fd = os.open(group, os.O_RDONLY)
    into = vfork.IntoGroup(fd)
    program = Program(b"/bin/sleep", b"60")
    if how == "vfork":
        pid, failed, _ = program.tape.run(into)
        assert failed == -1
    else:
        pid = into.fork()
        if pid == 0:
            signal.pause()
    os.close(fd)
    assert cgroup.members(str(group)) == [pid] and os.getpid() not in cgroup.members(str(group))
    cgroup.kill(str(group))
    assert _status(pid) == -signal.SIGKILL


def test_a_group_that_takes_nobody_is_told(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    into = vfork.IntoGroup(fd)
    program = Program(b"/bin/true")
    assert program.tape.run(into) == (-errno.EBADF, -1, 0)
    assert into.fork() == -errno.EBADF
    os.close(fd)
