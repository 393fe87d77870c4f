"""Sections of several ranks: all ranks of a launch run one section together, and end with it. No I/O."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Protocol

    class Member(Protocol):
        """A worker: a rank of the launch."""

        node: str
        rank: int


class Team:
    """The workers of a launch of ``size`` ranks. ``over``: its section has ended, or there is none, so its workers
    exit."""

    __slots__ = ("_failed", "members", "over", "rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.members: List[Any] = []
        self.rows: Dict[Any, List[Any]] = {}  # the result of each member whose rank of the section has ended
        self.over = False
        self._failed: Optional[Any] = None  # the member that failed first

    @property
    def complete(self) -> bool:
        """True if every rank of the launch has asked for work."""
        return len(self.members) == self.size

    @property
    def node(self) -> str:
        """The nodes of the members, separated by commas."""
        return ",".join(sorted({member.node for member in self.members}))

    def take(self, member: Member, row: List[Any]) -> List[Any]:
        """Record the result of one rank. Returns the members whose ranks must be killed because this one failed."""
        self.rows[member] = row
        if self._failed is not None or not (row[2] or row[6]):
            return []
        self._failed = member
        return [other for other in self.members if other not in self.rows]

    @property
    def ended(self) -> bool:
        """True if every rank of the section has ended."""
        return len(self.rows) == self.size

    @property
    def blamed(self) -> str:
        """The node of the rank that failed first, otherwise all nodes."""
        return self.node if self._failed is None else str(self._failed.node)

    def result(self) -> List[Any]:
        """The section's result: that of the rank that failed first, or of rank 0, with the last lines of every rank.

        The lines of the deciding rank come last, because the first lines are cut off if there are too many.
        """
        members = sorted(self.rows, key=lambda member: -int(member.rank))
        chosen = self._failed or members[-1]
        members.sort(key=lambda member: member is chosen)
        lines = ""
        for member in members:
            if self.rows[member][5]:
                lines += f"--- rank {member.rank} on {member.node}\n" + str(self.rows[member][5]).rstrip("\n") + "\n"
        row = list(self.rows[chosen])
        row[3] = min(one[3] for one in self.rows.values())
        row[4] = max(one[4] for one in self.rows.values())
        row[5] = lines
        return row
