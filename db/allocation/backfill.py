"""Which requests may start before their turn: those that delay nobody who came before (conservative backfill). Pure.

Every request of a line, in order, is given the earliest time at which as many processors are free for as long as it
says it takes, by what is known of the ends of others. One whose time is now may start. A launch that runs longer than
it said counts as one that did not say; what starts at no known time lets nobody pass.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


class Asked(NamedTuple):
    """A request of the line: how many processors, for how many seconds at most (None: it does not say)."""

    size: int
    time_s: float | None
    partial: bool = False


class End(NamedTuple):
    """So many processors come free then; None: nobody knows when."""

    at: float | None
    size: int


def may_start(now: float, free: int, ends: Sequence[End], line: Sequence[Asked]) -> list[int]:
    """The places in the line, ascending, of those that may start now, the first excepted."""
    profile = Profile(now, free, ends)
    chosen: list[int] = []
    for place, asked in enumerate(line):
        if asked.partial:
            break  # it takes what comes free, whenever that is
        start = profile.earliest(asked.size, math.inf if asked.time_s is None else asked.time_s)
        if start == math.inf:
            break  # whoever came after it could be what delays it
        if start == now and place:
            chosen.append(place)
        profile.hold(start, math.inf if asked.time_s is None else asked.time_s, asked.size)
    return chosen


class Profile:
    """How many processors are free from each time on, as far as it is known."""

    def __init__(self, now: float, free: int, ends: Sequence[End]) -> None:
        known = sorted((end.at, end.size) for end in ends if end.at is not None and end.at > now)
        self._times, self._free = [now], [free]
        for at, size in known:
            if at == self._times[-1]:
                self._free[-1] += size
            else:
                self._times.append(at)
                self._free.append(self._free[-1] + size)

    def earliest(self, size: int, time_s: float) -> float:
        """From when on ``size`` processors are free for ``time_s``; infinity when that is not known."""
        start: float | None = None
        for at, free in zip(self._times, self._free, strict=True):
            if start is not None and at >= start + time_s:
                return start
            if free < size:
                start = None
            elif start is None:
                start = at
        return math.inf if start is None else start

    def hold(self, start: float, time_s: float, size: int) -> None:
        """Keep processors for a request."""
        first, after = self._cut(start), self._cut(start + time_s)
        for place in range(first, after):
            self._free[place] -= size

    def _cut(self, at: float) -> int:
        """The place from which on it is ``at`` or later; a step begins there."""
        place = bisect_left(self._times, at)
        if at != math.inf and (place == len(self._times) or self._times[place] != at):
            self._times.insert(place, at)
            self._free.insert(place, self._free[place - 1])
        return place
