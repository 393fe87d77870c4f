"""The lease of a node on another machine: whether its RCA knows that it lives, and what to do when not. Pure.

The node's processors are given out again only when the mesh has given this life of the node up; a PCT that is told so
clears itself and begins a new life, under a new boot id. One that hears nothing at all for longer than its lease, which
is shorter than what an RCA waits, ends the launches whose launcher is not heard of either.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Tuple


class State(Enum):
    """What the PCT knows of its RCA's opinion."""

    HELD = "held"  # acknowledged within the lease (or started within it)
    LAPSED = "lapsed"  # nothing heard for longer than the lease
    RESETTING = "resetting"  # told that it is down: clearing itself


class Event(Enum):
    """What can happen to a lease."""

    HEARD = "heard"  # an RCA says that all is well
    LATE = "late"  # nothing acknowledged for longer than the lease
    TOLD_DOWN = "told down"
    CLEARED = "cleared"  # nothing of any launch is left here
    UNCLEAN = "unclean"  # something could not be killed


class Action(Enum):
    """What the PCT is to do."""

    NONE = "none"
    END_ORPHANS = "end orphans"  # launches that do not hear of their launcher
    CLEAR = "clear"  # end every launch
    BEGIN_ANEW = "begin anew"  # under a new boot id


S, E, A = State, Event, Action

#: Every transition there is. An event that a state does not name changes nothing.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[State, Action]] = {
    (S.HELD, E.HEARD): (S.HELD, A.NONE),
    (S.HELD, E.LATE): (S.LAPSED, A.END_ORPHANS),
    (S.HELD, E.TOLD_DOWN): (S.RESETTING, A.CLEAR),
    (S.LAPSED, E.HEARD): (S.HELD, A.NONE),
    (S.LAPSED, E.LATE): (S.LAPSED, A.END_ORPHANS),  # again and again: a launcher may be lost later than the RCA
    (S.LAPSED, E.TOLD_DOWN): (S.RESETTING, A.CLEAR),
    (S.RESETTING, E.UNCLEAN): (S.RESETTING, A.CLEAR),
    (S.RESETTING, E.CLEARED): (S.HELD, A.BEGIN_ANEW),
}


class Lease:
    """One node's lease of ``length_s``. ``now`` is monotonic seconds, always the caller's."""

    def __init__(self, now: float, length_s: float) -> None:
        self.state = State.HELD
        self.length_s = length_s
        self._known_at = now  # an RCA has heard us after this

    def acknowledged(self, sent_at: float) -> Action:
        """A beat sent at ``sent_at`` has been acknowledged: that, not when the answer came, is what is certain."""
        self._known_at = max(self._known_at, sent_at)
        return self._handle(Event.HEARD)

    def told_down(self) -> Action:
        """An RCA counts this life of the node as over."""
        return self._handle(Event.TOLD_DOWN)

    def idle_s(self, now: float) -> float:
        """For how long :meth:`tick` has nothing to say; 0.0 where that is to be asked again and again."""
        return max(0.0, self._known_at + self.length_s - now) if self.state is State.HELD else 0.0

    def tick(self, now: float) -> Action:
        """Take the passing of time."""
        return self._handle(Event.LATE) if now - self._known_at > self.length_s else Action.NONE

    def cleared(self, clean: bool, now: float) -> Action:
        """What came of :data:`Action.CLEAR`."""
        if clean:
            self._known_at = now
        return self._handle(Event.CLEARED if clean else Event.UNCLEAN)

    def _handle(self, event: Event) -> Action:
        entry = TRANSITIONS.get((self.state, event))
        if entry is None:
            return Action.NONE
        self.state, action = entry
        return action
