"""Random placement, for comparison: what a placement must beat to be worth its time."""

from collections.abc import Sequence

from agents.cpa.placement.layout import Geometry
from agents.wire.errors import AgentError


class BadSeed(AgentError):
    """A seed that is not a number."""

    code = "invalid"
    exit_status = 2


class Scattered:
    """``random`` or ``random:7``: any of the free, the same for the same seed and the same free processors."""

    def __init__(self, text: str = "0") -> None:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise BadSeed(f"{text[:40]!r} is not a seed", "write a whole number: random:7")
        self.seed = int(text)
        self.__name__ = "random"

    def __call__(self, free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
        """``count`` of ``free`` by chance, in the order of the curve where there is one."""
        from random import Random  # slow to import, and for comparison only

        chosen = Random(self.seed).sample(sorted(free), count)
        return sorted(chosen) if geometry is None else geometry.curve().sort(chosen)
