"""Close fit along a curve: best fit that looks at the hops as well. The default (docs/decisions/0005-close-fit.md).

Best fit takes the smallest interval that is long enough, from its start. But intervals of the same length are
not equally compact, and neither are the stretches of one interval. Close fit looks at all intervals of up to twice the
size asked for (or else the smallest), at the stretches that begin or end there or begin at a corner of the curve's
octants, and takes the one with the fewest pairwise hops. Where no interval is long enough, it does so among the
stretches whose span is nearly the smallest.
"""

from collections.abc import Iterator, Sequence
from itertools import compress
from operator import sub

from agents.cpa.placement.along import fit
from agents.cpa.placement.layout import Curve, Geometry, Layout
from agents.cpa.placement.line import best_fit
from agents.cpa.placement.shells import line_spread, ring_spread

#: Intervals longer than this many times the size are left for larger requests.
ROOMY = 2
#: Spans longer than this many times the smallest are not looked at.
WIDE = 1.3
#: The curve's smallest octants have eight seats.
OCTANT = 8
#: Stretches looked at, and seats in all of them together: bounds the time of a decision.
MOST, MOST_SEATS = 64, 32_768


class Seats:
    """The coordinates of the seats of a curve as bytes, so that a stretch of it is measured at the speed of C."""

    def __init__(self, layout: Layout, curve: Curve) -> None:
        mesh = layout.need_mesh("close_fit")
        xs, ys, zs = (bytes([*axis, 0]) for axis in mesh.coordinates)
        self.x = curve.taken_in_order(xs)
        self.y = curve.taken_in_order(ys)
        self.z = curve.taken_in_order(zs)
        self.ring = mesh.depth

    def of_stretch(self, start: int, count: int) -> int:
        """Pairwise hops among ``count`` seats in a row."""
        end = start + count
        return self._spread(self.x[start:end], self.y[start:end], self.z[start:end])

    def of(self, seats: Sequence[int]) -> int:
        """Pairwise hops among any seats."""
        return self._spread(*(bytes(map(axis.__getitem__, seats)) for axis in (self.x, self.y, self.z)))

    def _spread(self, x: bytes, y: bytes, z: bytes) -> int:
        return line_spread(x) + line_spread(y) + ring_spread(z, self.ring)


def close_fit(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Best fit along the Hilbert curve, the most compact of the stretches that fit about as well."""
    if geometry is None:
        return best_fit(free, count)
    curve = geometry.curve()
    mesh = geometry.mesh
    if mesh is None or count < 3 or max(mesh.columns, mesh.height, mesh.depth) > 256:
        return fit(free, count, geometry, curve)
    seats = geometry.derived.get("seats")
    if seats is None:
        seats = geometry.derived["seats"] = Seats(geometry, curve)
    taken = curve.taken_in_order(geometry.flags(free))
    look_at = max(4, min(MOST, MOST_SEATS // count))
    starts = stretches(taken, count, look_at)
    if starts:
        # ties go to the stretch met first: of the smaller interval, then nearer to the start
        start = min(starts, key=lambda one: seats.of_stretch(one, count))
        return curve.seats[start : start + count]
    there = list(compress(range(len(taken)), taken))
    best = min(_scattered(there, count, look_at), key=seats.of)
    return [curve.seats[seat] for seat in best]


def stretches(taken: bytes, count: int, most: int) -> list[int]:
    """Where to look for ``count`` seats in a row, from the smallest interval up; none where nothing is long enough."""
    intervals = sorted(_intervals(taken, count))
    found: list[int] = []
    for length, start in intervals:
        if length > ROOMY * count and length > intervals[0][0]:
            break
        last = start + length - count
        found += dict.fromkeys((start, last))
        if count >= OCTANT:
            corner = start - start % OCTANT + OCTANT
            found += range(corner, min(last, corner + most * OCTANT), OCTANT)
        if len(found) >= most:
            return found[:most]
    return found


def _intervals(taken: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Length and start of every free interval of at least ``count``."""
    enough = b"\1" * count
    start = taken.find(enough)
    while start >= 0:
        end = taken.find(0, start + count)
        end = len(taken) if end < 0 else end
        yield end - start, start
        start = taken.find(enough, end)


def _scattered(there: list[int], count: int, most: int) -> Iterator[list[int]]:
    spans = list(map(sub, there[count - 1 :], there))
    bound = min(spans) * WIDE
    near = [index for index, span in enumerate(spans) if span <= bound]
    # spread over all of them, and always with the smallest span itself
    some = {spans.index(min(spans)), *near[:: len(near) // most + 1]}
    return (there[index : index + count] for index in sorted(some))
