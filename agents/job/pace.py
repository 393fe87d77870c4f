"""How many tasks a worker is given ahead: enough that it never waits, few enough that others have theirs. Pure."""

from __future__ import annotations

#: Seconds of work that a worker has ahead, most tasks, and seconds from which on a task is handed out alone.
AHEAD_S, MOST, ALONE_S = 0.1, 256, 0.25
#: The weight of the newest task in the mean.
_NEWEST = 0.1
#: Tasks that a worker has ahead before one has ended.
_FIRST = 2


class Pace:
    """How long tasks of one job take."""

    def __init__(self) -> None:
        self._mean_s = -1.0

    @property
    def known(self) -> bool:
        """Whether one has ended."""
        return self._mean_s >= 0

    @property
    def mean_s(self) -> float:
        """Seconds that a task takes; 0 before one has ended."""
        return max(self._mean_s, 0.0)

    def took(self, seconds: float) -> None:
        """A task has ended after so long."""
        seconds = max(seconds, 0.0)
        self._mean_s = seconds if self._mean_s < 0 else self._mean_s + _NEWEST * (seconds - self._mean_s)

    def ahead(self, waiting: int, workers: int) -> int:
        """How many tasks a worker may have now, of ``waiting`` that ``workers`` share."""
        if self._mean_s < 0:
            most = _FIRST
        elif self._mean_s >= ALONE_S:
            most = 1
        else:
            most = min(MOST, max(2, int(AHEAD_S / max(self._mean_s, 1e-6))))
        return max(1, min(most, -(-waiting // max(workers, 1))))
