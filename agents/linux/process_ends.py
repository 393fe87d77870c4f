"""Watches for the exit of processes that are not our children, without polling."""

from __future__ import annotations

import os
import resource

from agents.link.loop import READ, Loop, Timer
from agents.link.user_limits import ALL_CONNECTIONS, OWN_FILES
from agents.linux.processes import alive, is_gone, nearest_ancestor

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

#: Descriptors (pidfds) that one ``ProcessEnds`` takes of those that a daemon reserves for itself.
LEAST = OWN_FILES // 4
#: Seconds between looks at processes for which there is no descriptor.
LOOK_S = 30.0


def most_watched() -> int:
    """How many processes may be watched by a descriptor, so that users' connections and the daemon have theirs."""
    return max(LEAST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - ALL_CONNECTIONS - OWN_FILES)


class ProcessEnds:
    """Calls ``on_end(pid, started)`` once for each watched process, at once if it has already exited.

    A process beyond the ``most`` is looked at every ``look_s`` seconds.
    """

    def __init__(
        self, loop: Loop, on_end: Callable[[int, int], None], most: Optional[int] = None, look_s: float = LOOK_S
    ) -> None:
        self._loop, self._on_end, self._look_s = loop, on_end, look_s
        self._most = most_watched() if most is None else most
        self._handles: Dict[Tuple[int, int], int] = {}
        self._others: Dict[Tuple[int, int], None] = {}  # processes without a descriptor
        self._looks: Optional[Timer] = None

    def watch(self, pid: int, started: int) -> None:
        """Watch the process that began at ``started`` (as in /proc/PID/stat)."""
        who = (pid, started)
        if who in self._handles or who in self._others:
            return
        handle = -1
        if len(self._handles) < self._most:
            try:
                handle = os.pidfd_open(pid)
            except OSError:
                pass  # it has exited, or this process has no descriptor left
        if handle >= 0 and alive(pid, started):
            self._handles[who] = handle
            self._loop.watch(handle, READ, lambda _events: self._ended(who))
            return
        if handle >= 0:  # the pid may belong to another process by now
            os.close(handle)
        if is_gone(pid, started):
            self._loop.after(0, lambda: self._on_end(pid, started))
            return
        self._others[who] = None
        if self._looks is None:
            self._looks = self._loop.after(self._look_s, self._look)

    def close(self) -> None:
        """Watch nothing any more."""
        for handle in self._handles.values():
            self._loop.unwatch(handle)
            os.close(handle)
        self._handles, self._others = {}, {}
        if self._looks is not None:
            self._looks.cancel()
            self._looks = None

    def _look(self) -> None:
        self._looks = None
        others, self._others = self._others, {}
        for pid, started in others:
            self.watch(pid, started)

    def _ended(self, who: Tuple[int, int]) -> None:
        handle = self._handles.pop(who)
        self._loop.unwatch(handle)
        os.close(handle)
        self._on_end(*who)


class SupervisorEnds:
    """Calls ``on_end(pid, descendants)`` when a process by which a batch system supervises others has exited.

    ``name``: the command name of these processes (``supervisor`` in redmesh/managers.py).
    """

    def __init__(self, loop: Loop, name: str, on_end: Callable[[int, List[int]], None]) -> None:
        self._name, self._on_end = name, on_end
        self._ends = ProcessEnds(loop, self._ended)
        self._supervised: Dict[Tuple[int, int], List[int]] = {}

    def watch(self, pid: int) -> bool:
        """Watch the supervisor of the process ``pid``; False if none of its ancestors is one."""
        who = nearest_ancestor(pid, self._name)
        if not who[0]:
            return False
        self._supervised.setdefault(who, []).append(pid)
        self._ends.watch(*who)
        return True

    def _ended(self, pid: int, started: int) -> None:
        self._on_end(pid, self._supervised.pop((pid, started), []))

    def close(self) -> None:
        """Watch nothing any more."""
        self._ends.close()
