"""The state machine of one daemon under the keeper, without forks and signals."""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Tuple

#: Seconds before a dead daemon is started again; the last value repeats.
BACKOFF_S = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60.0)
#: A killed daemon does not wait longer than this, because nothing on disk caused its end.
KILLED_MOST_S = 5.0
#: A daemon that ran this long started properly: its back-off begins anew.
STABLE_S = 10.0


class State(Enum):
    """The state of a daemon."""

    ABSENT = "absent"  # not started yet
    RUNNING = "running"
    WAITING = "waiting"  # died, to be started again
    ENDING = "ending"
    ENDED = "ended"


class Event(Enum):
    """An event in the life of a daemon."""

    START = "start"
    FOUND = "found"  # already running, from an earlier keeper
    DIED = "died"  # was killed, or ended on request
    FAILED = "failed"  # exited by itself with a failure, whose cause probably persists
    DUE = "due"  # its back-off is over
    END = "end"


class Action(Enum):
    """The action of the keeper."""

    NONE = "none"
    SPAWN = "spawn"
    SET_TIMER = "set timer"  # for DUE, after ``delay_s``
    TERMINATE = "terminate"


S, E, A = State, Event, Action

#: All transitions. An event that a state does not list changes nothing.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[State, Action]] = {
    (S.ABSENT, E.START): (S.RUNNING, A.SPAWN),
    (S.ABSENT, E.FOUND): (S.RUNNING, A.NONE),
    (S.ABSENT, E.END): (S.ENDED, A.NONE),
    (S.RUNNING, E.DIED): (S.WAITING, A.SET_TIMER),
    (S.RUNNING, E.FAILED): (S.WAITING, A.SET_TIMER),
    (S.RUNNING, E.END): (S.ENDING, A.TERMINATE),
    (S.WAITING, E.DUE): (S.RUNNING, A.SPAWN),
    (S.WAITING, E.END): (S.ENDED, A.NONE),
    (S.ENDING, E.DIED): (S.ENDED, A.NONE),
    (S.ENDING, E.FAILED): (S.ENDED, A.NONE),
}


class Daemon:
    """A daemon's machine: its start time, number of restarts, and present delay."""

    def __init__(self) -> None:
        self.state = State.ABSENT
        self.restarts = 0
        self._failed = False  # True if it failed the last time
        self._began = 0.0
        self._in_a_row = 0

    def handle(self, event: Event, now: float) -> Action:
        """Apply ``event`` at the monotonic time ``now``; returns the action."""
        entry = TRANSITIONS.get((self.state, event))
        if entry is None:
            return Action.NONE
        if event in (Event.DIED, Event.FAILED) and self.state is State.RUNNING:
            self._in_a_row = 1 if now - self._began >= STABLE_S else self._in_a_row + 1
            self._failed = event is Event.FAILED
        if event is Event.DUE:
            self.restarts += 1
        self.state, action = entry
        if self.state is State.RUNNING:
            self._began = now
        return action

    @property
    def delay_s(self) -> float:
        """The delay before the next start."""
        delay_s = BACKOFF_S[min(max(0, self._in_a_row - 1), len(BACKOFF_S) - 1)]
        return delay_s if self._failed else min(delay_s, KILLED_MOST_S)

    def is_in_trouble(self, now: float) -> bool:
        """True if it does not come up: it failed, and has not run for long since."""
        return self._failed and not (self.state is State.RUNNING and now - self._began >= STABLE_S)
