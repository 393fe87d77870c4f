"""MC1x1 and MM: placements that lose to others everywhere (docs/placement.md), as baselines for the ones that remain.

Importing this module makes both known to the registry. Both examine all centres.

Definitions: J. Mache, V. Lo, K. Windisch, "Minimizing message-passing contention", PDCS 1997 (MC1x1); M. Bender et al.,
"Communication-aware processor allocation for supercomputers", Algorithmica 50 (2008) (MM).
"""

from collections.abc import Sequence

from agents.cpa.placement.gen_alg import Shells
from agents.cpa.placement.layout import Geometry, need
from agents.cpa.placement.registry import PLACEMENTS


def mm(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Like Gen-Alg, with centres wherever coordinates of free processors cross."""
    shells = Shells(need(geometry, "mm"), free, "mm")
    xs, ys, zs = sorted(set(shells.x)), sorted(set(shells.y)), sorted(set(shells.z))
    return shells.tightest([(x, y, z) for x in xs for y in ys for z in zs], count)


def mc1x1(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Examines shells of boxes around each free processor; takes the set with the least sum of shell numbers."""
    shells = Shells(need(geometry, "mc1x1"), free, "mc1x1")
    line, ring = shells.tables
    best, least = b"", -1
    for x, y, z in shells.centres:
        apart = shells.x.translate(line[x]), shells.y.translate(line[y]), shells.z.translate(ring[z])
        chosen, total = shells.nearest(bytes(map(max, *apart)), count)
        if least < 0 or total < least:
            best, least = chosen, total
    return shells.ids(best)


PLACEMENTS.update(mm=mm, mc1x1=mc1x1)
