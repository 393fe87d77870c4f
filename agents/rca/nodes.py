"""A node's PCT as its RCA sees it: a pure machine, one for each node that ever registered."""

from enum import Enum

GRACE_S = 0.5  # a PCT that connects again within this was never down


class State(Enum):
    """What the mesh is told about the node, and what is known beyond it."""

    UP = "up"
    SUSPECT = "suspect"  # silent for suspect_s
    DETACHED = "detached"  # its connection ended a moment ago
    DOWN = "down"
    ELSEWHERE = "elsewhere"  # the RCA of another login processor hears it


class Event(Enum):
    """What can be seen of a PCT."""

    REGISTER = "register"
    BEAT = "beat"
    SILENT = "silent"  # for suspect_s
    SILENT_LONG = "silent long"  # for down_s
    LINK_ENDED = "link ended"
    GRACE_OVER = "grace over"
    PCT_DIED = "PCT died"  # its keeper says so, and starts another
    GIVEN_UP = "given up"  # a CPA says that this life of the node is over
    HEARD_ELSEWHERE = "heard elsewhere"  # a CPA says that another RCA hears it


class Action(Enum):
    """What a CPA has to be told."""

    TELL_UP = "node_up"
    TELL_SUSPECT = "node_suspect"
    TELL_DOWN = "node_down"


S, E, A = State, Event, Action

TRANSITIONS: dict[tuple[State, Event], tuple[State, tuple[Action, ...]]] = {
    # a registration is always told: the address, the incarnation or our CPA's knowledge may be new
    (S.UP, E.REGISTER): (S.UP, (A.TELL_UP,)),
    (S.UP, E.BEAT): (S.UP, ()),
    (S.UP, E.SILENT): (S.SUSPECT, (A.TELL_SUSPECT,)),
    (S.UP, E.SILENT_LONG): (S.DOWN, (A.TELL_DOWN,)),
    (S.UP, E.LINK_ENDED): (S.DETACHED, ()),
    (S.SUSPECT, E.REGISTER): (S.UP, (A.TELL_UP,)),
    (S.SUSPECT, E.BEAT): (S.UP, (A.TELL_UP,)),
    (S.SUSPECT, E.SILENT): (S.SUSPECT, ()),
    (S.SUSPECT, E.SILENT_LONG): (S.DOWN, (A.TELL_DOWN,)),
    (S.SUSPECT, E.LINK_ENDED): (S.DETACHED, ()),
    (S.DETACHED, E.REGISTER): (S.UP, (A.TELL_UP,)),
    (S.DETACHED, E.GRACE_OVER): (S.DOWN, (A.TELL_DOWN,)),
    (S.DOWN, E.REGISTER): (S.UP, (A.TELL_UP,)),
    (S.DOWN, E.BEAT): (S.UP, (A.TELL_UP,)),
    (S.DOWN, E.SILENT): (S.DOWN, ()),
    (S.DOWN, E.SILENT_LONG): (S.DOWN, ()),
    (S.DOWN, E.LINK_ENDED): (S.DOWN, ()),
}

