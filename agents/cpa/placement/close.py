"""Close fit along a curve: best fit that looks at the hops as well. The default (docs/decisions/0005-close-fit.md).

Best fit takes the smallest interval that is long enough, from its start. But intervals of the same length are
not equally compact, and neither are the stretches of one interval. Close fit looks at intervals of up to four times the
size asked for (or else the smallest), at the stretches that begin or end there or begin at a corner of the curve's
octants, and takes the one with the fewest pairwise hops. Where no interval is long enough, it does so among the
stretches whose span is nearly the smallest.
"""

from collections.abc import Sequence
from itertools import compress
from operator import sub

from agents.cpa.placement.along import fit, runs
from agents.cpa.placement.first_and_best_fit import best_fit
from agents.cpa.placement.layout import Curve, Geometry, Layout
from agents.cpa.placement.shells import line_spread, ring_spread

#: Intervals longer than this many times the size are left for larger requests.
ROOMY = 4
#: Spans longer than this many times the smallest are not looked at.
WIDE = 1.3
#: The curve's smallest octants have eight seats.
OCTANT = 8
#: Stretches looked at, and seats in all of them together: bounds the time of a decision.
MOST, MOST_SEATS = 24, 8_192
#: Stretches whose hops are remembered: a few megabytes.
MOST_KNOWN = 50_000


class Places:
    """Coordinates of seats as bytes, one after the other, so that a stretch of them is measured at the speed of C."""

    def __init__(self, x: bytes, y: bytes, z: bytes, ring: int, *, keep: bool = False) -> None:
        self.x, self.y, self.z, self.ring = x, y, z, ring
        #: Hops of stretches that were looked at: seats stay where they are, and sizes come again.
        self._known: dict[tuple[int, int], int] | None = {} if keep else None

    @classmethod
    def along(cls, layout: Layout, curve: Curve) -> "Places":
        """Of all seats of a curve, made once and kept."""
        found: Places | None = layout.derived.get("places")
        if found is None:
            mesh = layout.need_mesh("close_fit")
            x, y, z = (curve.in_order(bytes([*axis, 0])) for axis in mesh.coordinates)
            found = layout.derived["places"] = cls(x, y, z, mesh.depth, keep=True)
        return found

    def only(self, taken: bytes) -> "Places":
        """Of the seats that are taken alone."""
        x, y, z = (bytes(compress(axis, taken)) for axis in (self.x, self.y, self.z))
        return Places(x, y, z, self.ring)

    def closest(self, starts: Sequence[int], count: int) -> int:
        """The start of the ``count`` in a row with the fewest pairwise hops (the first of equals)."""
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
    """Best fit along the Hilbert curve, the most compact of the stretches that fit about as well."""
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
        # ties go to the stretch met first: of the smaller interval, then nearer to the start
        start = places.closest(starts, count)
        return curve.seats[start : start + count]
    seats = list(compress(range(len(taken)), taken))
    first = places.only(taken).closest(scattered(seats, count, look_at // 2), count)
    return [curve.seats[seat] for seat in seats[first : first + count]]


def stretches(taken: bytes, count: int, most: int) -> list[int]:
    """Where to look for ``count`` seats in a row, from the smallest interval up; none where nothing is long enough."""
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
    """Where in ``seats`` (ascending) to look for ``count`` that are nearly closest together."""
    spans = list(map(sub, seats[count - 1 :], seats))
    least = min(spans)
    near = [index for index, span in enumerate(spans) if span <= least * WIDE]
    # some from everywhere, and always the smallest span itself
    return sorted({spans.index(least), *near[:: len(near) // most + 1]})
