"""The groups of the process that starts a launch, as a kernel reported them to a daemon of that process's machine.

In system mode a launch's ranks get those of them that the node's own user database gives the user (docs/security.md).
They travel as an entry without a node's name in the ``members`` of a launch, whose digest is in its credential: so no
client can change or leave them out, and PCTs and yods of earlier versions, which know nothing of them, pass them on.
"""

from __future__ import annotations

from agents.wire.errors import WireError
from agents.wire.number_ranges import ranges, runs_in

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, List, Optional, Sequence

#: The most supplementary groups of a caller that travel. Active Directory gives a user at most 1,015; a user with
#: subordinate gids can be in 65,536, and have thousands of connections that each state them.
MOST = 1024
_MOST_TEXT = 24 * MOST
_LARGEST_GID = (1 << 32) - 2
_NO_NODE = ""


class CallerGroups:
    """``gid``: the effective one. ``others``: the supplementary groups, in order; the lowest ``MOST`` if there are
    more."""

    __slots__ = ("gid", "others")

    def __init__(self, gid: int, others: Sequence[int]) -> None:
        self.gid, self.others = gid, sorted(set(others))[:MOST]

    def as_text(self) -> str:
        """``GID:RANGES``, such as ``20:4,24-27``."""
        return f"{self.gid}:{ranges(self.others)}"

    def all(self) -> "frozenset[int]":
        """The primary group and the others."""
        return frozenset((self.gid, *self.others))


def read(text: str) -> CallerGroups:
    """Parse what ``as_text`` wrote. Raises WireError."""
    if len(text) > _MOST_TEXT:
        raise WireError("the groups of a caller are a shorter text")
    gid, colon, rest = text.partition(":")
    others: List[int] = []
    try:
        found = int(gid)
        for first, last in runs_in(rest) if rest else ():
            if last - first + len(others) >= MOST or not 0 <= first <= last:
                raise ValueError
            others += range(first, last + 1)
        if not colon or max(found, *others, 0) > _LARGEST_GID or found < 0:
            raise ValueError
    except ValueError:
        raise WireError(f"the groups of a caller are GID:RANGES, and at most {MOST}") from None
    return CallerGroups(found, others)


def entry(groups: Optional[CallerGroups]) -> List[List[str]]:
    """What is added to the members of a launch; empty if the groups are not known."""
    return [] if groups is None else [[_NO_NODE, groups.as_text()]]


def of_members(members: Any) -> Optional[CallerGroups]:
    """The groups in the members of a launch; None if its CPA did not know them. Raises WireError."""
    try:
        texts = [text for name, text in members if name == _NO_NODE]
    except (TypeError, ValueError):
        raise WireError("the members of a launch are [name, processors]") from None
    return read(str(texts[0])) if texts else None
