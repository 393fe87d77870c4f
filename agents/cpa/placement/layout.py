"""The positions of all processors, as placements need them. Built once for a machine and cached by the caller.

Building takes about 30 ms for 10,000 processors; curves are built when first needed, and cached here.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from agents.cpa.placement import curves
from agents.wire.errors import AgentError
from db.allocation.free_ids import FreeIds
from db.topology import Cluster, Mesh, Topology
from redmesh.text import counted

#: A node of a cluster: its name and its processors in the order of their slots.
Node = tuple[str, Sequence[int]]


class NoMesh(AgentError):
    """A placement that needs a mesh was requested on a cluster."""

    code = "invalid"


class Unplaced(AgentError):
    """A free processor that the description of the machine does not contain."""

    code = "internal"

    def __init__(self, layout: "Layout") -> None:
        super().__init__(
            f"the topology has {counted(layout.known, 'processor')} up to {layout.size - 1},"
            " and others are free in the mesh",
            "compare the two: mesh topology check",
        )


class Curve:
    """All processors in one order. An unused seat separates stretches that do not touch."""

    def __init__(self, stretches: Sequence[Sequence[int]], size: int) -> None:
        self.seats: list[int] = []
        self.position = [-1] * size  # -1 for a processor that is not described
        for stretch in stretches:
            for processor in stretch:
                self.position[processor] = len(self.seats)
                self.seats.append(processor)
            self.seats.append(size)  # flags are one longer than the machine, and the last one is never set
        self._pick = itemgetter(*self.seats) if len(self.seats) > 1 else tuple
        self._flags, self._taken = b"", bytearray()

    def in_order(self, values: bytes | bytearray) -> bytes:
        """One byte for every seat: the value of its processor; between stretches the last value."""
        return bytes(self._pick(values))

    def taken_in_order(self, flags: bytes | bytearray) -> bytes:
        """The same for flags (0 or 1). Updates only what changed since the last call: computing everything takes
        five times as long, while others wait for the lock."""
        if len(flags) != len(self._flags):
            self._taken = bytearray(self.in_order(flags))
        else:
            before, now = int.from_bytes(self._flags, "little"), int.from_bytes(flags, "little")
            changed = (before ^ now).to_bytes(len(flags), "little")
            one = changed.find(1)
            while one >= 0:
                if self.position[one] >= 0:
                    self._taken[self.position[one]] = flags[one]
                one = changed.find(1, one + 1)
        self._flags = bytes(flags)
        return bytes(self._taken)

    def sort(self, processors: Iterable[int]) -> list[int]:
        """The processors in the order of the curve."""
        return sorted(processors, key=self.position.__getitem__)


class Layout:
    """A topology with its processors; for a cluster, ``nodes`` says which processors each node has."""

    def __init__(self, topology: Topology, nodes: Iterable[Node] = ()) -> None:
        self.topology = topology
        self.mesh = topology if isinstance(topology, Mesh) else None
        self.nodes: list[tuple[str, list[int]]] = [(name, list(processors)) for name, processors in nodes]
        if self.mesh is not None:
            self.size = self.mesh.size
        else:
            self.size = 1 + max((max(processors) for _, processors in self.nodes if processors), default=-1)
        self._curves: dict[str, Curve] = {}
        #: Data that placements derive from the machine, under keys of their own.
        self.derived: dict[Any, Any] = {}

    def flags(self, free: Iterable[int]) -> bytearray:
        """One byte for every processor id, 1 if the processor is free, and a 0 at the end."""
        if isinstance(free, FreeIds):  # a FreeIds already has its flags
            if free.flags.rfind(1) >= self.size:
                raise Unplaced(self)
            return bytearray(free.flags[: self.size].ljust(self.size + 1, b"\0"))
        found = bytearray(self.size + 1)
        try:
            for processor in free:
                found[processor] = 1
        except IndexError:
            raise Unplaced(self) from None
        found[self.size] = 0
        return found

    @property
    def known(self) -> int:
        """The number of processors; ids of a cluster may have gaps."""
        return self.size if self.mesh is not None else sum(len(processors) for _, processors in self.nodes)

    @property
    def cluster(self) -> Cluster:
        """The topology of a machine that is not a mesh."""
        assert not isinstance(self.topology, Mesh)
        return self.topology

    def need_mesh(self, what: str) -> Mesh:
        """The mesh. Raises NoMesh, which names the placement, if the machine is a cluster."""
        if self.mesh is None:
            raise NoMesh(f"the placement {what} needs a mesh", f"this machine is described as {self.topology.kind}")
        return self.mesh

    def curve(self, name: str = "hilbert") -> Curve:
        """``hilbert`` or ``snake`` through a mesh; in a cluster both are the order of its tree."""
        found = self._curves.get(name)
        if found is None:
            found = self._curves[name] = Curve(self._stretches(name), self.size)
        return found

    def _stretches(self, name: str) -> list[list[int]]:
        if self.mesh is None:
            return [self._along_the_tree()]
        kinds: tuple[Sequence[int], Sequence[int]] = (self.mesh.compute_columns, self.mesh.service_columns)
        return [self._through(name, columns) for columns in kinds for columns in _neighbouring(columns)]

    def _through(self, name: str, columns: Sequence[int]) -> list[int]:
        mesh = self.need_mesh(name)
        sides = (len(columns), mesh.height, mesh.depth)
        # Fold short sides first: the curve then fills a thin slab of the machine before it continues.
        order = sorted(range(3), key=sides.__getitem__)
        axes = (order[0], order[1], order[2])
        cells = curves.hilbert(sides, axes) if name == "hilbert" else curves.snake(sides, axes)
        first = columns[0]
        there = (mesh.at(first + x, y, z) for x, y, z in cells)
        return [processor for processor in there if processor is not None]

    def _along_the_tree(self) -> list[int]:
        rank = {name: index for index, name in enumerate(self.cluster.nodes)}
        there = sorted(self.nodes, key=lambda node: rank.get(node[0], len(rank)))
        return [processor for _, processors in there for processor in processors]


#: The layout of the machine for a placement; None: unknown, so processors are a line in the order of their ids.
Geometry = Layout | None


def need(geometry: Geometry, what: str) -> Layout:
    """The layout. Raises NoMesh, which names the placement, if there is none."""
    if not isinstance(geometry, Layout):
        raise NoMesh(f"the placement {what} needs the machine's topology", "describe it in [topology], or use best_fit")
    return geometry


def _neighbouring(columns: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for column in columns:
        if found and found[-1][-1] == column - 1:
            found[-1].append(column)
        else:
            found.append([column])
    return found
