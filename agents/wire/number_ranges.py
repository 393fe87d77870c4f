"""Lists of numbers as text: 0, 1, 2, 3, 8 is ``0-3,8``."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Iterator, List, Sequence, Tuple


def ranges(numbers: Sequence[int]) -> str:
    """The text form of a list of numbers."""
    runs: List[Tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def runs_in(text: str) -> Iterator[Tuple[int, int]]:
    """The first and the last number of each range in ``text``. Raises ValueError."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield int(first), int(last or first)
