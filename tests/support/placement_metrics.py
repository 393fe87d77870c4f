"""The quality of a placement: mean pairwise hops, pieces, span. Source: SAND2003-4522, section 3."""

from collections import Counter
from collections.abc import Sequence

from agents.cpa.placement.layout import Curve, Layout
from db.topology import Cluster, Mesh


def mean_pairwise_hops(layout: Layout, processors: Sequence[int]) -> float:
    """The mean number of links on the shortest path between two of the processors, over all pairs; 0 for one
    processor."""
    count = len(processors)
    return total_hops(layout, processors) / (count * (count - 1) / 2) if count > 1 else 0.0


def total_hops(layout: Layout, processors: Sequence[int]) -> int:
    """The sum of links between all pairs, from counted coordinates instead of pairs. Switches count as closed."""
    if isinstance(layout.topology, Mesh):
        mesh = layout.topology
        xs, ys, zs = mesh.coordinates
        return (
            _on_a_line([xs[one] for one in processors])
            + _on_a_line([ys[one] for one in processors])
            + on_a_ring(Counter([zs[one] for one in processors]), mesh.depth)
        )
    return _in_a_tree(layout, layout.topology, processors)


def pieces(layout: Layout, processors: Sequence[int]) -> int:
    """The number of connected pieces of the processors; 1 means contiguous."""
    topology = layout.topology
    left, found = set(processors), 0
    if not isinstance(topology, Mesh):
        at = _node_of(layout)
        return len({topology.path(at.get(one, "")) for one in left})
    while left:
        found += 1
        edge = [left.pop()]
        while edge:
            near = left.intersection(topology.neighbours(edge.pop()))
            left -= near
            edge += near
    return found


def span(curve: Curve, processors: Sequence[int]) -> int:
    """The number of seats on the curve from the first to the last of the processors, inclusive."""
    seats = [curve.position[one] for one in processors]
    return max(seats) - min(seats) + 1


def _on_a_line(places: list[int]) -> int:
    # In ascending order, the i-th of n has i values below and n - 1 - i above.
    places.sort()
    count = len(places)
    return sum(map(int.__mul__, places, range(1 - count, count, 2)))


def on_a_ring(many: "Counter[int]", length: int) -> int:
    """The sum of distances between all pairs on a ring of ``length``; ``many`` counts the entries at each place."""
    places = sorted(many)
    total = 0
    for index, place in enumerate(places):
        here = many[place]
        for other in places[:index]:
            around = place - other
            total += here * many[other] * min(around, length - around)
    return total


def _in_a_tree(layout: Layout, cluster: Cluster, processors: Sequence[int]) -> int:
    # Every pair goes up to the root and down again, minus twice the shared part of both paths.
    at = _node_of(layout)
    nodes = Counter(at.get(one, "") for one in processors)
    switches: Counter[tuple[str, ...]] = Counter()
    up = 0
    for node, many in nodes.items():
        path = cluster.path(node)
        up += many * (len(path) + 1)
        for depth in range(1, len(path) + 1):
            switches[path[:depth]] += many
    shared = sum(many * (many - 1) // 2 for counts in (nodes, switches) for many in counts.values())
    return (len(processors) - 1) * up - 2 * shared


def _node_of(layout: Layout) -> dict[int, str]:
    found: dict[int, str] | None = layout.derived.get("node of processor")
    if found is None:
        found = {processor: name for name, processors in layout.nodes for processor in processors}
        layout.derived["node of processor"] = found
    return found
