"""The states of an image on a node, and its sources; without files and sockets.

agents/pct/images/broadcast.py carries out the actions.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple


class State(Enum):
    """The state of an image on a node."""

    ASKED = "asked"  # its digest is not known here yet
    WAITING = "waiting"  # another PCT of this host writes it
    FETCHING = "fetching"
    CROWDED = "crowded"  # no room here: it comes through the parallel file system
    HERE = "here"
    FAILED = "failed"


class Event(Enum):
    """An event of an image."""

    FOUND = "found"  # the node's own file, or the host's copy, is the announced one
    OURS = "ours"  # this PCT writes it on this host
    THEIRS = "theirs"
    FULL = "full"  # no room
    WHOLE = "whole"  # every byte is here, and length and digest are right
    PLACED = "placed"  # it is in the parallel file system, and is the announced one
    BROKEN = "broken"


class Action(Enum):
    """An action for an image."""

    FETCH = "fetch"
    LOOK = "look"  # check again a little later whether the other PCT has written it
    TELL_FULL = "tell full"
    DROP = "drop"  # discard what was being fetched
    USE = "use"
    FAIL = "fail"


S, E, A = State, Event, Action

#: All transitions. An event that a state does not list changes nothing.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[State, Tuple[Action, ...]]] = {
    (S.ASKED, E.FOUND): (S.HERE, (A.USE,)),
    (S.ASKED, E.OURS): (S.FETCHING, (A.FETCH,)),
    (S.ASKED, E.THEIRS): (S.WAITING, (A.LOOK,)),
    (S.ASKED, E.FULL): (S.CROWDED, (A.TELL_FULL,)),
    (S.ASKED, E.BROKEN): (S.FAILED, (A.FAIL,)),
    (S.WAITING, E.FOUND): (S.HERE, (A.USE,)),
    (S.WAITING, E.OURS): (S.FETCHING, (A.FETCH,)),
    (S.WAITING, E.THEIRS): (S.WAITING, (A.LOOK,)),
    (S.WAITING, E.FULL): (S.CROWDED, (A.TELL_FULL,)),
    (S.WAITING, E.PLACED): (S.HERE, (A.USE,)),
    (S.WAITING, E.BROKEN): (S.FAILED, (A.FAIL,)),
    (S.FETCHING, E.WHOLE): (S.HERE, (A.USE,)),
    (S.FETCHING, E.FULL): (S.CROWDED, (A.DROP, A.TELL_FULL)),
    (S.FETCHING, E.PLACED): (S.HERE, (A.DROP, A.USE)),
    (S.FETCHING, E.BROKEN): (S.FAILED, (A.DROP, A.FAIL)),
    (S.CROWDED, E.PLACED): (S.HERE, (A.USE,)),
    (S.CROWDED, E.BROKEN): (S.FAILED, (A.FAIL,)),
}


class ImageMachine:
    """The state machine of an image."""

    def __init__(self) -> None:
        self.state = State.ASKED

    def handle(self, event: Event) -> Tuple[Action, ...]:
        """Apply ``event``; returns the actions in order."""
        entry = TRANSITIONS.get((self.state, event))
        if entry is None:
            return ()
        self.state, actions = entry
        return actions


def ancestors(place: int, width: int = 2) -> List[int]:
    """The places from which the node at ``place`` may fetch, nearest first: its ancestors in the data tree.

    ``width``: the number of children of a node. Place 0, the root, has none: its image comes from the launcher.
    """
    found = []
    while place > 0:
        place = (place - 1) // width
        found.append(place)
    return found


#: Bytes by which a node of a chain lags behind the one before it.
BEHIND = 256 << 10


def width(size: int, nodes: int) -> int:
    """The number of children in the data tree between machines: 1 if a chain is not slower than a tree.

    Two children halve a machine's link. But every node of a chain lags a piece behind the one before it. At 400 Mbit/s,
    16 MB reach 16 nodes by a chain in the time of one transfer, with two children in twice the time.
    """
    return 1 if nodes * BEHIND <= size else 2


class Sources:
    """The order of sources: the nearest ancestor first; stalled ones, and those without the image, are skipped.

    After the last one it begins again with the first, until ``rounds`` rounds have brought nothing.
    """

    def __init__(self, places: List[int], rounds: int = 3) -> None:
        self._places, self._rounds = places, rounds
        self._at, self._left = 0, len(places) * rounds

    def next(self) -> int:
        """The next place; -1 if no source is left."""
        if not self._left:
            return -1
        place = self._places[self._at % len(self._places)]
        self._at += 1
        self._left -= 1
        return place

    def renew(self) -> None:
        """Data has arrived, however slowly: count the rounds anew."""
        self._left = len(self._places) * self._rounds
