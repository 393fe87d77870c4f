"""Gen-Alg: a placement that grows shells around centres; the best in one decision, and slow.

It examines every centre, which would take seconds on a large machine while nobody else is served. Above MOST_WORK it
examines an evenly spread sample. The benchmarks examine all centres.

Definition: S. Krumke et al., "Compact location problems", TCS 181 (1997).
"""

from collections.abc import Iterable, Sequence
from itertools import compress

from agents.cpa.placement.close_fit import line_spread, ring_spread
from agents.cpa.placement.layout import Geometry, Layout, need
from agents.wire.errors import AgentError
from db.topology import Mesh

#: The limit of centres times free processors: all centres of 2,000 free processors, 400 centres of 10,368 (0.1 to 0.2
#: s). None: no limit.
MOST_WORK: int | None = 4_000_000

#: Distances are one byte each, so that C code adds and counts thousands of them at once.
FARTHEST = 255


Centre = tuple[int, int, int]


class Shells:
    """The free processors of one decision as bytes of coordinates, in the order of the curve (which breaks ties)."""

    def __init__(self, layout: Layout, free: Sequence[int], what: str) -> None:
        self.mesh = layout.need_mesh(what)
        self.curve = layout.curve()
        if self.mesh.columns + self.mesh.height + self.mesh.depth // 2 > FARTHEST:
            raise AgentError(f"the placement {what} is for machines of at most {FARTHEST} hops", "use hilbert")
        taken = self.curve.taken_in_order(layout.flags(free))
        self.free = list(compress(self.curve.seats, taken))
        xs, ys, zs = self.mesh.coordinates
        self.x = bytes(map(xs.__getitem__, self.free))
        self.y = bytes(map(ys.__getitem__, self.free))
        self.z = bytes(map(zs.__getitem__, self.free))
        self.tables = _distances(layout, self.mesh)

    @property
    def centres(self) -> list[Centre]:
        """The positions of the free processors."""
        return list(zip(self.x, self.y, self.z, strict=True))

    def manhattan(self, x: int, y: int, z: int) -> bytes:
        """Hops from (x, y, z) to every free processor."""
        on_x, on_y, on_z = self._apart(x, y, z)
        # No sum exceeds a byte, so adding three long integers adds the bytes one by one without a carry.
        total = int.from_bytes(on_x, "big") + int.from_bytes(on_y, "big") + int.from_bytes(on_z, "big")
        return total.to_bytes(len(on_x), "big")

    def _apart(self, x: int, y: int, z: int) -> tuple[bytes, bytes, bytes]:
        line, ring = self.tables
        return self.x.translate(line[x]), self.y.translate(line[y]), self.z.translate(ring[z])

    def nearest(self, distances: bytes, count: int) -> tuple[bytes, int]:
        """The ``count`` nearest processors (a byte each), and the sum of their distances."""
        radius, inside, total = 0, 0, 0
        while True:
            here = distances.count(radius)
            if inside + here >= count:
                break
            inside += here
            total += here * radius
            radius += 1
        rest = count - inside
        chosen = distances.translate(_INSIDE[radius])
        if rest == here:
            return chosen.replace(b"\2", b"\1"), total + rest * radius
        # From the outermost shell, take those that come first on the curve.
        return chosen.replace(b"\2", b"\1", rest).replace(b"\2", b"\0"), total + rest * radius

    def spread(self, chosen: bytes) -> int:
        """The sum of hops between all pairs of the chosen processors."""
        return (
            line_spread(bytes(compress(self.x, chosen)))
            + line_spread(bytes(compress(self.y, chosen)))
            + ring_spread(bytes(compress(self.z, chosen)), self.mesh.depth)
        )

    def ids(self, chosen: bytes) -> list[int]:
        """The chosen processors in the order of the curve."""
        return list(compress(self.free, chosen))

    def some(self, centres: Sequence[Centre]) -> Sequence[Centre]:
        """As many of the centres as the limit allows."""
        if MOST_WORK is None:
            return centres
        most = max(1, MOST_WORK // max(1, len(self.free)))
        return centres[:: -(-len(centres) // most)]

    def tightest(self, centres: Iterable[Centre], count: int) -> list[int]:
        """The set with the fewest pairwise hops among the L1-nearest of each centre (the first of equals)."""
        best: bytes = b""
        least = -1
        seen: set[bytes] = set()
        for centre in centres:
            chosen, _ = self.nearest(self.manhattan(*centre), count)
            if chosen in seen:
                continue
            seen.add(chosen)
            spread = self.spread(chosen)
            if least < 0 or spread < least:
                best, least = chosen, spread
        return self.ids(best)


# Inside a radius becomes 1, on it 2, outside 0.
_INSIDE = [bytes(1 if one < radius else 2 if one == radius else 0 for one in range(256)) for radius in range(256)]


def gen_alg(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Examines the L1-nearest around each free processor; takes the set with the fewest pairwise hops."""
    shells = Shells(need(geometry, "gen_alg"), free, "gen_alg")
    return shells.tightest(shells.some(shells.centres), count)


def _distances(layout: Layout, mesh: Mesh) -> tuple[list[bytes], list[bytes]]:
    found: tuple[list[bytes], list[bytes]] | None = layout.derived.get("distances")
    if found is None:
        line = [bytes(abs(one - place) for one in range(256)) for place in range(max(mesh.columns, mesh.height))]
        ring = [
            bytes(min(abs(one - place), abs(mesh.depth - abs(one - place))) for one in range(256))
            for place in range(mesh.depth)
        ]
        found = layout.derived["distances"] = line, ring
    return found
