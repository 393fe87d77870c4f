"""Find the best placement on a small machine by branch and bound."""

from collections.abc import Sequence

from db.topology import Mesh


def least_hops(mesh: Mesh, free: Sequence[int], count: int) -> int:
    """Return the smallest sum of pairwise hops of any ``count`` processors of ``free`` (exact)."""
    apart = [[_hops(mesh, one, other) for other in free] for one in free]
    best = sum(apart[i][j] for i in range(count) for j in range(i))

    def grow(chosen: int, total: int, first: int, to_chosen: list[int]) -> None:
        nonlocal best
        if chosen == count:
            best = min(best, total)
            return
        left = count - chosen
        # lower bound: the remaining processors add their smallest distances to the chosen, and one hop for each pair
        least = sum(sorted(to_chosen[first:])[:left]) + left * (left - 1) // 2
        if total + least >= best:
            return
        for index in range(first, len(free) - left + 1):
            near = [one + other for one, other in zip(to_chosen, apart[index], strict=True)]
            grow(chosen + 1, total + to_chosen[index], index + 1, near)

    grow(0, 0, 0, [0] * len(free))
    return best


def _hops(mesh: Mesh, one: int, other: int) -> int:
    hops = mesh.hops(one, other)
    assert hops is not None
    return hops
