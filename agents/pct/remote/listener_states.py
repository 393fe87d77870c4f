"""A connection from another machine until it is known what it is for. Pure.

Nobody is trusted before the handshake is over and the hello read, and nobody may take long over it.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Tuple


class State(Enum):
    """Where a pending stands."""

    SHAKING = "shaking"
    GREETING = "greeting"  # its hello is awaited
    ASKING = "asking"  # it wants an image: which one?
    OVER = "over"  # handed over, refused or gone


class Event(Enum):
    """What may happen to it."""

    HANDED = "handed"  # a launch child that waited for a launch has it, from its first byte
    SHAKEN = "shaken"
    LAUNCHES = "launches"  # it brings a launch, and may
    FETCHES = "fetches"  # it is a launch child of another node
    ASKS = "asks"  # it is a daemon, or a launcher that acts for its own launch
    ASKED = "asked"
    OBJECTS = "objects"  # it comes about state objects of jobs, in our words or as a browser
    REFUSED = "refused"
    LATE = "late"
    GONE = "gone"


class Action(Enum):
    """What is to be done."""

    READ = "read"
    BEGIN = "begin"
    SERVE = "serve"
    CARRY = "carry"
    COURIER = "courier"
    REFUSE = "refuse"
    DROP = "drop"


#: State and event -> what to do, and where it stands then.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[Action, State]] = {
    (State.SHAKING, Event.HANDED): (Action.DROP, State.OVER),
    (State.SHAKING, Event.SHAKEN): (Action.READ, State.GREETING),
    (State.SHAKING, Event.REFUSED): (Action.DROP, State.OVER),
    (State.SHAKING, Event.LATE): (Action.DROP, State.OVER),
    (State.SHAKING, Event.GONE): (Action.DROP, State.OVER),
    (State.GREETING, Event.LAUNCHES): (Action.BEGIN, State.OVER),
    (State.GREETING, Event.FETCHES): (Action.READ, State.ASKING),
    (State.GREETING, Event.ASKS): (Action.SERVE, State.OVER),
    (State.GREETING, Event.OBJECTS): (Action.COURIER, State.OVER),
    (State.GREETING, Event.REFUSED): (Action.REFUSE, State.OVER),
    (State.GREETING, Event.LATE): (Action.DROP, State.OVER),
    (State.GREETING, Event.GONE): (Action.DROP, State.OVER),
    (State.ASKING, Event.ASKED): (Action.CARRY, State.OVER),
    (State.ASKING, Event.REFUSED): (Action.REFUSE, State.OVER),
    (State.ASKING, Event.LATE): (Action.DROP, State.OVER),
    (State.ASKING, Event.GONE): (Action.DROP, State.OVER),
}
