"""A database that does not answer: found out once and remembered for a while, so that nobody waits behind a time-out.

For as long as finding out took, many times over, so that it costs little of the CPA's time whoever asks; one that says
at once that it cannot (a full disk) is asked again at once, and the first request after somebody made room succeeds.
"""

from collections.abc import Callable
from typing import TypeVar

from db.errors import DatabaseUnavailable

T = TypeVar("T")
LONGEST_S = 1.0
#: Remembered this many times as long as it took.
TIMES = 20


class Outage:
    """What is known of the database's absence. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = 0.0
        self._error: DatabaseUnavailable | None = None

    @property
    def known(self) -> bool:
        """Whether the database was found away, and nothing has worked since."""
        return self._error is not None

    def guard(self, work: Callable[[], T]) -> T:
        """What ``work`` returns. DatabaseUnavailable, at once when the database was away a moment ago."""
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
            self._error = None  # it answered, if only to refuse
            raise
        self._error = None
        return result
