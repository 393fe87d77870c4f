"""Best fit along a curve, as Sandia used on Red Storm.

Chooses the smallest free interval of the curve that is long enough; without one, the processors with the smallest span.
Source: row A5; V. Leung et al., "Processor allocation on Cplant", Cluster 2002; D. Bunde, V. Leung, J. Mache,
"Communication patterns and allocation strategies", SAND2003-4522.
"""

from collections.abc import Iterator, Sequence
from itertools import compress
from operator import sub

from agents.cpa.placement import first_and_best_fit
from agents.cpa.placement.layout import Curve, Geometry, Layout, Unplaced


def hilbert(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Best fit along the Hilbert curve; along the tree of a cluster."""
    return (
        first_and_best_fit.best_fit(free, count)
        if geometry is None
        else fit(free, count, geometry, geometry.curve("hilbert"))
    )


def snake(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """Best fit along a snake through the rows; along the tree of a cluster."""
    return (
        first_and_best_fit.best_fit(free, count)
        if geometry is None
        else fit(free, count, geometry, geometry.curve("snake"))
    )


def fit(free: Sequence[int], count: int, layout: Layout, curve: Curve) -> list[int]:
    """``count`` of ``free`` by best fit along ``curve``, in its order."""
    taken = curve.taken_in_order(layout.flags(free))
    start = exact_or_longer(taken, count)
    if start >= 0:
        return curve.seats[start : start + count]
    seats = list(compress(range(len(taken)), taken))
    if len(seats) < count:
        raise Unplaced(layout)
    first = least_span(seats, count)
    return [curve.seats[seat] for seat in seats[first : first + count]]


def exact_or_longer(taken: bytes, count: int) -> int:
    """The start of the smallest run of at least ``count`` ones (the first of equals); -1 if there is none."""
    return min(runs(taken, count), default=(0, -1))[1]


def runs(taken: bytes, least: int) -> Iterator[tuple[int, int]]:
    """Length and start of every run of at least ``least`` ones."""
    enough = b"\1" * least
    start = taken.find(enough)
    while start >= 0:
        end = taken.find(0, start + least)
        end = len(taken) if end < 0 else end
        yield end - start, start
        start = taken.find(enough, end)


def least_span(seats: Sequence[int], count: int) -> int:
    """The index of the first of ``count`` consecutive entries in ``seats`` (ascending) with the smallest span."""
    spans = list(map(sub, seats[count - 1 :], seats))
    return spans.index(min(spans))
