"""A placement on this machine, as the transactions ask it: which of the free processors a request gets."""

from collections.abc import Callable, Sequence

from agents.cpa.placement import Geometry, Placement


class Choosing:
    """``place`` with the machine's geometry, which is read when it is first wanted."""

    def __init__(self, place: Placement, geometry: Callable[[], Geometry]) -> None:
        self._place, self._geometry = place, geometry

    def __call__(self, free: Sequence[int], count: int) -> Sequence[int]:
        """So many of the free processors. NotEnough, where the placement wants others."""
        return self._place(free, count, self._geometry())

    def idle(self, free: Sequence[int], count: int) -> Sequence[int]:
        """The same of a machine on which nothing runs, where it only matters whether there are any: quickly."""
        check = getattr(self._place, "check", None)
        if check is not None:
            check(free, count, self._geometry())
        return free[:count]
