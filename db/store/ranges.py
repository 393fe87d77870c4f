"""Lists of processor ids, folded: ``0..3,8`` stands for 0 1 2 3 8, in that order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: SQLite parses a chain of ORs to a depth of 1,000, so a statement names at most this many ranges.
RANGES_A_STATEMENT = 400
#: Bytes that GROUP_CONCAT may give; MySQL would cut a list of ids off at 1,024.
LONGEST_LIST = 16 << 20


def may_be_cut(grouped: str) -> bool:
    """Whether the server may have cut what its GROUP_CONCAT gave, within a number or to nothing.

    It does so at max_allowed_packet, which no session can raise and which is a multiple of 1,024. Asked this way, the
    transactions that hold the lock pay nothing; a list that has such a length by itself is merely read once more.
    """
    return len(grouped) % 1024 == 0


def runs(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of ids that go up by one, in the order given."""
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
    """``[0, 1, 2, 3, 8]`` as ``0..3,8``."""
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
    """SQL conditions that together hold for exactly these ids, few ranges each.

    The numbers stand in the text: they are ints of ours, and the MySQL driver would only paste them in as well.
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
