"""Sets of ranks as whole numbers, bit r for rank r: a union costs nothing, whatever they hold. Pure."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Iterable, List

#: More ranks than any launch has: what a peer says must not make a number of gigabytes here.
MOST = 1 << 24


def of(ranks: Iterable[int]) -> int:
    """The set of these ranks."""
    found = 0
    for rank in ranks:
        found |= 1 << rank
    return found


def read(text: str) -> int:
    """``0-3,7`` as a set; ValueError for what is none."""
    found = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        if not (first.isdigit() and (last.isdigit() or not dash)):
            raise ValueError(f"no set of ranks: {text[:40]!r}")
        low, high = int(first), int(last or first)
        if not low <= high < MOST:
            raise ValueError(f"no set of ranks: {text[:40]!r}")
        found |= ((1 << (high - low + 1)) - 1) << low
    return found


def text(ranks: int) -> str:
    """The set as ``0-3,7``."""
    parts: List[str] = []
    at = 0
    while ranks:
        skipped = (ranks & -ranks).bit_length() - 1
        at, ranks = at + skipped, ranks >> skipped
        run = (~ranks & (ranks + 1)).bit_length() - 1  # ones at the low end
        parts.append(str(at) if run == 1 else f"{at}-{at + run - 1}")
        at, ranks = at + run, ranks >> run
    return ",".join(parts)


def count(ranks: int) -> int:
    """How many there are."""
    return bin(ranks).count("1")


def lowest(ranks: int) -> int:
    """The first of them; -1 when there is none."""
    return (ranks & -ranks).bit_length() - 1


def members(ranks: int) -> List[int]:
    """All of them, in order."""
    found = []
    while ranks:
        low = ranks & -ranks
        found.append(low.bit_length() - 1)
        ranks ^= low
    return found
