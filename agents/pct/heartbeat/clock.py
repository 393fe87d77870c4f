"""What time it is in the mesh: the system database's clock, learned from who knows it, kept by our own monotonic one.

A node's own wall clock counts for nothing: it may be an hour off.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Optional


class MeshTime:
    """Unknown until :meth:`learn` was called once."""

    __slots__ = ("_offset", "_uncertain_s")

    def __init__(self) -> None:
        self._offset: Optional[float] = None
        self._uncertain_s = 0.0

    def learn(self, at: float, asked: float, answered: float) -> None:
        """It was ``at`` somewhere between our ``asked`` and ``answered`` (monotonic seconds)."""
        uncertain_s = (answered - asked) / 2
        # A much slower answer says less than what we knew: a day drifts by a second, no answer takes so long.
        if self._offset is None or uncertain_s <= self._uncertain_s + 0.5:
            self._offset, self._uncertain_s = at - (asked + answered) / 2, uncertain_s

    def now(self) -> Optional[float]:
        """Seconds since 1970 by the database's clock; None when nobody has told us."""
        return None if self._offset is None else time.monotonic() + self._offset
