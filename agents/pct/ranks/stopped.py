"""Ranks that somebody has stopped (SIGSTOP, SIGTSTP, a terminal's SIGTTIN or SIGTTOU), told to the launcher.

A stopped rank says nothing, and nothing is ended because of it: whoever waits for it is told why.
"""

from __future__ import annotations

import time

from agents.linux import processes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Tuple

    from agents.link.loop import Loop
    from agents.pct.ranks.ranks import Rank

#: Seconds from a change to its message: a short stop (a debugger, ^Z and fg) is no news, and a program that stops and
#: continues a rank without end causes a message in this time at most.
TELL_S = 2.0


class StoppedRanks:
    """The stopped ranks of a node. ``tell(text, stopped)``: the ranks that are stopped now (none: all run again)."""

    __slots__ = ("_due", "_loop", "_since", "_tell", "_told")

    #: Seconds between two calls of ``look``.
    LOOK_S = 2.5

    def __init__(self, loop: Loop, tell: Callable[[str, Dict[str, Any]], None]) -> None:
        self._loop, self._tell = loop, tell
        self._since: Dict[int, Tuple[Rank, float]] = {}  # rank -> when its stop was noticed
        self._told: Dict[int, float] = {}
        self._due = False

    def changed(self, rank: Rank, *, stopped: bool) -> None:
        """The kernel reports that ``rank`` was stopped, or that it continues or has exited."""
        if stopped:
            self._since.setdefault(rank.number, (rank, time.time()))
        else:
            self._since.pop(rank.number, None)
        if not self._due and (stopped or rank.number in self._told):
            self._due = True
            self._loop.after(TELL_S, self._look)

    def look(self, ranks: Iterable[Rank]) -> None:
        """Look at ranks of which the kernel reports no stops, because they are another process's children."""
        for rank in ranks:
            stopped = processes.state(rank.pid) in ("T", "t")
            if stopped or rank.number in self._since:
                self.changed(rank, stopped=stopped)

    def _look(self) -> None:
        self._due = False
        now = {}
        for number, (rank, since) in sorted(self._since.items()):
            if processes.state(rank.pid) in ("T", "t"):
                now[number] = since
            else:
                del self._since[number]
        if now != self._told:
            self._told = now
            pids = [self._since[number][0].pid for number in now]
            named = ", ".join(f"rank {number} (process {pid})" for number, pid in zip(now, pids))  # noqa: B905 (3.9)
            self._tell(
                f"stopped (SIGSTOP): {named}" if now else "no rank is stopped any more",
                {"ranks": list(now), "pids": pids, "since": list(now.values())},
            )
