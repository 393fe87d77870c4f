"""Packing into few switches and few hosts: for clusters, and for cabinets, cages and boards of a mesh.

Chooses the lowest switch with enough free processors below it, the fullest of equals. Below it, takes whole members
while they fit, and the rest from the fullest member that has room. A flat cluster has one switch, so hosts are packed.
"""

from collections.abc import Sequence

from agents.cpa.placement.layout import Geometry, Layout, Unplaced, need


class Tree:
    """Switches above hosts above processors; vertices by number, a parent before its children, 0 is the root."""

    def __init__(self, layout: Layout, switches: bool) -> None:
        self.parent = [-1]
        self.height = [1]
        self.children: list[list[int]] = [[]]
        self.processors: dict[int, list[int]] = {}
        known: dict[tuple[object, ...], int] = {(): 0}
        for path, processors in _hosts(layout, switches):
            for depth in range(1, len(path) + 1):
                if path[:depth] not in known:
                    known[path[:depth]] = self._add(known[path[: depth - 1]])
            self.processors.setdefault(known[path], []).extend(processors)
        for vertex in reversed(range(1, len(self.parent))):
            above = self.parent[vertex]
            self.height[above] = max(self.height[above], self.height[vertex] + 1)

    def _add(self, above: int) -> int:
        vertex = len(self.parent)
        self.parent.append(above)
        self.height.append(0)
        self.children.append([])
        self.children[above].append(vertex)
        return vertex

    def count(self, flags: bytearray) -> list[int]:
        """The number of free processors below every vertex."""
        free = [0] * len(self.parent)
        for host, processors in self.processors.items():
            free[host] = sum(map(flags.__getitem__, processors))
        for vertex in reversed(range(1, len(self.parent))):
            free[self.parent[vertex]] += free[vertex]
        return free

    def take(self, vertex: int, need: int, free: list[int], flags: bytearray) -> list[int]:
        """Take ``need`` free processors from below ``vertex``, which has at least as many."""
        if vertex in self.processors:
            return [one for one in self.processors[vertex] if flags[one]][:need]
        taken: list[int] = []
        left = [child for child in self.children[vertex] if free[child]]
        left.sort(key=free.__getitem__, reverse=True)
        while left and len(taken) < need:
            rest = need - len(taken)
            roomy = [child for child in left if free[child] >= rest]
            # Sorted from most to least free, so the last with room is the fullest.
            chosen = roomy[-1] if roomy else left[0]
            left.remove(chosen)
            taken += self.take(chosen, min(rest, free[chosen]), free, flags)
        return taken


def rack_packed(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Use the fewest levels of switches, then the fewest members of each."""
    return _packed(free, count, need(geometry, "rack_packed"), switches=True)


def host_packed(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Use the fewest hosts, wherever they are."""
    return _packed(free, count, need(geometry, "host_packed"), switches=False)


def _packed(free: Sequence[int], count: int, layout: Layout, switches: bool) -> list[int]:
    tree = layout.derived.get(("tree", switches))
    if tree is None:
        tree = layout.derived["tree", switches] = Tree(layout, switches)
    flags = layout.flags(free)
    there = tree.count(flags)
    if there[0] < count:
        raise Unplaced(layout)
    enough = (vertex for vertex, many in enumerate(there) if many >= count)
    lowest = min(enough, key=lambda vertex: (tree.height[vertex], there[vertex]))
    return layout.curve().sort(tree.take(lowest, count, there, flags))


def _hosts(layout: Layout, switches: bool) -> list[tuple[tuple[object, ...], list[int]]]:
    """The path from the root to every host, and its processors. On a mesh a board is a host."""
    if layout.mesh is None:
        cluster = layout.cluster
        return [
            ((*(cluster.path(name)[1:] if switches else ()), ("host", name)), there) for name, there in layout.nodes
        ]
    mesh = layout.mesh
    boards: dict[tuple[object, ...], list[int]] = {}
    for processor, (x, y, z) in enumerate(zip(*mesh.coordinates, strict=True)):
        row, cage = y // mesh.routers, z // mesh.boards
        boards.setdefault((x, row, cage, z) if switches else ((x, row, z),), []).append(processor)
    return list(boards.items())
