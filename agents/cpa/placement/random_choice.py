"""Random placement, a baseline for comparisons."""

from collections.abc import Sequence

from agents.cpa.placement.layout import Geometry
from agents.wire.errors import AgentError


class BadSeed(AgentError):
    """A seed that is not a number."""

    code = "invalid"
    exit_status = 2


class Scattered:
    """``random`` or ``random:7``: a random choice that is the same for the same seed and free processors."""

    def __init__(self, text: str = "0") -> None:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise BadSeed(f"{text[:40]!r} is not a seed", "write a whole number: random:7")
        self.seed = int(text)
        self.__name__ = "random"

    def __call__(self, free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
        """``count`` random processors of ``free``, in the order of the curve if there is one."""
        from random import Random  # slow to import, and for comparison only

        chosen = Random(self.seed).sample(sorted(free), count)
        return sorted(chosen) if geometry is None else geometry.curve().sort(chosen)
