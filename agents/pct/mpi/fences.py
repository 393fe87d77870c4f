"""Fences of PMI and PMIx: keys that ranks put are gathered at a fence, and known to all ranks after it.

No I/O; one Exchange for each launch child. It knows which local ranks and subtrees have entered the fence, which ranks
have exited, and what was put since the last fence. agents/pct/mpi/pmi_server.py sends its data up and down the tree.
"""

from __future__ import annotations

from agents.link.lean import Enum
from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple


#: Limits in characters: keys and values in one message, and all that a launch may put.
CHUNK, MOST = 1 << 20, 256 << 20
KEY_MAX, VALUE_MAX = 1024, 65536


class State(Enum):
    """The state of a fence on one node."""

    GATHERING = "gathering"  # some ranks of this subtree have not entered yet
    GATHERED = "gathered"  # all have entered, and the parent knows
    BROKEN = "broken"  # it can never complete


class Event(Enum):
    """An event of a fence."""

    COMPLETE = "complete"  # all ranks of this subtree have entered or exited
    RELEASED = "released"  # the data of all ranks is here
    BROKE = "broke"  # complete at the root, but some ranks have exited instead of entering


S, E = State, Event

#: All transitions; the root of the tree goes from gathered to released or broken at once.
TRANSITIONS: Dict[Tuple[State, Event], State] = {
    (S.GATHERING, E.COMPLETE): S.GATHERED,
    (S.GATHERED, E.RELEASED): S.GATHERING,
    (S.GATHERED, E.BROKE): S.BROKEN,
}


class TooMuch(Exception):
    """Keys or values exceed a limit, which the message names."""


class Exchange:
    """The fences of a launch on one node. ``below``: the ranks of each child."""

    def __init__(self, ranks: Sequence[int], below: "Mapping[str, Sequence[int]]") -> None:
        self.state = State.GATHERING
        self.number = 0  # completed fences
        self.known: Dict[str, str] = {}
        self._ranks = frozenset(ranks)
        self._below = below
        self._inside: Set[int] = set()
        self._ended: Set[int] = set()
        self._arrived: Set[str] = set()
        self._gone: Set[str] = set()
        self._absent: Set[int] = set()  # as reported by children
        self._fresh: Dict[str, str] = {}
        self._coming: Dict[str, str] = {}
        self._size = 0

    def put(self, key: str, value: str) -> None:
        """A local rank puts a key: visible at once on its node, and everywhere after the next fence. Raises TooMuch."""
        if not key or len(key) > KEY_MAX or len(value) > VALUE_MAX:
            raise TooMuch(f"a key of {len(key)} or a value of {len(value)} characters is over what is allowed")
        self._count(len(key) + len(value))
        self._fresh[key] = self.known[key] = value

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > MOST:
            raise TooMuch(f"more than {MOST >> 20} MiB of keys and values were put")

    def enter(self, rank: int) -> None:
        """``rank`` enters the fence."""
        self._inside.add(rank)

    def ended(self, rank: int) -> None:
        """``rank`` has exited, and enters no further fence."""
        self._ended.add(rank)
        self._inside.discard(rank)

    def child_put(self, number: int, puts: "List[Any]") -> None:
        """A part of what a subtree has put. Raises WireError or TooMuch."""
        if number != self.number:
            raise WireError(f"fence {number} from below while this node is at {self.number}")
        for key, value in pairs(puts):
            self._count(len(key) + len(value))
            self._fresh[key] = value

    def child_inside(self, child: str, absent: "List[int]") -> None:
        """All ranks of the subtree have entered the fence, except the ``absent``, which have exited."""
        self._arrived.add(child)
        self._absent.update(absent)

    def child_gone(self, child: str) -> None:
        """Every rank of the subtree has exited."""
        self._gone.add(child)

    def complete(self) -> bool:
        """True if this subtree's part of the fence has just completed; then its puts are sent up."""
        if self.state is not State.GATHERING or not (self._inside or self._arrived):
            return False
        if self._inside | self._ended != self._ranks or len(self._arrived | self._gone) != len(self._below):
            return False
        self._go(Event.COMPLETE)
        return True

    def absent(self) -> List[int]:
        """Ranks of this subtree that exited instead of entering."""
        gone = [rank for child in self._gone - self._arrived for rank in self._below[child]]
        return sorted({*self._ended, *self._absent, *gone})

    def waiting(self) -> List[int]:
        """Local ranks in the fence."""
        return sorted(self._inside)

    def fresh(self) -> Iterator[List[str]]:
        """The puts of this subtree since the last fence, in parts: key, value, key, value …"""
        return parts(self._fresh)

    def coming(self, number: int, puts: "List[Any]") -> None:
        """A part of what all ranks have put. Raises WireError."""
        if number != self.number or self.state is not State.GATHERED:
            raise WireError(f"fence {number} is over while this node is at {self.number}")
        self._coming.update(pairs(puts))

    def release(self) -> List[int]:
        """Complete the fence; returns the local ranks that were in it. At the root, the gathered puts are the
        result."""
        self._go(Event.RELEASED)
        self.known.update(self._fresh)
        self.known.update(self._coming)
        waiting = self.waiting()
        self.number += 1
        self._fresh, self._coming = {}, {}
        self._inside, self._arrived, self._absent = set(), set(), set()
        return waiting

    def break_up(self) -> None:
        """The fence will never complete."""
        self._go(Event.BROKE)

    def _go(self, event: Event) -> None:
        entry: Optional[State] = TRANSITIONS.get((self.state, event))
        if entry is None:
            raise WireError(f"a fence that is {self.state.value} cannot become {event.value}")
        self.state = entry


def pairs(puts: "List[Any]") -> "Iterator[Tuple[str, str]]":
    """Keys with their values from a flat list. Raises WireError for a malformed one."""
    if len(puts) % 2 or not all(isinstance(item, str) for item in puts):
        raise WireError("keys and values that are not texts")
    turn = iter(puts)
    return zip(turn, turn)  # noqa: B905  (strict needs Python 3.10; the length is even)


def parts(puts: Dict[str, str]) -> Iterator[List[str]]:
    """Split keys and values into lists of about CHUNK characters; at least one list."""
    part: List[str] = []
    size = 0
    for key, value in puts.items():
        part += (key, value)
        size += len(key) + len(value)
        if size >= CHUNK:
            yield part
            part, size = [], 0
    yield part
