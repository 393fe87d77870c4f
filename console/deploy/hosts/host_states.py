"""What becomes of one host while a command of ``mesh`` works on it, decided apart from doing it."""

import enum


class State(enum.Enum):
    """How far a host is; the words people see."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    LOOKING = "looking around"
    READY = "ready"  # it is known what is there; others may not be so far
    WORKING = "working"
    STARTED = "started"  # its agent runs; the mesh has not heard of it yet
    UP = "up"
    DONE = "done"
    FAILED = "failed"


class Event(enum.Enum):
    """What can happen to a host."""

    BEGIN = "begin"
    LET_IN = "let in"
    TOLD = "told"  # what is there
    ORDERED = "ordered"
    STARTED = "started"
    DONE = "done"
    REGISTERED = "registered"
    TROUBLE = "trouble"


S, E = State, Event

#: Every transition there is. An event that a state does not name changes nothing.
TRANSITIONS: dict[tuple[State, Event], State] = {
    (S.WAITING, E.BEGIN): S.CONNECTING,
    (S.WAITING, E.TROUBLE): S.FAILED,
    (S.CONNECTING, E.LET_IN): S.LOOKING,
    (S.CONNECTING, E.TROUBLE): S.FAILED,
    (S.LOOKING, E.TOLD): S.READY,
    (S.LOOKING, E.TROUBLE): S.FAILED,
    (S.READY, E.ORDERED): S.WORKING,
    (S.READY, E.TROUBLE): S.FAILED,
    (S.WORKING, E.STARTED): S.STARTED,
    (S.WORKING, E.DONE): S.DONE,
    (S.WORKING, E.TROUBLE): S.FAILED,
    (S.STARTED, E.REGISTERED): S.UP,
    (S.STARTED, E.TROUBLE): S.FAILED,
}
#: Nothing more happens in these.
FINAL = frozenset((S.UP, S.DONE, S.FAILED))


def after(state: State, event: Event) -> State:
    """The state after ``event``."""
    return TRANSITIONS.get((state, event), state)