#: Of a node on another machine, which beats by datagrams. A life that was given up never comes back: a beat of it is
#: answered by RESET, and the daemon makes a REGISTER only of a beat under another boot id.
FAR_TRANSITIONS: dict[tuple[State, Event], tuple[State, tuple[Action, ...]]] = {
    (S.UP, E.REGISTER): (S.UP, (A.TELL_UP,)),
    (S.UP, E.BEAT): (S.UP, ()),
    (S.UP, E.SILENT): (S.SUSPECT, (A.TELL_SUSPECT,)),
    (S.UP, E.SILENT_LONG): (S.DOWN, (A.TELL_DOWN,)),
    (S.UP, E.PCT_DIED): (S.SUSPECT, (A.TELL_SUSPECT,)),
    (S.UP, E.GIVEN_UP): (S.DOWN, ()),
    (S.SUSPECT, E.REGISTER): (S.UP, (A.TELL_UP,)),
    (S.SUSPECT, E.BEAT): (S.UP, (A.TELL_UP,)),
    (S.SUSPECT, E.SILENT): (S.SUSPECT, ()),
    (S.SUSPECT, E.SILENT_LONG): (S.DOWN, (A.TELL_DOWN,)),
    (S.SUSPECT, E.PCT_DIED): (S.SUSPECT, ()),
    (S.SUSPECT, E.GIVEN_UP): (S.DOWN, ()),
    (S.DOWN, E.REGISTER): (S.UP, (A.TELL_UP,)),
    (S.DOWN, E.BEAT): (S.DOWN, ()),
    (S.DOWN, E.SILENT): (S.DOWN, ()),
    (S.DOWN, E.SILENT_LONG): (S.DOWN, ()),
    (S.DOWN, E.PCT_DIED): (S.DOWN, ()),
    (S.DOWN, E.GIVEN_UP): (S.DOWN, ()),
    (S.UP, E.HEARD_ELSEWHERE): (S.UP, (A.TELL_UP,)),  # it has come back meanwhile
    (S.SUSPECT, E.HEARD_ELSEWHERE): (S.ELSEWHERE, ()),
    (S.DOWN, E.HEARD_ELSEWHERE): (S.ELSEWHERE, ()),
    (S.ELSEWHERE, E.REGISTER): (S.UP, (A.TELL_UP,)),
    (S.ELSEWHERE, E.BEAT): (S.UP, (A.TELL_UP,)),
    (S.ELSEWHERE, E.SILENT): (S.ELSEWHERE, ()),
    (S.ELSEWHERE, E.SILENT_LONG): (S.ELSEWHERE, ()),
    (S.ELSEWHERE, E.PCT_DIED): (S.ELSEWHERE, ()),
    (S.ELSEWHERE, E.GIVEN_UP): (S.DOWN, ()),
    (S.ELSEWHERE, E.HEARD_ELSEWHERE): (S.ELSEWHERE, ()),
}

#: What a CPA that knows nothing has to hear about a node in this state (a detached one: when the grace is over).
TELLING = {State.UP: Action.TELL_UP, State.SUSPECT: Action.TELL_SUSPECT, State.DOWN: Action.TELL_DOWN}


class Node:
    """One node. ``now`` is monotonic seconds, always the caller's."""

    __slots__ = ("_transitions", "detached_at", "heard_at", "reason", "state")

    def __init__(self, now: float, state: State = State.DOWN, *, far: bool = False) -> None:
        self._transitions = FAR_TRANSITIONS if far else TRANSITIONS
        self.state = state
        self.heard_at = self.detached_at = now
        self.reason = ""

    def handle(self, event: Event, now: float, reason: str = "") -> tuple[Action, ...]:
        """Take what was seen; the actions it asks for. KeyError for what cannot be seen in this state."""
        self.state, actions = self._transitions[self.state, event]
        if event in (Event.BEAT, Event.REGISTER):
            self.heard_at = max(self.heard_at, now)
        elif event is Event.LINK_ENDED:
            self.detached_at = now
        if actions:
            self.reason = reason
        return actions

    def tick(self, now: float, suspect_s: float, down_s: float) -> tuple[Action, ...]:
        """Take the passing of time."""
        if self.state is State.DETACHED:
            if now - self.detached_at >= GRACE_S:
                return self.handle(Event.GRACE_OVER, now, "its PCT is gone")
            return ()
        silence = now - self.heard_at
        if silence >= down_s:
            return self.handle(Event.SILENT_LONG, now, f"no beat for {silence:.0f} s")
        if silence >= suspect_s:
            return self.handle(Event.SILENT, now, f"no beat for {silence:.0f} s")
        return ()

    def forgive(self, gap_s: float, now: float) -> None:
        """Time in which we ourselves did not run is no silence of theirs; what was heard since stays heard."""
        self.heard_at = max(self.heard_at, min(self.heard_at + gap_s, now))
