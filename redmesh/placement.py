"""What a placement of your own needs, without anything of Redmesh's own rooms (docs/placement.md).

A distribution names its placements as entry points of the group ``redmesh.placement``. A placement is a function
``place(free, count, geometry)``: see ``Placement``. The compute processor allocator (CPA) calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol


class PlacementError(Exception):
    """A placement refuses a request: ``message`` says why, ``hint`` what to do next. Both reach the user.

    ``may_wait``: the processors may become free later, so a launch with ``-wait-for-nodes`` waits for them.
    """

    def __init__(self, message: str, hint: str = "", *, may_wait: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.may_wait = message, hint, may_wait


class Topology(Protocol):
    """The machine, as ``[topology]`` of ``mesh.toml`` describes it (docs/topology.md). It never changes.

    ``kind`` is ``mesh``, ``flat``, ``racks`` or ``tree``. The other methods of a kind are in docs/topology.md.
    """

    @property
    def kind(self) -> str:
        """The word for the kind of machine."""

    def to_dict(self) -> Mapping[str, object]:
        """The section ``[topology]``."""


class Curve(Protocol):
    """All processors of the machine in one order that keeps neighbours close together."""

    #: Processor ids in the order of the curve. An unused id stands between two stretches that do not touch.
    seats: list[int]
    #: The index of each processor in ``seats``, by processor id; -1 for an unused id.
    position: list[int]

    def sort(self, processors: Iterable[int]) -> list[int]:
        """The processors in the order of the curve."""


class Layout(Protocol):
    """The machine and its processors. The CPA makes one and keeps it for as long as the machine stays the same."""

    #: One more than the highest processor id.
    size: int
    #: For a cluster: the name and processors of each node.
    nodes: list[tuple[str, list[int]]]
    #: Storage for a placement's own tables, each under its own key. The tables live as long as this layout.
    derived: dict[Any, Any]

    @property
    def topology(self) -> Topology:
        """The description of the machine."""

    def curve(self, name: str = "hilbert") -> Curve:
        """The curve ``hilbert`` or ``snake``; for a cluster both are the order of its switches."""

    def flags(self, free: Iterable[int]) -> bytearray:
        """A byte for each processor id, 1 if the processor is free, and a 0 at the end."""


#: The machine, or None if only processor ids are known.
Geometry = Layout | None
#: ``place(free, count, geometry)`` returns ``count`` different ids of ``free`` in the order of ranks. ``free`` is
#: ascending, 1 ≤ count ≤ len(free). The same arguments give the same result.
Placement = Callable[[Sequence[int], int, Geometry], Sequence[int]]
