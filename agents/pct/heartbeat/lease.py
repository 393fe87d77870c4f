"""The lease of a node on another machine: whether its RCA knows that it is alive, and what to do otherwise. No I/O.

The node's processors are allocated again only after the mesh has given up this boot of the node. A PCT that learns this
clears itself and begins anew under a new boot id. If it hears nothing for longer than its lease, which is shorter than
an RCA's waiting time, it ends the launches whose launcher is silent too.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Tuple


class State(Enum):
    """The RCA's view of this node, as far as the PCT knows it."""

    HELD = "held"  # acknowledged within the lease (or started within it)
    LAPSED = "lapsed"  # nothing heard for longer than the lease
    RESETTING = "resetting"  # told that it is down, and clearing itself


class Event(Enum):
    """An event of a lease."""

    HEARD = "heard"  # an RCA reports that all is well
    LATE = "late"  # nothing acknowledged for longer than the lease
    TOLD_DOWN = "told down"
    CLEARED = "cleared"  # no process of any launch is left
    UNCLEAN = "unclean"  # a process could not be killed


class Action(Enum):
    """An action of the PCT."""

    NONE = "none"
    END_ORPHANS = "end orphans"  # launches whose launcher is silent
    CLEAR = "clear"  # end every launch
    BEGIN_ANEW = "begin anew"  # under a new boot id


S, E, A = State, Event, Action

#: All transitions. An event that a state does not list changes nothing.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[State, Action]] = {
    (S.HELD, E.HEARD): (S.HELD, A.NONE),
    (S.HELD, E.LATE): (S.LAPSED, A.END_ORPHANS),
    (S.HELD, E.TOLD_DOWN): (S.RESETTING, A.CLEAR),
    (S.LAPSED, E.HEARD): (S.HELD, A.NONE),
    (S.LAPSED, E.LATE): (S.LAPSED, A.END_ORPHANS),  # repeatedly, because a launcher may be lost later than the RCA
    (S.LAPSED, E.TOLD_DOWN): (S.RESETTING, A.CLEAR),
    (S.RESETTING, E.UNCLEAN): (S.RESETTING, A.CLEAR),
    (S.RESETTING, E.CLEARED): (S.HELD, A.BEGIN_ANEW),
}


class Lease:
    """A node's lease of ``length_s``. ``now`` is monotonic seconds, always given by the caller."""

    def __init__(self, now: float, length_s: float) -> None:
        self.state = State.HELD
        self.length_s = length_s
        self._known_at = now  # an RCA has heard us after this time

    def acknowledged(self, sent_at: float) -> Action:
        """A beat sent at ``sent_at`` has been acknowledged. The time of sending counts, because only it is certain."""
        self._known_at = max(self._known_at, sent_at)
        return self._handle(Event.HEARD)

    def told_down(self) -> Action:
        """An RCA counts this boot of the node as over."""
        return self._handle(Event.TOLD_DOWN)

    def idle_s(self, now: float) -> float:
        """For how long :meth:`tick` will return nothing; 0.0 if it must be called repeatedly."""
        return max(0.0, self._known_at + self.length_s - now) if self.state is State.HELD else 0.0

    def tick(self, now: float) -> Action:
        """Apply the passing of time."""
        return self._handle(Event.LATE) if now - self._known_at > self.length_s else Action.NONE

    def cleared(self, clean: bool, now: float) -> Action:
        """The result of :data:`Action.CLEAR`."""
        if clean:
            self._known_at = now
        return self._handle(Event.CLEARED if clean else Event.UNCLEAN)

    def _handle(self, event: Event) -> Action:
        entry = TRANSITIONS.get((self.state, event))
        if entry is None:
            return Action.NONE
        self.state, action = entry
        return action
