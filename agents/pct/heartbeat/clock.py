"""Mesh time: the system database's clock, learned from messages and continued by the local monotonic clock.

The node's wall clock is not used, because it may be an hour off.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Optional


class MeshTime:
    """The mesh time; unknown until the first call of :meth:`learn`."""

    __slots__ = ("_offset", "_uncertain_s")

    def __init__(self) -> None:
        self._offset: Optional[float] = None
        self._uncertain_s = 0.0

    def learn(self, at: float, asked: float, answered: float) -> None:
        """It was ``at`` at some moment between our ``asked`` and ``answered`` (monotonic seconds)."""
        uncertain_s = (answered - asked) / 2
        # Ignore a much slower answer: clocks drift by a second a day, and no answer takes so long.
        if self._offset is None or uncertain_s <= self._uncertain_s + 0.5:
            self._offset, self._uncertain_s = at - (asked + answered) / 2, uncertain_s

    def now(self) -> Optional[float]:
        """Seconds since 1970 by the database's clock; None while unknown."""
        return None if self._offset is None else time.monotonic() + self._offset
