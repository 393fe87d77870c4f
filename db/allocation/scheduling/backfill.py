"""Conservative backfill: which waiting requests may start early because they delay no earlier request. No I/O.

In the order of the line, every request is given the earliest time at which enough processors are free for as long as
its time limit, judged by the known ends of launches. A request whose time is now may start. A launch that has run
longer than its limit counts as one without a limit. Behind a request with no known start time, no request may start.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


class Asked(NamedTuple):
    """A request in the line: how many processors, and its time limit in seconds (None: it has none)."""

    size: int
    time_s: float | None
    partial: bool = False


class End(NamedTuple):
    """How many processors become free, and when; None if the time is not known."""

    at: float | None
    size: int


def may_start(now: float, free: int, ends: Sequence[End], line: Sequence[Asked]) -> list[int]:
    """The ascending indices of the requests that may start now, without the first."""
    profile = Profile(now, free, ends)
    chosen: list[int] = []
    for place, asked in enumerate(line):
        if asked.partial:
            break  # this request takes all processors that become free, whenever that is
        start = profile.earliest(asked.size, math.inf if asked.time_s is None else asked.time_s)
        if start == math.inf:
            break  # any request behind this one could delay it
        if start == now and place:
            chosen.append(place)
        profile.hold(start, math.inf if asked.time_s is None else asked.time_s, asked.size)
    return chosen


class Profile:
    """The number of free processors as a function of time, as far as it is known."""

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
        """The earliest time from which ``size`` processors are free for ``time_s``; infinity if it is not known."""
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
        """Reserve processors for a request."""
        first, after = self._cut(start), self._cut(start + time_s)
        for place in range(first, after):
            self._free[place] -= size

    def _cut(self, at: float) -> int:
        """The index of the first step at ``at`` or later; a step is inserted at ``at``."""
        place = bisect_left(self._times, at)
        if at != math.inf and (place == len(self._times) or self._times[place] != at):
            self._times.insert(place, at)
            self._free.insert(place, self._free[place - 1])
        return place
