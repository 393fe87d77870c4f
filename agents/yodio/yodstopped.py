"""Notices that the process of a task was stopped (SIGSTOP, SIGTSTP, …) or continues, for the job's owner.

It looks every few seconds while a task runs. SIGCHLD would say it at once, and cost each end of a task 50 µs.

Standard library only, Python 3.9. docs/protocol.md *Workers*.
"""

from __future__ import annotations

import time

#: Seconds between two looks.
_EVERY_S = 2.5


class Stops:
    """The stopped process of a worker's task."""

    def __init__(self) -> None:
        self.due = time.monotonic() + _EVERY_S  # when to look again, if a task runs
        self._told = 0

    def news(self, pid: int) -> bool:
        """True if the owner must be told that the process ``pid`` of the present task is stopped, or runs again.

        ``pid``: 0 if there is no task. Call this when ``due``, and at the end of a task.
        """
        self.due = time.monotonic() + _EVERY_S
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
