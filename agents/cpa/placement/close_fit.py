"""Close fit along a curve: best fit that also counts hops. The default (docs/decisions/0005-close-fit.md).

Best fit takes the start of the smallest interval that is long enough. But intervals of equal length are not equally
compact, and neither are the stretches of one interval. Close fit considers intervals of up to four times the requested
size (or the smallest), and in them the stretches that begin or end at the interval's ends or begin at a corner of the
curve's octants. It takes the stretch with the fewest pairwise hops. If no interval is long enough, it does the same
among the stretches whose span is nearly the smallest.
"""

from collections.abc import Sequence
from itertools import accumulate, compress
from operator import sub

from agents.cpa.placement.along_curve import fit, runs
from agents.cpa.placement.first_and_best_fit import best_fit
from agents.cpa.placement.layout import Curve, Geometry, Layout

#: Intervals longer than this many times the size are left for larger requests.
ROOMY = 4
#: Spans longer than this many times the smallest are not considered.
WIDE = 1.3
#: The curve's smallest octants have eight seats.
OCTANT = 8
#: The most stretches considered, and seats in all of them together, which bounds the time of a decision.
MOST, MOST_SEATS = 24, 8_192
#: How many stretches have their hops remembered: a few megabytes.
MOST_KNOWN = 50_000


class Places:
    """Coordinates of seats as consecutive bytes, so that a stretch is measured at the speed of C."""

    def __init__(self, x: bytes, y: bytes, z: bytes, ring: int, *, keep: bool = False) -> None:
        self.x, self.y, self.z, self.ring = x, y, z, ring
        #: Known hops of stretches: seats do not move, and sizes recur.
        self._known: dict[tuple[int, int], int] | None = {} if keep else None

    @classmethod
    def along(cls, layout: Layout, curve: Curve) -> "Places":
        """All seats of a curve, computed once and cached."""
        found: Places | None = layout.derived.get("places")
        if found is None:
            mesh = layout.need_mesh("close_fit")
            x, y, z = (curve.in_order(bytes([*axis, 0])) for axis in mesh.coordinates)
            found = layout.derived["places"] = cls(x, y, z, mesh.depth, keep=True)
        return found

    def only(self, taken: bytes) -> "Places":
        """Only the seats that are set in ``taken``."""
        x, y, z = (bytes(compress(axis, taken)) for axis in (self.x, self.y, self.z))
        return Places(x, y, z, self.ring)

    def closest(self, starts: Sequence[int], count: int) -> int:
        """The start of the ``count`` consecutive seats with the fewest pairwise hops (the first of equals)."""
        if len(starts) == 1:
            return starts[0]
        return min(starts, key=lambda start: self._hops(start, count))

    def _hops(self, start: int, count: int) -> int:
        known = self._known
        found = known.get((start, count)) if known is not None else None
        if found is None:
            end = start + count
            found = line_spread(self.x[start:end]) + line_spread(self.y[start:end])
            found += ring_spread(self.z[start:end], self.ring)
            if known is not None:
                if len(known) >= MOST_KNOWN:
                    known.clear()
                known[start, count] = found
        return found


def close_fit(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Best fit along the Hilbert curve, choosing the most compact of the stretches that fit about equally well."""
    if geometry is None:
        return best_fit(free, count)
    curve = geometry.curve()
    mesh = geometry.mesh
    if mesh is None or count < 3 or max(mesh.columns, mesh.height, mesh.depth) > 256:
        return fit(free, count, geometry, curve)
    places = Places.along(geometry, curve)
    taken = curve.taken_in_order(geometry.flags(free))
    look_at = max(4, min(MOST, MOST_SEATS // count))
    starts = stretches(taken, count, look_at)
    if starts:
        # Ties go to the stretch considered first: of the smaller interval, then nearer to the start.
        start = places.closest(starts, count)
        return curve.seats[start : start + count]
    seats = list(compress(range(len(taken)), taken))
    first = places.only(taken).closest(scattered(seats, count, look_at // 2), count)
    return [curve.seats[seat] for seat in seats[first : first + count]]


def stretches(taken: bytes, count: int, most: int) -> list[int]:
    """Candidate starts for ``count`` consecutive seats, from the smallest interval up; empty if no interval is long
    enough."""
    intervals = sorted(runs(taken, count))
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


def scattered(seats: Sequence[int], count: int, most: int) -> list[int]:
    """Candidate indices in ``seats`` (ascending) for ``count`` seats with nearly the smallest span."""
    spans = list(map(sub, seats[count - 1 :], seats))
    least = min(spans)
    near = [index for index, span in enumerate(spans) if span <= least * WIDE]
    # Some from everywhere, and always the smallest span itself.
    return sorted({spans.index(least), *near[:: len(near) // most + 1]})


def line_spread(places: bytes) -> int:
    """The sum of distances between all pairs on a line."""
    # The step between two adjacent places is used by all pairs with one end on each side.
    everybody = len(places)
    below = accumulate(map(places.count, range(min(places), max(places))))
    return sum([left * (everybody - left) for left in below])


def ring_spread(places: bytes, length: int) -> int:
    """The sum of distances between all pairs on a ring of ``length``."""
    # Of the arcs of half the ring, two for each link between a pair contain exactly one of the two.
    everybody, half = len(places), length // 2
    there = list(map(places.count, range(length)))
    inside = sum(there[:half])
    total = 0
    for leaves, enters in zip(there, there[half:] + there[:half], strict=True):
        total += inside * (everybody - inside)
        inside += enters - leaves
    return total // 2
