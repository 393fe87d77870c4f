"""Two stacks side by side: of two ranks, or of one rank at two moments. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, NamedTuple

from console.tui.model.stacks.rows import Row, members, rows


class Side(NamedTuple):
    """One side: its rank, the stacks, and when they were taken (``14:03:22``)."""

    rank: int
    tree: Sequence[Mapping[str, Any]]
    at: str


class Pair(NamedTuple):
    """A line: the call on each side (None: missing), and whether they differ."""

    left: Row | None
    right: Row | None
    differs: bool


def calls(side: Side, *, whole: bool) -> list[Row]:
    """The calls of a rank in all threads, outermost first. ``whole``: including those inside MPI."""
    return [row for row in rows(side.tree, whole=whole) if side.rank in members(row.ranks)]


def pairs(left: Sequence[Row], right: Sequence[Row]) -> list[Pair]:
    """Pair equal calls; a call at another line is the same call, but differs."""
    found = []
    matcher = SequenceMatcher(None, [_key(row) for row in left], [_key(row) for row in right], autojunk=False)
    for _, begin, end, other, last in matcher.get_opcodes():
        for one, two in zip_longest(left[begin:end], right[other:last]):
            same = one is not None and two is not None and (one.call, one.where) == (two.call, two.where)
            found.append(Pair(one, two, not same))
    return found


def first_difference(found: Sequence[Pair]) -> int:
    """The first pair that differs; 0 if none does."""
    return next((at for at, pair in enumerate(found) if pair.differs), 0)


def _key(row: Row) -> tuple[int, str, str]:
    return row.depth, row.call, row.where.rpartition(":")[0]


class Wanted(NamedTuple):
    """The request: two ranks, or one and the moment before (``right`` is None)."""

    left: int
    right: int | None


def read_wanted(text: str, ranks: frozenset[int], *, has_before: bool) -> Wanted:
    """Parse ``1 3``, or ``1 before``. Raises ValueError with a sentence."""
    words = text.replace(",", " ").split()
    if len(words) != 2 or not words[0].isdigit() or not (words[1].isdigit() or "before".startswith(words[1])):
        raise ValueError("two ranks, like 1 3, or a rank and the moment before, like 1 before")
    left, right = int(words[0]), int(words[1]) if words[1].isdigit() else None
    for rank in (left, right):
        if rank is not None and rank not in ranks:
            raise ValueError(f"rank {rank} is not among these stacks")
    if right is None and not has_before:
        raise ValueError("the stacks were taken only once: s takes them again")
    return Wanted(left, right)


def guess(chosen: frozenset[int], ranks: frozenset[int], *, has_before: bool) -> str:
    """A likely request: a rank of the branch and one outside it; otherwise the branch's rank at both moments."""
    here = min(chosen) if chosen else min(ranks, default=0)
    others = ranks - chosen
    if others:
        return f"{here} {min(others)}"
    if has_before:
        return f"{here} before"
    return f"{here} {min(ranks - {here}, default=here)}"
