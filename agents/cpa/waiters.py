"""Requests that wait, and whose turn it is: strictly first in first out in each pool, over all CPAs. Pure.

The order stands in the database's ``waiting`` table; a CPA serves those whose connection it holds, and only when
nobody stands before them, whichever CPA that one waits at.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A row of ``waiting``: its key, the partition it waits in (None: the interactive pool), and that pool's side."""

    key: str
    partition: int | None
    side: int = 1


class Waiter:
    """A request that waits here. ``session`` is its connection, ``deadline`` monotonic seconds, ``size`` in bytes."""

    __slots__ = ("deadline", "key", "message", "refusal", "session", "size", "told")

    def __init__(
        self, key: str, session: Any, message: dict[str, Any], deadline: float, refusal: Any, size: int = 0
    ) -> None:
        self.size = size
        self.key, self.session, self.message, self.deadline = key, session, message, deadline
        self.refusal = refusal  # what it is told when its time is over: the last reason
        self.told = False  # that the database is away


def turns(rows: Sequence[Row]) -> list[str]:
    """The keys whose turn it is: the first of every pool."""
    first: dict[tuple[int | None, int], str] = {}
    for row in rows:
        first.setdefault((row.partition, row.side), row.key)
    return list(first.values())


class Waiters:
    """Those who wait at this CPA, by key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Waiter] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def add(self, waiter: Waiter) -> Waiter | None:
        """Let it wait; who waited here under the same key before (its connection is of no more use)."""
        before = self._by_key.get(waiter.key)
        self._by_key[waiter.key] = waiter
        return before

    def remove(self, key: str) -> Waiter | None:
        """It waits no longer."""
        return self._by_key.pop(key, None)

    def of_session(self, session: Any) -> list[Waiter]:
        """Those who wait on one connection."""
        return [waiter for waiter in self._by_key.values() if waiter.session is session]

    def of_user(self, uid: int) -> list[Waiter]:
        """The requests of one user."""
        return [waiter for waiter in self._by_key.values() if waiter.session.peer.uid == uid]

    def all(self) -> list[Waiter]:
        """Everybody."""
        return list(self._by_key.values())

    def overdue(self, now: float) -> list[Waiter]:
        """Those whose time is over."""
        return [waiter for waiter in self._by_key.values() if waiter.deadline <= now]

    def next(self, rows: Sequence[Row]) -> list[Waiter]:
        """Those who wait here and whose turn it is."""
        return [self._by_key[key] for key in turns(rows) if key in self._by_key]

    def missing(self, keys: Iterable[str]) -> list[Waiter]:
        """Those who wait here though the database has forgotten them: they have to queue again."""
        known = set(keys)
        return [waiter for key, waiter in self._by_key.items() if key not in known]
