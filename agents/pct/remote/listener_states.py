"""The states of a connection from another machine until its purpose is known. No I/O.

No peer is trusted before the end of the handshake and its hello, and both have a time limit.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Tuple


class State(Enum):
    """The state of a pending connection."""

    SHAKING = "shaking"
    GREETING = "greeting"  # waits for its hello
    ASKING = "asking"  # wants an image; waits for the request
    OVER = "over"  # passed on, refused or disconnected


class Event(Enum):
    """An event of a pending connection."""

    HANDED = "handed"  # a waiting launch child has taken it, from its first byte
    SHAKEN = "shaken"
    LAUNCHES = "launches"  # it brings a launch, and is admitted
    FETCHES = "fetches"  # it is a launch child of another node
    ASKS = "asks"  # it is a daemon, or a launcher that acts for its own launch
    ASKED = "asked"
    OBJECTS = "objects"  # it is about state objects of jobs, in our protocol or from a browser
    REFUSED = "refused"
    LATE = "late"
    GONE = "gone"


class Action(Enum):
    """An action."""

    READ = "read"
    BEGIN = "begin"
    SERVE = "serve"
    CARRY = "carry"
    COURIER = "courier"
    REFUSE = "refuse"
    DROP = "drop"


#: State and event -> action and next state.
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
