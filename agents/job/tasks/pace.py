"""How many tasks a worker of a job gets in advance. No I/O."""

from __future__ import annotations

#: Seconds of work in advance; the most tasks; and seconds from which tasks are given out one by one.
_AHEAD_S, MOST_AHEAD, _ALONE_S = 0.1, 256, 0.25
#: The weight of the newest task in the mean.
_NEWEST = 0.1
#: Tasks in advance before the first one has ended: it may take hours, and a task behind it would wait while later
#: workers are idle.
_FIRST = 1


class Pace:
    """How many tasks a worker gets in advance, by the duration of the job's tasks: enough that it never waits, few
    enough for the other workers."""

    def __init__(self) -> None:
        self._mean_s = -1.0

    @property
    def known(self) -> bool:
        """True if a task has ended."""
        return self._mean_s >= 0

    @property
    def mean_s(self) -> float:
        """The mean duration in seconds; 0 before a task has ended."""
        return max(self._mean_s, 0.0)

    def took(self, seconds: float) -> None:
        """A task has ended after ``seconds``."""
        seconds = max(seconds, 0.0)
        self._mean_s = seconds if self._mean_s < 0 else self._mean_s + _NEWEST * (seconds - self._mean_s)

    def ahead(self, waiting: int, workers: int) -> int:
        """How many tasks a worker may have now, if ``workers`` share ``waiting`` tasks."""
        if self._mean_s < 0:
            most = _FIRST
        elif self._mean_s >= _ALONE_S:
            most = 1
        else:
            most = min(MOST_AHEAD, max(2, int(_AHEAD_S / max(self._mean_s, 1e-6))))
        return max(1, min(most, -(-waiting // max(workers, 1))))
