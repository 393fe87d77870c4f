"""Where a node stands with one state object: both sides of a move in one table. Pure.

Each attempt to move an object has a number of its own: the sender raises the object's counter before the first byte
leaves. The sender stops before it says *take*, and goes on only when the receiver has refused that number for ever. The
receiver begins with *take* and not before. So there is never more than one live object, whichever messages are lost,
repeated or reordered and whichever side is killed; where the confirmation is lost the object stands still until both
have spoken again.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple


class State(Enum):
    """Where a node stands with an object."""

    ABSENT = "absent"  # never here, or refused for ever up to its counter
    ARRIVED = "arrived"  # whole, and not live before the sender says so
    LIVE = "live"
    OFFERED = "offered"  # being sent; its owner does not change it meanwhile. In memory alone
    DOUBT = "doubt"  # "take" was said: live there, or here again, when the receiver has answered
    GONE = "gone"  # live elsewhere


class Event(Enum):
    """What may happen to it. A number is older, the same, or newer than the counter known here."""

    MOVE = "move"  # somebody wants it on another node
    STORED = "stored"  # all bytes of a newer attempt are on this disk, hashed
    STORED_AGAIN = "stored again"  # of the same attempt
    STORED_OLD = "stored old"
    TAKE = "take"  # the sender has stopped for the attempt known here
    TAKE_OLD = "take old"
    TAKE_UNKNOWN = "take unknown"  # for an attempt of which nothing arrived, or nothing is left
    CONFIRMED = "confirmed"  # the receiver has it whole
    FAILED = "failed"  # the receiver was not reached, or has not confirmed
    TAKEN = "taken"  # the receiver is live, or was
    REFUSED = "refused"  # the receiver will never take this attempt
    RETRY = "retry"
    RESTARTED = "restarted"
    FENCED = "fenced"  # the tracker knows a higher counter elsewhere
    PROMOTED = "promoted"  # the tracker has given the object to the standby copy that is here, under a new counter


class Action(Enum):
    """What is to be done."""

    NONE = "none"
    OFFER = "offer"
    KEEP = "keep"  # and say that it arrived
    ADOPT = "adopt"  # make it live, and say so
    SAY_ARRIVED = "say arrived"
    SAY_TAKEN = "say taken"
    SAY_BUSY = "say busy"
    REFUSE = "refuse"  # record the number, then say it
    STOP = "stop"  # put it out of its owner's reach, then say take
    ASK = "ask"  # say take again
    RESUME = "resume"
    FORWARD = "forward"  # record where it is, then delete it
    PROMOTE = "promote"  # make the standby copy live


_S, _E, _A = State, Event, Action

#: State and event -> what to do, and where the node stands then. What is not here changes nothing and gets no answer.
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
    # A newer attempt exists: so the one in doubt was taken.
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
#: Answers to an attempt, which are for the one that is under way alone.
_OF_ATTEMPT = frozenset((Event.CONFIRMED, Event.FAILED, Event.TAKEN, Event.REFUSED))


class Place:
    """Where one node stands with one object: a state and the highest counter that the node knows."""

    __slots__ = ("counter", "state")

    def __init__(self, state: State = State.ABSENT, counter: int = 0) -> None:
        self.state, self.counter = state, counter

    def handle(self, event: Event, counter: Optional[int] = None) -> Action:
        """What to do about ``event``, of the attempt ``counter``; state and counter are the new ones afterwards."""
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
