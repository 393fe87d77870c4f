"""Kills processes that the keeper inherited because a PCT and its launch child were both killed.

Processes that changed their environment carry no mark, but the kernel gives them to the keeper, as subreaper.
"""

from __future__ import annotations

import os

from agents.linux import processes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, Set

    from agents.link.journal import Journal
    from agents.link.loop import Loop

_AGAIN_S = 0.02  # between two kills of processes that have not ended yet
_STUBBORN = 250  # kills


class Orphans:
    """Kills children of this process that are neither ``known`` nor agents; the next PCT adopts agents."""

    def __init__(self, loop: "Loop", log: "Journal", known: "Callable[[], Set[int]]") -> None:
        self._loop, self._log, self._known = loop, log, known
        self._sweeping = False

    def sweep(self, round_: int = 0) -> None:
        """Kill them, and repeat until none is left."""
        if self._sweeping and round_ == 0:
            return
        found = self._found()
        self._sweeping = bool(found) and round_ < _STUBBORN
        if not found:
            return
        victims = [pid for stray in found for pid in (stray, *processes.descendants(stray))]
        if round_ == 0:
            self._log.write("strays killed", killed=len(victims))
        processes.kill_all(victims)
        if self._sweeping:
            self._loop.after(_AGAIN_S, lambda: self.sweep(round_ + 1))

    def _found(self) -> "List[int]":
        known = self._known()
        return [pid for pid in processes.children(os.getpid()) if pid not in known and not processes.is_agent(pid)]
