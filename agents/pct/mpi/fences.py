"""The fences of PMI and PMIx: keys that ranks put are gathered at a fence, and known to all behind it.

Pure: one Exchange a launch child. It knows who of its node and of the subtrees below stands in the fence, who has
ended and never will, and what was put since the last one; agents/pct/mpi/pmi_server.py carries it up and down the tree.
"""

from __future__ import annotations

from agents.link.lean import Enum
from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple


#: Characters of keys and values in one message, and of all that a launch may put.
CHUNK, MOST = 1 << 20, 256 << 20
KEY_MAX, VALUE_MAX = 1024, 65536


class State(Enum):
    """Where a fence is, as one node sees it."""

    GATHERING = "gathering"  # somebody of this subtree is still to come
    GATHERED = "gathered"  # all are here, and the parent knows
    BROKEN = "broken"  # it can never be complete


class Event(Enum):
    """What can happen to a fence."""

    COMPLETE = "complete"  # nobody of this subtree is to come any more
    RELEASED = "released"  # what all have put is here
    BROKE = "broke"  # complete at the root, but some have ended instead of coming


S, E = State, Event

#: Every transition there is; the root of the tree passes from gathered to released or broken at once.
TRANSITIONS: Dict[Tuple[State, Event], State] = {
    (S.GATHERING, E.COMPLETE): S.GATHERED,
    (S.GATHERED, E.RELEASED): S.GATHERING,
    (S.GATHERED, E.BROKE): S.BROKEN,
}


class TooMuch(Exception):
    """Keys or values over what is allowed; the message says which."""


class Exchange:
    """The fences of one launch on one node. ``below``: for each child its ranks."""

    def __init__(self, ranks: Sequence[int], below: "Mapping[str, Sequence[int]]") -> None:
        self.state = State.GATHERING
        self.number = 0  # fences that are behind us
        self.known: Dict[str, str] = {}
        self._ranks = frozenset(ranks)
        self._below = below
        self._inside: Set[int] = set()
        self._ended: Set[int] = set()
        self._arrived: Set[str] = set()
        self._gone: Set[str] = set()
        self._absent: Set[int] = set()  # as children tell
        self._fresh: Dict[str, str] = {}
        self._coming: Dict[str, str] = {}
        self._size = 0

    def put(self, key: str, value: str) -> None:
        """A rank of this node puts a key: its node sees it at once, all behind the next fence. TooMuch."""
        if not key or len(key) > KEY_MAX or len(value) > VALUE_MAX:
            raise TooMuch(f"a key of {len(key)} or a value of {len(value)} characters is over what is allowed")
        self._count(len(key) + len(value))
        self._fresh[key] = self.known[key] = value

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > MOST:
            raise TooMuch(f"more than {MOST >> 20} MiB of keys and values were put")

    def enter(self, rank: int) -> None:
        """``rank`` stands in the fence."""
        self._inside.add(rank)

    def ended(self, rank: int) -> None:
        """``rank`` is gone, and enters no fence any more."""
        self._ended.add(rank)
        self._inside.discard(rank)

    def child_put(self, number: int, puts: "List[Any]") -> None:
        """A part of what a subtree has put. WireError, TooMuch."""
        if number != self.number:
            raise WireError(f"fence {number} from below while this node is at {self.number}")
        for key, value in pairs(puts):
            self._count(len(key) + len(value))
            self._fresh[key] = value

    def child_inside(self, child: str, absent: "List[int]") -> None:
        """Everybody of the subtree stands in the fence, or is among the ``absent``, who have ended."""
        self._arrived.add(child)
        self._absent.update(absent)

    def child_gone(self, child: str) -> None:
        """Every rank of the subtree has ended."""
        self._gone.add(child)

    def complete(self) -> bool:
        """Whether the fence has become complete just now, as far as this subtree goes: then its puts go up."""
        if self.state is not State.GATHERING or not (self._inside or self._arrived):
            return False
        if self._inside | self._ended != self._ranks or len(self._arrived | self._gone) != len(self._below):
            return False
        self._go(Event.COMPLETE)
        return True

    def absent(self) -> List[int]:
        """Ranks of this subtree that ended instead of coming."""
        gone = [rank for child in self._gone - self._arrived for rank in self._below[child]]
        return sorted({*self._ended, *self._absent, *gone})

    def waiting(self) -> List[int]:
        """Ranks of this node that stand in the fence."""
        return sorted(self._inside)

    def fresh(self) -> Iterator[List[str]]:
        """What was put in this subtree since the last fence: key, value, key, value …, in parts."""
        return parts(self._fresh)

    def coming(self, number: int, puts: "List[Any]") -> None:
        """A part of what all ranks have put. WireError."""
        if number != self.number or self.state is not State.GATHERED:
            raise WireError(f"fence {number} is over while this node is at {self.number}")
        self._coming.update(pairs(puts))

    def release(self) -> List[int]:
        """The fence is over: the ranks of this node that stood in it. At the root, what it has gathered is all."""
        self._go(Event.RELEASED)
        self.known.update(self._fresh)
        self.known.update(self._coming)
        waiting = self.waiting()
        self.number += 1
        self._fresh, self._coming = {}, {}
        self._inside, self._arrived, self._absent = set(), set(), set()
        return waiting

    def break_up(self) -> None:
        """The fence will never be over."""
        self._go(Event.BROKE)

    def _go(self, event: Event) -> None:
        entry: Optional[State] = TRANSITIONS.get((self.state, event))
        if entry is None:
            raise WireError(f"a fence that is {self.state.value} cannot become {event.value}")
        self.state = entry


def pairs(puts: "List[Any]") -> "Iterator[Tuple[str, str]]":
    """Key and value, one after the other. WireError for what is no such list."""
    if len(puts) % 2 or not all(isinstance(item, str) for item in puts):
        raise WireError("keys and values that are not texts")
    turn = iter(puts)
    return zip(turn, turn)  # noqa: B905  (strict needs Python 3.10; the length is even)


def parts(puts: Dict[str, str]) -> Iterator[List[str]]:
    """Keys and values in lists of about CHUNK characters; at least one list."""
    part: List[str] = []
    size = 0
    for key, value in puts.items():
        part += (key, value)
        size += len(key) + len(value)
        if size >= CHUNK:
            yield part
            part, size = [], 0
    yield part
