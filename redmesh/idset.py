"""Sets of ranks as integers, bit r for rank r, so that a union is one operation. No I/O."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Iterable, List, Tuple

#: More ranks than any launch has. The limit keeps a peer's message from creating a number of gigabytes.
MOST = 1 << 24


def of(ranks: Iterable[int]) -> int:
    """The set of ``ranks``."""
    found = 0
    for rank in ranks:
        found |= 1 << rank
    return found


def read(text: str) -> int:
    """Parse ``0-3,7``. Raises ValueError if ``text`` is not a valid list."""
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
    """The text form ``0-3,7`` of a set."""
    parts: List[str] = []
    at = 0
    while ranks:
        skipped = (ranks & -ranks).bit_length() - 1
        at, ranks = at + skipped, ranks >> skipped
        run = (~ranks & (ranks + 1)).bit_length() - 1  # the length of the run of ones at the low end
        parts.append(str(at) if run == 1 else f"{at}-{at + run - 1}")
        at, ranks = at + run, ranks >> run
    return ",".join(parts)


def count(ranks: int) -> int:
    """The number of ranks in a set."""
    return bin(ranks).count("1")


def lowest(ranks: int) -> int:
    """The lowest rank of a set; -1 if the set is empty."""
    return (ranks & -ranks).bit_length() - 1


def members(ranks: int) -> List[int]:
    """The ranks of a set in ascending order."""
    found = []
    while ranks:
        low = ranks & -ranks
        found.append(low.bit_length() - 1)
        ranks ^= low
    return found


# Lists of ranks and names for display


def fold_ranks(ranks: List[int]) -> str:
    """The text form of a list of ranks: ``[0, 1, 2, 8]`` gives ``0-2,8``. The ranks are sorted."""
    runs: List[List[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] + 1 == rank:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def fold_names(names: List[str]) -> str:
    """The text form of a list of names: ``[n0, n1, n2, login]`` gives ``n0-n2,login``. Consecutive numbers at the
    end of a name are folded."""
    runs: List[List[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _follows(before: str, name: str) -> bool:
    head, number = _split(before)
    next_head, next_number = _split(name)
    return bool(number and next_number) and head == next_head and int(next_number) == int(number) + 1


def _split(name: str) -> Tuple[str, str]:
    head = name.rstrip("0123456789")
    return head, name[len(head) :]
