"""Watches for the exit of processes that are not our children, without polling."""

import os
from typing import Callable, Dict, Tuple

from agents.link.loop import READ, Loop
from agents.linux.processes import alive, is_gone


class ProcessEnds:
    """Calls ``on_end(pid, started)`` once for each watched process, at once if it has already exited."""

    def __init__(self, loop: Loop, on_end: Callable[[int, int], None]) -> None:
        self._loop, self._on_end = loop, on_end
        self._handles: Dict[Tuple[int, int], int] = {}

    def watch(self, pid: int, started: int) -> bool:
        """Watch the process that began at ``started`` (as in /proc/PID/stat).

        Returns False if it cannot be watched now, for example because this process has no descriptor left.
        """
        who = (pid, started)
        if who in self._handles:
            return True
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            handle = -1
        if handle < 0 or not alive(pid, started):  # the pid may belong to another process by now
            if handle >= 0:
                os.close(handle)
            gone = is_gone(pid, started)
            if gone:
                self._loop.after(0, lambda: self._on_end(pid, started))
            return gone
        self._handles[who] = handle
        self._loop.watch(handle, READ, lambda _events: self._ended(who))
        return True

    def _ended(self, who: Tuple[int, int]) -> None:
        handle = self._handles.pop(who)
        self._loop.unwatch(handle)
        os.close(handle)
        self._on_end(*who)
