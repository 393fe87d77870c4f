"""Notices that the process of a task was stopped (SIGSTOP, SIGTSTP, …) or continues, for the job's owner.

Standard library only, Python 3.9. docs/protocol.md *Workers*.
"""

from __future__ import annotations

import os
import signal
import time

#: Seconds from a change to its message: a short stop (a debugger, ^Z and fg) is no news.
_TELL_S = 2.0
_MOST = 64  # changes that are read at once


class Stops:
    """The stopped process of a worker's task."""

    def __init__(self) -> None:
        reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._reader = reader
        self.due = 0.0  # when to look again (monotonic); 0: no change
        self._told = 0
        signal.signal(signal.SIGCHLD, self._on_child)

    def fileno(self) -> int:
        """The descriptor that becomes readable when a process was stopped, or continues."""
        return self._reader

    def _on_child(self, _number: int, _frame: object) -> None:
        # Each exit of a task causes this signal, too: only other changes wake the worker. They are read from the
        # kernel here, exits are not.
        try:
            for _ in range(_MOST):
                if os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is None:
                    return
                os.write(self._writer, b"c")
        except (ChildProcessError, BlockingIOError):
            pass

    def changed(self) -> None:
        """The descriptor is readable."""
        os.read(self._reader, 4096)
        self.due = self.due or time.monotonic() + _TELL_S

    def news(self, pid: int) -> bool:
        """True if the owner must be told that the process ``pid`` of the present task is stopped, or runs again.

        ``pid``: 0 if there is no task. Call this when ``due``, and at the end of a task."""
        self.due = 0.0
        stopped = pid if pid and _is_stopped(pid) else 0
        news, self._told = stopped != self._told, stopped
        return news

    @property
    def told(self) -> int:
        """The process that is stopped, as the owner knows; 0: none."""
        return self._told


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False
