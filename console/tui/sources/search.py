"""Searches the rows of a launch's output in slices, so that keys are handled meanwhile: lines in memory, and the
spool."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Callable
from typing import Protocol

from console.tui.model.output import Line
from console.tui.model.patterns import Pattern
from console.tui.sources.spool import AllRows
from console.tui.sources.unawaited import unawaited

_SLICE = 500  # lines in memory between two looks at the keys
_SLICE_S = 0.03  # … or fewer, if the expression is slow


class Numbered(Protocol):
    """Rows in the order of their lines' numbers, which do not change when lines are dropped."""

    def __len__(self) -> int: ...

    def number(self, index: int) -> int:
        """The number of the row's line."""

    def line(self, index: int) -> Line:
        """The row's line. Raises IndexError if it is unavailable."""


async def seek(
    rows: Numbered, pattern: Pattern, begin: int, end: int, step: int, looked: Callable[[int], bool]
) -> int | None:
    """The number of the first line that matches, from number ``begin`` to ``end`` in steps of 1 or -1; None if none.

    ``looked`` gets the number up to which was searched, after each slice; False from it ends the search. Raises
    TooSlowError.
    """
    at = begin
    while (end - at) * step >= 0:
        part = rows.part(at) if isinstance(rows, AllRows) else None
        if part is not None:
            hit, at = await unawaited(part.search, pattern, at, end, step)
        else:
            hit, at = _slice(rows, pattern, at, end, step)
            await asyncio.sleep(0)
        if hit is not None:
            return hit
        if not looked(at - step):
            return None
    return None


def _slice(rows: Numbered, pattern: Pattern, at: int, end: int, step: int) -> tuple[int | None, int]:
    """Search rows in memory; returns the match or None, and the number with which the search goes on."""
    index = bisect.bisect_left(range(len(rows)), at, key=rows.number)
    if step < 0 and (index == len(rows) or rows.number(index) > at):
        index -= 1
    oldest = rows.kept if isinstance(rows, AllRows) else 0
    until = time.monotonic() + _SLICE_S
    for row in range(index, index + step * _SLICE, step):
        number = rows.number(row) if 0 <= row < len(rows) else None
        if number is None or (end - number) * step < 0:
            return None, end + step
        if number < oldest and step < 0:
            return None, number  # from here on the spool has the lines
        try:
            if pattern.search(rows.line(row).text):
                return number, number
        except IndexError:  # dropped meanwhile
            continue
        if time.monotonic() > until:
            return None, number + step
    return None, rows.number(index + step * (_SLICE - 1)) + step
