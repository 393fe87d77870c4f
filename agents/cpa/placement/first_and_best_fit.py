"""First fit and best fit on a line: processors in the order of their ids, which is the order of the nodes.

Both take a free interval that is long enough if there is one, otherwise the processors with the smallest span.
"""

from collections.abc import Iterator, Sequence


def first_fit(free: Sequence[int], count: int, geometry: object = None) -> list[int]:
    """The first free interval that is long enough, else minimum span."""
    for start, length in intervals(free):
        if length >= count:
            return list(free[start : start + count])
    return minimum_span(free, count)


def best_fit(free: Sequence[int], count: int, geometry: object = None) -> list[int]:
    """The smallest free interval that is long enough (the first of equals), else minimum span."""
    best, best_length = -1, len(free) + 1
    for start, length in intervals(free):
        if count <= length < best_length:
            best, best_length = start, length
            if length == count:
                break
    return list(free[best : best + count]) if best >= 0 else minimum_span(free, count)


def minimum_span(free: Sequence[int], count: int) -> list[int]:
    """The ``count`` free processors whose first and last are closest together (the first of equals)."""
    if not 0 < count <= len(free):
        raise ValueError(f"{count} of {len(free)} free processors")
    best = min(range(len(free) - count + 1), key=lambda start: free[start + count - 1] - free[start])
    return list(free[best : best + count])


def intervals(free: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive ids in ``free`` (ascending), as index of the first and length."""
    start, total = 0, len(free)
    while start < total:
        end = _end_of_run(free, start)
        yield start, end - start
        start = end


def _end_of_run(free: Sequence[int], start: int) -> int:
    # Ids ascend without repeats, so a stretch is unbroken exactly if the difference of its ends equals its length minus
    # 1. Galloping and bisection avoid ten thousand comparisons.
    offset, total = free[start] - start, len(free)
    step, low = 1, start
    while low + step < total and free[low + step] - (low + step) == offset:
        low += step
        step *= 2
    high = min(low + step, total)
    while high - low > 1:
        middle = (low + high) // 2
        if free[middle] - middle == offset:
            low = middle
        else:
            high = middle
    return low + 1
