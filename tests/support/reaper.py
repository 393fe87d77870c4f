"""Ends what a test process leaves when it is killed: processes that name one of its directories, and the directories.

Fixtures take their meshes down, but not after SIGKILL, not when faulthandler ends a process that hangs, and not in a
process of pytest-xdist that needs more than 10 s after an interrupt: xdist then kills it. The reaper is a process that
is no child of the tests; it waits for the end of the test process and exits at once if no directory is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

#: What processes may take to end after SIGTERM: a keeper ends its launches and daemons, and removes their files.
_GRACE_S = 10.0
_STEP_S = 0.05
_to_reaper: dict[int, int] = {}  # by pid: a fork has to start a reaper of its own


def private_directory(prefix: str, parent: str = "/tmp") -> Path:
    """Make a directory that, when this process has ended, is removed together with the processes that name it."""
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    watch(made)
    return made


def watch(path: Path) -> None:
    """Have a directory or a control group removed when this process has ended."""
    if os.getpid() not in _to_reaper:
        _to_reaper[os.getpid()] = _start()
    os.write(_to_reaper[os.getpid()], f"{path}\n".encode())


def _start() -> int:
    words = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    read, write = os.pipe()
    # Not in our group, which gets the signals of a terminal; without our environment, by which it would find itself.
    none = subprocess.DEVNULL
    subprocess.run(words, stdin=read, stdout=none, stderr=none, env={}, cwd="/", start_new_session=True, check=True)
    os.close(read)
    return write


class _Left:
    """The processes that a test process has left; those that were found once are known even without their parents."""

    def __init__(self, directories: Iterable[str]) -> None:
        self._names = [os.fsencode(directory) for directory in directories]
        self._known: dict[int, bytes] = {}  # pid and start time
        self.groups: set[str] = set()  # their launches' control groups

    def find(self) -> list[int]:
        """Return the processes whose environment or command line names a directory, and their descendants."""
        processes = {int(entry): stat for entry in os.listdir("/proc") if entry.isdigit() and (stat := _stat(entry))}
        self._known = {pid: at for pid, at in self._known.items() if pid in processes and processes[pid][1] == at}
        found = {pid for pid in processes if pid in self._known or self._is_named_by(pid)}
        more = found
        while more:
            more = {pid for pid, (parent, _) in processes.items() if parent in more} - found
            found |= more
        found.discard(os.getpid())
        self._known = {pid: processes[pid][1] for pid in found}
        for pid in found:
            self._note_group(pid)
        return sorted(found)

    def _note_group(self, pid: int) -> None:
        with contextlib.suppress(OSError):  # it has exited
            group = Path(f"/proc/{pid}/cgroup").read_text().rpartition("0::")[2].strip()
            if "/redmesh-launch-" in group:
                self.groups |= {f"{mounted}{group}" for mounted in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")}

    def _is_named_by(self, pid: int) -> bool:
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):  # it has exited, or is another user's
                data = Path(f"/proc/{pid}/{name}").read_bytes()
                if any(directory in data for directory in self._names):
                    return True
        return False


def _stat(pid: str) -> tuple[int, bytes] | None:
    """Return the parent and the start time of a process; None if it has exited."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), fields[19])


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _reap(paths: list[str]) -> None:
    paths = [path for path in paths if os.path.lexists(path)]
    if not paths:
        return
    left = _Left(paths)
    _signal(left.find(), signal.SIGTERM)
    until = time.monotonic() + _GRACE_S
    while left.find() and time.monotonic() < until:
        time.sleep(_STEP_S)  # poll: they are no children of this process
    while found := left.find():
        _signal(found, signal.SIGKILL)
        time.sleep(_STEP_S)  # poll: a keeper may have started another process meanwhile
    for path in (*paths, *left.groups):
        shutil.rmtree(path, ignore_errors=True)  # its rmdir removes control groups too


def _main(pid: int) -> None:
    watched = os.pidfd_open(pid)
    if os.fork():
        os._exit(0)
    lines = b""
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(0, select.POLLIN)
    ended = False
    while not ended:
        ready = dict(poll.poll())
        ended = watched in ready
        if 0 in ready:
            data = os.read(0, 1 << 16)
            lines += data
            if not data:
                poll.unregister(0)
    _reap(lines.decode(errors="surrogateescape").splitlines())


if __name__ == "__main__":
    _main(int(sys.argv[1]))
