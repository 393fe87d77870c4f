"""One image on one node: its states, and from whom it is fetched; decided apart from files and sockets.

What does it is in agents/pct/images/broadcast.py.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple


class State(Enum):
    """Where an image is, as one node sees it."""

    ASKED = "asked"  # its digest is not known here yet
    WAITING = "waiting"  # another PCT of this host writes it
    FETCHING = "fetching"
    CROWDED = "crowded"  # no room here: it goes by the parallel file system
    HERE = "here"
    FAILED = "failed"


class Event(Enum):
    """What can happen to it."""

    FOUND = "found"  # the node's own file, or the host's one copy, is the announced one
    OURS = "ours"  # we are the one who writes it on this host
    THEIRS = "theirs"
    FULL = "full"  # no room
    WHOLE = "whole"  # every byte is here, length and digest are right
    PLACED = "placed"  # it stands in the parallel file system, and is the announced one
    BROKEN = "broken"


class Action(Enum):
    """What is to be done."""

    FETCH = "fetch"
    LOOK = "look"  # again, a little later, whether the other has written it
    TELL_FULL = "tell full"
    DROP = "drop"  # what was being fetched
    USE = "use"
    FAIL = "fail"


S, E, A = State, Event, Action

#: Every transition there is. An event that a state does not name changes nothing.
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
    """Walks the table."""

    def __init__(self) -> None:
        self.state = State.ASKED

    def handle(self, event: Event) -> Tuple[Action, ...]:
        """What ``event`` asks for now, in order."""
        entry = TRANSITIONS.get((self.state, event))
        if entry is None:
            return ()
        self.state, actions = entry
        return actions


def ancestors(place: int, width: int = 2) -> List[int]:
    """The places from which the node at ``place`` may fetch, nearest first: its ancestors in the data tree.

    ``width``: children of a node in it. Place 0, the root, has none: its image comes from the launcher.
    """
    found = []
    while place > 0:
        place = (place - 1) // width
        found.append(place)
    return found


#: Bytes that a node of a chain is behind the one before it.
BEHIND = 256 << 10


def width(size: int, nodes: int) -> int:
    """Children of a node in the data tree between machines: one, where a chain costs no second transfer.

    A machine's link is as wide for one child as for two, and two halve it; but every node of a chain is a piece behind
    the one before. At 400 Mbit/s 16 MB reach 16 nodes by a chain in the time of one transfer, by two children in two.
    """
    return 1 if nodes * BEHIND <= size else 2


class Sources:
    """From whom to fetch next: the nearest ancestor first; who stands still or has it not is passed over.

    After the last one it begins again with the first, until ``rounds`` have brought nothing.
    """

    def __init__(self, places: List[int], rounds: int = 3) -> None:
        self._places, self._rounds = places, rounds
        self._at, self._left = 0, len(places) * rounds

    def next(self) -> int:
        """The next place; -1 when nobody is left."""
        if not self._left:
            return -1
        place = self._places[self._at % len(self._places)]
        self._at += 1
        self._left -= 1
        return place

    def renew(self) -> None:
        """Something has come: however slow it is, the rounds are counted anew."""
        self._left = len(self._places) * self._rounds
