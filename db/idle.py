"""The machine as it would be were nothing running and every node up: what a request could ever be given.

A request that finds too little is decided once more on this. Whoever is refused there too is told so at once, however
long it would wait; whoever is not may wait. Nodes that are down, drained or failed count as there, as with Slurm and
Flux: somebody is expected to mend them. Who may have what (modes, reservations, sides, service nodes) counts as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from db.free import Machine
from db.free_ids import FreeIds


class Idle(Machine):
    """The same picture, asked the same questions: for one decision, while the picture stands."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        vars(self).update(vars(machine))

    def free(
        self, user: str, batch: bool = False, interactive: bool = True, service: bool = False, side: int | None = None
    ) -> FreeIds:
        """What ``user`` could be given."""
        ids = self.reachable(user, batch, service, side)
        flags = bytearray(max(ids, default=-1) + 1)
        for one in ids:
            flags[one] = 1
        return FreeIds(bytes(flags))

    def leaving(self, login: str) -> bool:
        """Never: a change of sides ends, or is given up."""
        return False

    def free_in(self, partition: int) -> list[int]:
        """All processors of a partition."""
        return sorted(self.all_in(partition))

    def left_on(self, node: int, name: str) -> int:
        """How much of a resource a node has."""
        return self._totals.get(node, {}).get(name, 0)


def first(free: Sequence[int], count: int) -> Sequence[int]:
    """A choice where it only matters whether there are so many."""
    return free[:count]
