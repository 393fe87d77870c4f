"""Which of the free processors a request gets: pluggable, pure, outside every lock.

A placement is a function of the free processors (ids, ascending), how many are asked for and the
machine's geometry; it returns that many ids in the order of ranks. The transaction checks that they
are still free, so a placement may be wrong about the world but never about its arguments.

Third parties add theirs as an entry point of the group ``redmesh.placement``.
Source: row A5; D. Bunde, V. Leung, J. Mache, SAND2003-4522 (best fit, else minimum span).
"""

from collections.abc import Callable, Sequence
from typing import Any

from agents.cpa.placement.line import best_fit, first_fit
from agents.wire.errors import AgentError

#: The ``topology`` of the mesh row as it was defined; None for processors on a plain line.
Geometry = dict[str, Any] | None
Placement = Callable[[Sequence[int], int, Geometry], list[int]]

DEFAULT = "default"
ENTRY_POINTS = "redmesh.placement"

PLACEMENTS: dict[str, Placement] = {"best_fit": best_fit, "first_fit": first_fit, DEFAULT: best_fit}


class UnknownPlacement(AgentError):
    """A placement that nobody has installed."""

    code = "invalid"


def find(name: str) -> Placement:
    """The placement called ``name``. UnknownPlacement, naming those there are."""
    known = PLACEMENTS.get(name)
    if known is None:
        PLACEMENTS.update(_installed())
        known = PLACEMENTS.get(name)
    if known is None:
        there = ", ".join(sorted(PLACEMENTS))
        raise UnknownPlacement(f"no placement is called {name[:40]!r}", f"there are: {there}")
    return known


def _installed() -> dict[str, Placement]:
    from importlib.metadata import entry_points  # slow to import, and rarely asked for

    return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS) if point.name not in PLACEMENTS}


def checked(placement: Placement, free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    """What ``placement`` chooses. AgentError when it is not ``count`` different free processors."""
    chosen = placement(free, count, geometry)
    if len(chosen) != count or len(set(chosen)) != count or not set(chosen).issubset(free):
        raise AgentError(
            f"the placement {getattr(placement, '__name__', placement)!r} chose processors that are not free",
            "this is a fault of the placement: use another with --placement",
        )
    return chosen
