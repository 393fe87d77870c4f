"""Reports to a CPA: first in, first out, each repeated until it is acknowledged. No I/O.

There is one report for each subject: a newer one about a node replaces one that is not acknowledged yet.
"""

from __future__ import annotations

from agents.link.lean import deque

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from typing import Any

FIRST_S = 1.0
# a CPA accepts no more from one connection, and reports that wait there for long would count as unanswered
MOST_IN_FLIGHT = 64
LONGEST_S = 5.0

#: Codes of permanent errors.
FINAL = frozenset(("invalid", "unknown_op", "denied", "expired", "given_up", "elsewhere"))


class Event:
    """A report to a CPA. ``about`` describes it for the log (never with a cookie)."""

    __slots__ = ("about", "delay_s", "due", "in_flight", "message", "subject", "unclean")

    def __init__(self, subject: Hashable, message: dict[str, Any], about: dict[str, Any], now: float) -> None:
        self.subject, self.message, self.about = subject, message, about
        self.due = now
        self.delay_s = FIRST_S
        self.in_flight = False
        self.unclean = False


class Outbox:
    """The reports of one RCA. ``now`` is monotonic seconds, always given by the caller."""

    def __init__(self) -> None:
        self._events: dict[Hashable, Event] = {}
        self._ready: deque[Event] = deque()  # to be sent, oldest first
        self._delayed: list[Event] = []  # refused, to be sent again later
        self._in_flight = 0

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events.values())

    def put(self, subject: Hashable, message: dict[str, Any], about: dict[str, Any], now: float) -> None:
        """Queue ``message``, unless an equal one on the same subject is queued."""
        waiting = self._events.get(subject)
        if waiting is not None:
            if waiting.message == message:
                return
            del self._events[subject]
        event = self._events[subject] = Event(subject, message, about, now)
        self._ready.append(event)  # the newer report goes to the end of the queue

    def due(self, now: float, most: int = MOST_IN_FLIGHT) -> list[Event]:
        """Take the reports to send now, oldest first, so that at most ``most`` are in flight."""
        if self._delayed:
            self._ready.extend(event for event in self._delayed if event.due <= now)
            self._delayed = [event for event in self._delayed if event.due > now]
        found = []
        while self._ready and self._in_flight < most:
            event = self._ready.popleft()
            if self._is_current(event) and not event.in_flight:
                event.in_flight = True
                self._in_flight += 1
                found.append(event)
        return found

    def _is_current(self, event: Event) -> bool:
        return self._events.get(event.subject) is event

    def _landed(self, event: Event) -> None:
        if event.in_flight:
            event.in_flight = False
            self._in_flight -= 1

    def acknowledged(self, event: Event) -> None:
        """A CPA has handled the report."""
        self._landed(event)
        if self._is_current(event):
            del self._events[event.subject]

    def refused(self, event: Event, code: str, now: float) -> bool:
        """A CPA has answered with an error; returns whether the report is dropped."""
        if code in FINAL:
            self.acknowledged(event)
            return True
        self._landed(event)
        event.unclean = code == "unclean"
        event.due = now + event.delay_s
        # An unclean node takes its time, but a database that is back must be found soon.
        event.delay_s = min(LONGEST_S, event.delay_s * 2) if event.unclean else FIRST_S
        self._delayed.append(event)
        return False

    def disconnected(self, now: float) -> None:
        """The CPA is lost: all its reports go to the next one."""
        for event in self._events.values():
            event.in_flight = False
            event.due = now
        self._in_flight = 0
        self._ready, self._delayed = deque(self._events.values()), []

    def hasten(self, now: float) -> None:
        """A node has come up: retry failed clean-ups now."""
        for event in self._delayed:
            if event.unclean:
                event.due, event.delay_s = now, FIRST_S
