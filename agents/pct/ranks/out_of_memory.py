"""Whether the kernel killed a rank for lack of memory. A SIGKILL alone proves nothing: anybody may have sent it.

The evidence is the counter of the control group (``oom_kill``), which rises before the kernel sends the SIGKILL. The
group may have other processes, so a rise counts for one death, for a few seconds, and not if the kernel's log, where
this process may read it, names others alone. Where no counter can be read, that log is the only evidence.
"""

from __future__ import annotations

import os
import time

from agents.linux.controllers import MemoryGroup, host_memory
from redmesh.text import size_text

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from agents.pct.ranks.ranks import Rank

#: Seconds between two looks at the counter while the launch child is awake anyway.
LOOK_S = 1.0
#: Seconds for which a kill may wait for its process's exit: freeing much memory takes the kernel a while.
_RECENT_S = 15.0
_RECORDS = 1 << 19  # more than the kernel's log holds: who writes to it without pause does not hold this up
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # include/linux/proc_ns.h: the kernel's log has pids of this one


class Shortage:
    """A kill by the kernel for lack of memory, in bytes.

    ``had``: what the process had at most (0: unknown). ``limit``: that of its control group; 0 if the host ran out,
    which has ``host``.
    """

    __slots__ = ("had", "host", "limit")

    def __init__(self, had: int, limit: int, host: int) -> None:
        self.had, self.limit, self.host = had, limit, host

    @property
    def text(self) -> str:
        """The sizes, for people."""
        had = f"it had {size_text(self.had)}, " if self.had else ""
        if self.limit:
            return f"{had}its control group may have {size_text(self.limit)}"
        return f"{had}the host has {size_text(self.host)}"

    def fields(self, rank: int) -> Dict[str, Any]:
        """``out_of_memory`` of the node's ``note``."""
        return {"rank": rank, "had": self.had, "limit": self.limit, "host": self.host}


class MemoryWatch:
    """Looks at the counter of one control group. ``shared``: the group has processes besides one rank's."""

    __slots__ = ("_clock", "_kills", "_looked_at", "_seen", "group", "shared")

    def __init__(
        self, group: MemoryGroup, clock: Callable[[], float] = time.monotonic, *, shared: bool = True
    ) -> None:  # fmt: skip
        self.group, self._clock, self.shared = group, clock, shared
        self._kills: List[float] = []  # when kills were seen that no death has explained
        self._looked_at, self._seen = clock(), group.kills()

    def look(self) -> None:
        """Look at the counter, at most once in ``LOOK_S``: so that an earlier rise is known to be earlier."""
        if self._clock() - self._looked_at >= LOOK_S:
            self._look()

    def _look(self) -> None:
        now, count = self._clock(), self.group.kills()
        if self._seen >= 0 and count > self._seen:
            self._kills += [now] * min(count - self._seen, 65536)
        self._looked_at, self._seen = now, count

    def killed(self, pid: int, *, itself: bool) -> Optional[int]:
        """The bytes that a process had, or 0, if there is evidence that the kernel killed it; None: there is none.

        SIGKILL has just ended the process (``itself``), or its child.
        """
        if self._seen >= 0:
            self._look()
        if self._seen < 0:  # no counter, or the group was removed with its last process
            return _killed_by_log().get(pid)
        self._kills = [at for at in self._kills if self._looked_at - at <= _RECENT_S]
        if not self._kills:
            return None
        killed = _killed_by_log()
        if itself and killed and pid not in killed:
            return None  # the counter rose for another process of the group
        self._kills.pop(0)
        return killed.get(pid, 0)


class LaunchMemory:
    """The control groups of a launch's ranks on this node: ``group``, and those into which a batch system started
    ranks."""

    __slots__ = ("_elsewhere", "_node", "_of", "_own")

    def __init__(self, node: str, group: MemoryGroup) -> None:
        self._node, self._own = node, MemoryWatch(group)
        self._elsewhere: Dict[str, MemoryWatch] = {}
        self._of: Dict[int, MemoryWatch] = {}  # by the pid of the rank

    def look(self) -> None:
        """Look at the counters while the launch child is awake."""
        self._own.look()
        for watch in self._elsewhere.values():
            watch.look()

    def adopt(self, pid: int) -> None:
        """The batch system has started this rank, whose group may be another one."""
        group = MemoryGroup(pid)
        if not group.name or group.name == self._own.group.name:
            group.close()
        elif group.name in self._elsewhere:
            self._of[pid] = self._elsewhere[group.name]
            self._of[pid].shared = True
            group.close()
        else:
            self._of[pid] = self._elsewhere[group.name] = MemoryWatch(group, shared=False)

    def killed(self, rank: Rank) -> Optional[Shortage]:
        """The evidence that the kernel killed ``rank``, which has just exited, or its child; None: there is none."""
        return self._shortage(rank.pid, rank.peak, itself=os.WIFSIGNALED(rank.status or 0))

    def task_killed(self, pid: int, peak: int, itself: bool) -> str:
        """The same of a process that a rank had started and has reaped, for people; "" if there is no evidence.

        ``peak``: the bytes that it had at most."""
        found = self._shortage(pid, peak, itself=itself)
        return f"out of memory, SIGKILL from the kernel on {self._node}: {found.text}" if found is not None else ""

    def _shortage(self, pid: int, peak: int, *, itself: bool) -> Optional[Shortage]:
        watch = self._of.pop(pid, self._own)
        logged = watch.killed(pid, itself=itself)
        if logged is None:
            return None
        # The usage of another process's child is not reported.
        had = peak or logged or (0 if watch.shared else watch.group.peak())
        return Shortage(had, watch.group.limit(), host_memory())


def _killed_by_log() -> Dict[int, int]:
    """The processes that the kernel killed for lack of memory a short time ago, and the bytes that each had, by its
    log; empty if that cannot be read."""
    killed: Dict[int, int] = {}
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
            named, _, sizes = record.partition(b"Killed process ")[2].partition(b" ")
            # "priority,sequence,microseconds,…;text"
            if named.isdigit() and int(record.split(b",", 3)[2]) / 1e6 >= since:
                killed[int(named)] = _resident(sizes)
        return killed
    except (OSError, ValueError, IndexError):  # EAGAIN: the end
        return killed
    finally:
        os.close(log)


def _resident(text: bytes) -> int:
    """The bytes in memory from the log's "anon-rss:123kB, file-rss:4kB, shmem-rss:0kB"."""
    sizes = [word.partition(b"-rss:")[2].rstrip(b",") for word in text.split() if b"-rss:" in word]
    return sum(int(size[:-2]) << 10 for size in sizes if size.endswith(b"kB") and size[:-2].isdigit())
