"""The state machine of one host in a ``mesh`` command, without I/O; and the error that ends it."""

import enum

from console.errors import ConsoleError


class State(enum.Enum):
    """The state of a host; the words are displayed."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    LOOKING = "looking around"
    READY = "ready"  # its data is known; other hosts may still be examined
    WORKING = "working"
    STARTED = "started"  # its agent runs and has not registered yet
    UP = "up"
    DONE = "done"
    FAILED = "failed"


class Event(enum.Enum):
    """An event of a host."""

    BEGIN = "begin"
    LET_IN = "let in"
    TOLD = "told"  # what is there
    ORDERED = "ordered"
    STARTED = "started"
    DONE = "done"
    REGISTERED = "registered"
    TROUBLE = "trouble"


class HostFailed(ConsoleError):
    """An error of one host; ``code`` is its word in ``mesh doctor`` and ``--json``."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


S, E = State, Event

#: All transitions. An event that a state does not list changes nothing.
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
#: Final states.
FINAL = frozenset((S.UP, S.DONE, S.FAILED))


def after(state: State, event: Event) -> State:
    """The state after ``event``."""
    return TRANSITIONS.get((state, event), state)
