"""Remembers for a while that the database does not answer, so that requests do not wait for time-outs one after
another.

The outage is remembered for a multiple of the time it took to detect, so that detection costs little of the CPA's time.
A database that fails at once (a full disk) is retried at once, so the first request after the repair succeeds.
"""

from collections.abc import Callable
from typing import TypeVar

from db.errors import DatabaseUnavailable

T = TypeVar("T")
LONGEST_S = 1.0
#: The outage is remembered this many times as long as its detection took.
TIMES = 20


def is_away(error: Exception) -> bool:
    """True if the database cannot be used now: it does not answer, or its file was moved away."""
    return getattr(error, "code", "") == DatabaseUnavailable.code


class Outage:
    """The known state of the database. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = 0.0
        self._error: DatabaseUnavailable | None = None

    @property
    def known(self) -> bool:
        """True if the database was found unavailable and nothing has succeeded since."""
        return self._error is not None

    def guard(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``. Raises DatabaseUnavailable, at once if the database was unavailable a
        moment ago."""
        if self._error is not None and self._clock() < self._until:
            raise DatabaseUnavailable(self._error.message, self._error.hint)
        began = self._clock()
        try:
            result = work()
        except DatabaseUnavailable as error:
            now = self._clock()
            self._error, self._until = error, now + min(LONGEST_S, TIMES * (now - began))
            raise
        except Exception:
            self._error = None  # the database answered, even if it refused
            raise
        self._error = None
        return result
