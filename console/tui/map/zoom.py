"""The zoom levels: machine, cabinet or rack, node; and the chart of each. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from console.tui.map.charts import Chart, Group, cabinets, groups
from console.tui.map.layout import Block, Layout, Lines
from console.tui.model.machine import Machine
from db.topology import Cluster, Mesh, Topology, TopologyError, from_json


class Place(NamedTuple):
    """The part of the machine on the map. ``kind``: machine, cabinet (also a rack or a switch's nodes), node."""

    kind: str = "machine"
    name: str = ""  # the name of the cabinet or node


MACHINE = Place()
_ELSEWHERE = "elsewhere"  # processors that the mesh of cabinets has no place for


class Structure:
    """The structure of a machine: the place of a processor at each level of zoom."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._topology: Topology
        try:
            self._topology = from_json(machine.topology)
        except TopologyError:  # written by a newer version; the nodes are shown anyway
            self._topology = from_json(None)

    @property
    def has_cabinets(self) -> bool:
        """True if there is a level between machine and node."""
        topology = self._topology
        return isinstance(topology, Mesh) or topology.kind != "flat"

    @property
    def word(self) -> str:
        """The name of the level between machine and node: cabinet, rack, switch."""
        topology = self._topology
        if isinstance(topology, Mesh):
            return "cabinet"
        return "rack" if topology.kind == "racks" else "switch"

    def cabinet(self, cell: int) -> str:
        """The cabinet of a processor: ``c3-1``, or the name of its rack or switch."""
        topology, row = self._topology, self._machine.processors[cell]
        if isinstance(topology, Mesh):
            if not 0 <= row.id < topology.size:
                return _ELSEWHERE
            x, y, _ = topology.place(row.id)
            return f"c{x}-{y // topology.routers}"
        return _switch(topology, self._machine.nodes[self._machine.node_of(cell)].name)

    def where(self, cell: int) -> str:
        """The position of a processor in words: ``cabinet c3-1, cage 0, board 7``; empty in a flat cluster."""
        topology, row = self._topology, self._machine.processors[cell]
        if not self.has_cabinets:
            return ""
        text = f"{self.word} {self.cabinet(cell)}"
        if isinstance(topology, Mesh) and 0 <= row.id < topology.size:
            cage, board = divmod(topology.place(row.id)[2], topology.boards)
            text += f", cage {cage}, board {board}"
        return text

    def inside(self, place: Place, cell: int) -> Place:
        """The next level in, at that processor; the place itself at the innermost level."""
        machine = self._machine
        if place.kind == "machine" and self.has_cabinets:
            return Place("cabinet", self.cabinet(cell))
        if place.kind != "node":
            return Place("node", machine.nodes[machine.node_of(cell)].name)
        return place

    def outside(self, place: Place, cell: int | None) -> Place:
        """The next level out."""
        if place.kind == "node" and self.has_cabinets and cell is not None:
            return Place("cabinet", self.cabinet(cell))
        return MACHINE

    def path(self, place: Place, cell: int | None) -> str:
        """``rack r3 › node node051``; empty for the machine. Names of nodes in a mesh of cabinets contain their
        position."""
        if place.kind == "machine":
            return ""
        if place.kind == "cabinet":
            return f"{self.word} {place.name}"
        told = not self.has_cabinets or isinstance(self._topology, Mesh) or cell is None
        above = "" if told or cell is None else f"{self.word} {self.cabinet(cell)} › "
        return f"{above}node {place.name}"

    def side_seen(self) -> str:
        """``side 2`` if only that side is visible; empty for the whole machine."""
        topology = self._topology
        if not isinstance(topology, Mesh) or not topology.open:
            return ""
        side = topology.only_side({node.side for node in self._machine.nodes})
        return "" if side is None else f"side {side.number}"

    def chart(self, place: Place, width: int, height: int, *, whole: bool = True) -> Chart:
        """The chart of the place in that space. ``whole``: all of it on the screen; otherwise every processor a
        tile."""
        machine = self._machine
        if place.kind == "node":
            return self._node(place.name, width, height)
        if place.kind == "cabinet":
            return self._cabinet(place.name, width, height)
        if isinstance(self._topology, Mesh) and machine.cells:
            return cabinets(self._topology, machine.cell_of, max(8, width), height, whole=whole)
        if self.has_cabinets and machine.cells:
            return groups(self._racks(), max(8, width), height, whole=whole)
        return _of(range(machine.cells), Layout(node_blocks(machine), width, height))

    def _node(self, name: str, width: int, height: int) -> Chart:
        machine = self._machine
        cells = next((machine.node_cells(i) for i, node in enumerate(machine.nodes) if node.name == name), range(0))
        return _of(cells, Layout([Block("", 0, len(cells))], width, height))

    def _cabinet(self, name: str, width: int, height: int) -> Chart:
        topology = self._topology
        if isinstance(topology, Mesh):
            order, found = self._cages(topology, name)
            chart = groups(found, max(8, width), height)
            return Chart(chart.density, chart.lines, [[order[i] for i in tile] for tile in chart.members])
        blocks = next((group.blocks for group in self._racks() if group.title == name), [])
        order = [block.first + i for block in blocks for i in range(block.cells)]
        # A single rack: a plain layout can put several of its nodes on one line.
        moved, first = [], 0
        for block in blocks:
            moved.append(Block(block.label, first, block.cells))
            first += block.cells
        return _of(order, Layout(moved, width, height))

    def cells_of(self, cabinet: str) -> list[int]:
        """The cells of a cabinet, of a rack, or of a switch's nodes."""
        topology = self._topology
        if isinstance(topology, Mesh):
            if cabinet == _ELSEWHERE:
                rows = enumerate(self._machine.processors)
                return [cell for cell, row in rows if not 0 <= row.id < topology.size]
            return sorted(cell for cells in self._boards(topology, cabinet).values() for cell in cells)
        blocks = next((group.blocks for group in self._racks() if group.title == cabinet), [])
        return [block.first + i for block in blocks for i in range(block.cells)]

    def _boards(self, mesh: Mesh, cabinet: str) -> dict[int, list[int]]:
        """The cells of each board of a cabinet, by its number."""
        named = ((x, row) for x in range(mesh.columns) for row in range(mesh.rows) if f"c{x}-{row}" == cabinet)
        x, row = next(named, (-1, -1))  # Mesh.at knows no place outside
        found: dict[int, list[int]] = {}
        for z in range(mesh.depth):
            places = (mesh.at(x, row * mesh.routers + router, z) for router in range(mesh.routers))
            cells = (self._machine.cell_of(place) for place in places if place is not None)
            if there := sorted(cell for cell in cells if cell is not None):
                found[z] = there
        return found

    def _cages(self, mesh: Mesh, name: str) -> tuple[list[int], list[Group]]:
        """A cabinet's cells in order, and its cages with their boards as runs of that order."""
        order: list[int] = []
        cages: dict[int, list[Block]] = {}
        for z, cells in self._boards(mesh, name).items():
            cage, board = divmod(z, mesh.boards)
            cages.setdefault(cage, []).append(Block(f"s{board}", len(order), len(cells)))
            order += cells
        return order, [Group(f"cage {cage}", blocks) for cage, blocks in cages.items()]

    def _racks(self) -> list[Group]:
        """Racks (or the lowest switches) with their nodes, as the topology lists them."""
        assert isinstance(self._topology, Cluster)
        found: dict[str, list[Block]] = {_switch(self._topology, name): [] for name in self._topology.nodes}
        for block in node_blocks(self._machine):
            found.setdefault(_switch(self._topology, block.label), []).append(block)
        return [Group(name, blocks) for name, blocks in found.items() if blocks]


def node_blocks(machine: Machine) -> list[Block]:
    """The nodes that have processors, for the layout."""
    cells = ((node.name, machine.node_cells(index)) for index, node in enumerate(machine.nodes))
    return [Block(name, there.start, len(there)) for name, there in cells if there]


def _switch(cluster: Cluster, node: str) -> str:
    return "/".join(cluster.path(node)).strip("/") or ("no rack" if cluster.kind == "racks" else "top switch")


def _of(order: Sequence[int], lines: Lines) -> Chart:
    """A tile for each of these cells, laid out as they stand in ``order``."""
    return Chart(lines.density, lines.lines, [(cell,) for cell in order])
