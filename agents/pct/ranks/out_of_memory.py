"""Whether the kernel killed a rank for lack of memory. A SIGKILL alone proves nothing: anybody may have sent it.

The evidence is the counter of the control group (``oom_kill``), which rises before the kernel sends the SIGKILL. The
group may have other processes, so a rise counts for one death, for a few seconds, and not if the kernel's log, where
this process may read it, names others alone. Where no counter can be read, that log is the only evidence.
"""

from __future__ import annotations

import os
import time

from agents.linux.controllers import host_memory
from redmesh.text import size_text

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Set

    from agents.linux.controllers import MemoryGroup
    from agents.pct.ranks.ranks import Rank

#: Seconds between two looks at the counter while the launch child is awake anyway.
LOOK_S = 1.0
#: Seconds for which a kill may wait for its process's exit: freeing much memory takes the kernel a while.
_RECENT_S = 15.0
_RECORDS = 1 << 19  # more than the kernel's log holds: who writes to it without pause does not hold this up
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # include/linux/proc_ns.h: the kernel's log has pids of this one


class MemoryWatch:
    """Looks at the counter for the ranks of one launch."""

    __slots__ = ("_clock", "_group", "_kills", "_looked_at", "_seen")

    def __init__(self, group: MemoryGroup, clock: Callable[[], float] = time.monotonic) -> None:
        self._group, self._clock = group, clock
        self._kills: List[float] = []  # when kills were seen that no rank's death has explained
        self._looked_at, self._seen = clock(), group.kills()

    def look(self) -> None:
        """Look at the counter, at most once in ``LOOK_S``: so that an earlier rise is known to be earlier."""
        if self._clock() - self._looked_at >= LOOK_S:
            self._look()

    def _look(self) -> None:
        now, count = self._clock(), self._group.kills()
        if self._seen >= 0 and count > self._seen:
            self._kills += [now] * min(count - self._seen, 65536)
        self._looked_at, self._seen = now, count

    def has_killed(self, rank: Rank, *, itself: bool) -> bool:
        """True if there is evidence that the kernel killed ``rank``, which SIGKILL has just ended (``itself``), or its
        child."""
        if self._seen < 0:
            return rank.pid in _killed_by_log()
        self._look()
        self._kills = [at for at in self._kills if self._looked_at - at <= _RECENT_S]
        if not self._kills:
            return False
        killed = _killed_by_log()
        if itself and killed and rank.pid not in killed:
            return False  # the counter rose for another process of the group
        self._kills.pop(0)
        return True

    def report(self, rank: Rank) -> Dict[str, Any]:
        """``out_of_memory`` of the node's ``note``: bytes that the rank had at most (0: unknown), and the limit."""
        return {"rank": rank.number, "had": rank.peak, "limit": self._group.limit(), "host": host_memory()}


def text_of(report: Dict[str, Any]) -> str:
    """A report for people."""
    had = f"it had {size_text(report['had'])}, " if report["had"] else ""
    most = f"its control group may have {size_text(report['limit'])}" if report["limit"] else (
        f"the host has {size_text(report['host'])}"
    )  # fmt: skip
    return f"rank {report['rank']} ran out of memory and was killed by the kernel: {had}{most}"


def _killed_by_log() -> Set[int]:
    """The processes that the kernel killed for lack of memory a short time ago, by its log; empty if that cannot be
    read."""
    killed: Set[int] = set()
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
            return killed
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return killed
    try:
        since = time.monotonic() - _RECENT_S
        for _ in range(_RECORDS):
            try:
                record = os.read(log, 8192)
            except BrokenPipeError:  # a record was overwritten meanwhile
                continue
            named = record.partition(b"Killed process ")[2].partition(b" ")[0]
            # "priority,sequence,microseconds,…;text"
            if named.isdigit() and int(record.split(b",", 3)[2]) / 1e6 >= since:
                killed.add(int(named))
        return killed
    except (OSError, ValueError, IndexError):  # EAGAIN: the end
        return killed
    finally:
        os.close(log)
