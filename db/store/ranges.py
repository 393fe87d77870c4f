"""Folded lists of processor ids: ``0..3,8`` stands for 0 1 2 3 8, in that order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: SQLite parses a chain of ORs to a depth of 1,000, so a statement contains at most this many ranges.
RANGES_A_STATEMENT = 400
#: The size limit for GROUP_CONCAT in bytes; MySQL's default would cut a list of ids off at 1,024.
LONGEST_LIST = 16 << 20


def may_be_cut(grouped: str) -> bool:
    """True if the server may have cut off the result of GROUP_CONCAT.

    The server cuts at max_allowed_packet, which no session can raise and which is a multiple of 1,024. This check costs
    the transactions that hold the lock nothing; a list that has such a length by chance is read once more.
    """
    return len(grouped) % 1024 == 0


def runs(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and last id of each run of consecutive ids, in the given order."""
    first = last = None
    for one in ids:
        if last is not None and one == last + 1:
            last = one
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = one
    if first is not None and last is not None:
        yield first, last


def fold(ids: Iterable[int]) -> str:
    """Fold a list: ``[0, 1, 2, 3, 8]`` gives ``0..3,8``."""
    return ",".join(str(first) if first == last else f"{first}..{last}" for first, last in runs(ids))


def unfold(text: str) -> list[int]:
    """The ids of a folded list, in its order."""
    ids: list[int] = []
    for part in text.split(",") if text else ():
        first, dots, last = part.partition("..")
        if dots:
            ids.extend(range(int(first), int(last) + 1))
        else:
            ids.append(int(first))
    return ids


def conditions(ids: Iterable[int], column: str = "id") -> Iterator[str]:
    """SQL conditions that together select exactly these ids, each with few ranges.

    The numbers are written into the text: they are ints, and the MySQL driver would paste them in as well.
    """
    ranges: list[str] = []
    singles: list[str] = []
    for first, last in runs(sorted(ids)):
        if first == last:
            singles.append(str(int(first)))
        else:
            ranges.append(f"{column} BETWEEN {int(first)} AND {int(last)}")
        if len(ranges) + len(singles) >= RANGES_A_STATEMENT:
            yield _condition(column, ranges, singles)
            ranges, singles = [], []
    if ranges or singles:
        yield _condition(column, ranges, singles)


def _condition(column: str, ranges: list[str], singles: list[str]) -> str:
    parts = [*ranges, f"{column} IN ({','.join(singles)})"] if singles else ranges
    return f"({' OR '.join(parts)})"
