"""The life of one daemon under the keeper, decided apart from forks and signals."""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Tuple

#: Seconds before a daemon that died is started again; the last one for ever.
BACKOFF_S = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60.0)
#: One that was killed does not wait for longer than this: nothing on disk is to blame.
KILLED_MOST_S = 5.0
#: A daemon that ran so long had no trouble starting: its next back-off begins anew.
STABLE_S = 10.0


class State(Enum):
    """Where a daemon is."""

    ABSENT = "absent"  # not started yet
    RUNNING = "running"
    WAITING = "waiting"  # died, to be started again
    ENDING = "ending"
    ENDED = "ended"


class Event(Enum):
    """What can happen to a daemon."""

    START = "start"
    FOUND = "found"  # alive already, from a former keeper
    DIED = "died"  # was killed, or ended because it was told to
    FAILED = "failed"  # ended by itself, and not well: what it found it will find again
    DUE = "due"  # its back-off is over
    END = "end"


class Action(Enum):
    """What the keeper is to do."""

    NONE = "none"
    SPAWN = "spawn"
    SET_TIMER = "set timer"  # for DUE, after ``delay_s``
    TERMINATE = "terminate"


S, E, A = State, Event, Action

#: Every transition there is. An event that a state does not name changes nothing.
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
    """One daemon's machine: when it began, how often it was started again, how long it waits now."""

    def __init__(self) -> None:
        self.state = State.ABSENT
        self.restarts = 0
        self._failed = False  # the last time it ended
        self._began = 0.0
        self._in_a_row = 0

    def handle(self, event: Event, now: float) -> Action:
        """What ``event`` asks for at the monotonic instant ``now``."""
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
        """How long to wait before the next start."""
        delay_s = BACKOFF_S[min(max(0, self._in_a_row - 1), len(BACKOFF_S) - 1)]
        return delay_s if self._failed else min(delay_s, KILLED_MOST_S)

    def is_in_trouble(self, now: float) -> bool:
        """Whether it does not come up: it ended by itself, and has not run for long since."""
        return self._failed and not (self.state is State.RUNNING and now - self._began >= STABLE_S)
