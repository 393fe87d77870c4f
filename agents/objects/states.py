"""The states of a state object on a node: both sides of a move in one table. No I/O.

Each attempt to move an object has its own number: the sender raises the object's counter before it sends the first
byte. The sender stops the use of the object before it sends *take*, and continues only if the receiver has refused that
number for ever. The receiver uses the object only after *take*. So at most one object is live, whichever messages are
lost, repeated or reordered, and whichever side is killed. If the confirmation is lost, the object is unused until both
sides have communicated.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple


class State(Enum):
    """The state of an object on a node."""

    ABSENT = "absent"  # never here, or refused for ever up to its counter
    ARRIVED = "arrived"  # complete, and not live before the sender says so
    LIVE = "live"
    OFFERED = "offered"  # being sent, and not changed meanwhile; only in memory
    DOUBT = "doubt"  # "take" was sent: after the receiver's answer, it is live there, or here again
    GONE = "gone"  # live elsewhere


class Event(Enum):
    """An event of an object. Its number is older than, equal to, or newer than the counter known here."""

    MOVE = "move"  # a request to move it to another node
    STORED = "stored"  # all bytes of a newer attempt are on this disk, verified
    STORED_AGAIN = "stored again"  # the same for the same attempt
    STORED_OLD = "stored old"
    TAKE = "take"  # the sender has stopped using it, for the attempt known here
    TAKE_OLD = "take old"
    TAKE_UNKNOWN = "take unknown"  # for an attempt of which nothing arrived, or nothing is left
    CONFIRMED = "confirmed"  # the receiver has it completely
    FAILED = "failed"  # the receiver is unreachable, or has not confirmed
    TAKEN = "taken"  # the receiver is live, or was
    REFUSED = "refused"  # the receiver will never take this attempt
    RETRY = "retry"
    RESTARTED = "restarted"
    FENCED = "fenced"  # the tracker has a higher counter on another node
    PROMOTED = "promoted"  # the tracker has given the object to this standby copy, under a new counter


class Action(Enum):
    """An action."""

    NONE = "none"
    OFFER = "offer"
    KEEP = "keep"  # and reply that it arrived
    ADOPT = "adopt"  # make it live, and reply so
    SAY_ARRIVED = "say arrived"
    SAY_TAKEN = "say taken"
    SAY_BUSY = "say busy"
    REFUSE = "refuse"  # record the number, then reply
    STOP = "stop"  # take it out of its owner's reach, then send take
    ASK = "ask"  # send take again
    RESUME = "resume"
    FORWARD = "forward"  # record the new location, then delete it
    PROMOTE = "promote"  # make the standby copy live


_S, _E, _A = State, Event, Action

#: State and event -> action and next state. Other events change nothing and get no answer.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[Action, State]] = {
    (_S.ABSENT, _E.STORED): (_A.KEEP, _S.ARRIVED),
    (_S.ABSENT, _E.STORED_AGAIN): (_A.REFUSE, _S.ABSENT),
    (_S.ABSENT, _E.STORED_OLD): (_A.REFUSE, _S.ABSENT),
    (_S.ABSENT, _E.TAKE): (_A.REFUSE, _S.ABSENT),
    (_S.ABSENT, _E.TAKE_OLD): (_A.SAY_TAKEN, _S.ABSENT),
    (_S.ABSENT, _E.TAKE_UNKNOWN): (_A.REFUSE, _S.ABSENT),
    (_S.ABSENT, _E.PROMOTED): (_A.PROMOTE, _S.LIVE),
    (_S.ARRIVED, _E.STORED): (_A.KEEP, _S.ARRIVED),
    (_S.ARRIVED, _E.STORED_AGAIN): (_A.SAY_ARRIVED, _S.ARRIVED),
    (_S.ARRIVED, _E.STORED_OLD): (_A.SAY_BUSY, _S.ARRIVED),
    (_S.ARRIVED, _E.TAKE): (_A.ADOPT, _S.LIVE),
    (_S.ARRIVED, _E.TAKE_OLD): (_A.SAY_TAKEN, _S.ARRIVED),
    (_S.ARRIVED, _E.TAKE_UNKNOWN): (_A.REFUSE, _S.ABSENT),
    (_S.LIVE, _E.MOVE): (_A.OFFER, _S.OFFERED),
    (_S.LIVE, _E.STORED): (_A.SAY_BUSY, _S.LIVE),
    (_S.LIVE, _E.STORED_AGAIN): (_A.SAY_BUSY, _S.LIVE),
    (_S.LIVE, _E.STORED_OLD): (_A.SAY_BUSY, _S.LIVE),
    (_S.LIVE, _E.TAKE): (_A.SAY_TAKEN, _S.LIVE),
    (_S.LIVE, _E.TAKE_OLD): (_A.SAY_TAKEN, _S.LIVE),
    (_S.LIVE, _E.FENCED): (_A.FORWARD, _S.GONE),
    (_S.OFFERED, _E.STORED): (_A.SAY_BUSY, _S.OFFERED),
    (_S.OFFERED, _E.TAKE_OLD): (_A.SAY_TAKEN, _S.OFFERED),
    (_S.OFFERED, _E.CONFIRMED): (_A.STOP, _S.DOUBT),
    (_S.OFFERED, _E.FAILED): (_A.RESUME, _S.LIVE),
    (_S.OFFERED, _E.RESTARTED): (_A.RESUME, _S.LIVE),
    (_S.DOUBT, _E.TAKEN): (_A.FORWARD, _S.GONE),
    (_S.DOUBT, _E.REFUSED): (_A.RESUME, _S.LIVE),
    (_S.DOUBT, _E.RETRY): (_A.ASK, _S.DOUBT),
    (_S.DOUBT, _E.RESTARTED): (_A.ASK, _S.DOUBT),
    (_S.DOUBT, _E.FENCED): (_A.FORWARD, _S.GONE),
    # A newer attempt exists, so the one in doubt was taken.
    (_S.DOUBT, _E.STORED): (_A.KEEP, _S.ARRIVED),
    (_S.DOUBT, _E.TAKE_OLD): (_A.SAY_TAKEN, _S.DOUBT),
    (_S.DOUBT, _E.TAKE_UNKNOWN): (_A.REFUSE, _S.ABSENT),
    (_S.GONE, _E.PROMOTED): (_A.PROMOTE, _S.LIVE),
    (_S.GONE, _E.STORED): (_A.KEEP, _S.ARRIVED),
    (_S.GONE, _E.STORED_OLD): (_A.REFUSE, _S.GONE),
    (_S.GONE, _E.TAKE_OLD): (_A.SAY_TAKEN, _S.GONE),
    (_S.GONE, _E.TAKE_UNKNOWN): (_A.REFUSE, _S.ABSENT),
}

_OLD = {Event.STORED: Event.STORED_OLD, Event.TAKE: Event.TAKE_OLD}
_SAME = {Event.STORED: Event.STORED_AGAIN, Event.TAKE: Event.TAKE}
_NEW = {Event.STORED: Event.STORED, Event.TAKE: Event.TAKE_UNKNOWN}
#: Answers to an attempt, which count only for the attempt in progress.
_OF_ATTEMPT = frozenset((Event.CONFIRMED, Event.FAILED, Event.TAKEN, Event.REFUSED))


class Place:
    """One object on one node: its state and the highest counter that the node knows."""

    __slots__ = ("counter", "state")

    def __init__(self, state: State = State.ABSENT, counter: int = 0) -> None:
        self.state, self.counter = state, counter

    def handle(self, event: Event, counter: Optional[int] = None) -> Action:
        """Apply ``event`` of the attempt ``counter``; returns the action. State and counter are updated."""
        known = self.counter if counter is None else counter
        if event in _OF_ATTEMPT and known != self.counter:
            return Action.NONE
        if event in (Event.FENCED, Event.PROMOTED) and known <= self.counter:
            return Action.NONE
        if event in _OLD:
            event = _OLD[event] if known < self.counter else _SAME[event] if known == self.counter else _NEW[event]
        step = TRANSITIONS.get((self.state, event))
        if step is None:
            return Action.NONE
        action, self.state = step
        if action is Action.OFFER:
            self.counter += 1
        elif action in (Action.KEEP, Action.REFUSE, Action.FORWARD, Action.PROMOTE):
            self.counter = max(self.counter, known)
        return action
