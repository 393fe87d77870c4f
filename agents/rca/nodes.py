"""The state of a node's PCT as its RCA sees it: a state machine without I/O, one for each node that ever registered."""

from agents.link.lean import Enum

GRACE_S = 0.5  # a PCT that reconnects within this time was never down


class State(Enum):
    """The reported state of a node, and states that are not reported."""

    UP = "up"
    SUSPECT = "suspect"  # silent for suspect_s
    DETACHED = "detached"  # its connection closed a moment ago
    DOWN = "down"
    ELSEWHERE = "elsewhere"  # the RCA of another login processor hears it


class Event(Enum):
    """An observation of a PCT."""

    REGISTER = "register"
    BEAT = "beat"
    SILENT = "silent"  # for suspect_s
    SILENT_LONG = "silent long"  # for down_s
    LINK_ENDED = "link ended"
    GRACE_OVER = "grace over"
    PCT_DIED = "PCT died"  # reported by its keeper, which starts another PCT
    GIVEN_UP = "given up"  # a CPA reports that this boot of the node is given up
    HEARD_ELSEWHERE = "heard elsewhere"  # a CPA reports that another RCA hears it


class Action(Enum):
    """A report to a CPA."""

    TELL_UP = "node_up"
    TELL_SUSPECT = "node_suspect"
    TELL_DOWN = "node_down"


S, E, A = State, Event, Action

TRANSITIONS: dict[tuple[State, Event], tuple[State, tuple[Action, ...]]] = {
    # A registration is always reported, because the address, the incarnation or the CPA may be new.
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

#: Nodes on other machines, which send datagrams. A boot that was given up never comes back: its beats are answered with
#: RESET, and the daemon makes a REGISTER only of a beat with another boot id.
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
    (S.UP, E.HEARD_ELSEWHERE): (S.UP, (A.TELL_UP,)),  # it has come back to us since
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

#: Reports to a CPA without knowledge of nodes, by state (a detached node: after the grace period).
TELLING = {State.UP: Action.TELL_UP, State.SUSPECT: Action.TELL_SUSPECT, State.DOWN: Action.TELL_DOWN}


class Node:
    """A node. ``now`` is monotonic seconds, always given by the caller."""

    __slots__ = ("_transitions", "detached_at", "heard_at", "reason", "state")

    def __init__(self, now: float, state: State = State.DOWN, *, far: bool = False) -> None:
        self._transitions = FAR_TRANSITIONS if far else TRANSITIONS
        self.state = state
        self.heard_at = self.detached_at = now
        self.reason = ""

    def handle(self, event: Event, now: float, reason: str = "") -> tuple[Action, ...]:
        """Apply an event; returns the actions. Raises KeyError for an event that is impossible in this state."""
        self.state, actions = self._transitions[self.state, event]
        if event in (Event.BEAT, Event.REGISTER):
            self.heard_at = max(self.heard_at, now)
        elif event is Event.LINK_ENDED:
            self.detached_at = now
        if actions:
            self.reason = reason
        return actions

    def tick(self, now: float, suspect_s: float, down_s: float) -> tuple[Action, ...]:
        """Apply the passing of time; returns the actions."""
        if self.state is State.DETACHED:
            if now - self.detached_at >= GRACE_S:
                return self.handle(Event.GRACE_OVER, now, "its PCT is gone")
            return ()
        silence = now - self.heard_at
        if silence >= down_s:
            return self.handle(Event.SILENT_LONG, now, f"no heartbeat for {silence:.0f} s")
        if silence >= suspect_s:
            return self.handle(Event.SILENT, now, f"no heartbeat for {silence:.0f} s")
        return ()

    def forgive(self, gap_s: float, now: float) -> None:
        """Do not count the time in which this process was stopped; beats that have arrived since still count."""
        self.heard_at = max(self.heard_at, min(self.heard_at + gap_s, now))
