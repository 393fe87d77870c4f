"""Reads the lines of a launch that are no longer in memory from its spool, for a filter, for gathering, or for
tracebacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from console.tui.model.filter import Selection
from console.tui.model.output import STDERR, Line, Output
from console.tui.model.scan import Scan
from console.tui.sources.spool import AllRows, Archive
from console.tui.sources.unawaited import unawaited


class Sifted(Protocol):
    """Rows made of the lines that pass."""

    scan: Scan

    def refresh(self) -> None:
        """Take lines from memory. Raises TooSlowError."""

    def take(self, passing: list[tuple[int, Line]]) -> None:
        """Take lines of the spool."""


async def sift(rows: Sifted, lines: AllRows, looked: Callable[[], None]) -> None:
    """Feed ``rows`` with all lines, from the spool and then from memory, until it has caught up. ``looked`` is called
    after each step. Raises TooSlowError."""
    scan = rows.scan
    while not (scan.caught_up or scan.outdated):
        part = lines.part(scan.seen)
        if part is not None:
            found = await unawaited(part.passing, scan.keep, scan.seen)
            if scan.outdated:
                return
            if found is None:
                scan.skip()
            else:
                rows.take(found.lines)
                scan.seen = found.seen
        else:
            if scan.behind:
                scan.skip()
            rows.refresh()
            await asyncio.sleep(0)
        looked()


async def errors_of(
    ranks: frozenset[int], output: Output, archive: Archive, looked: Callable[[int], None]
) -> Selection:
    """The newest lines that these ranks wrote to standard error, from the spool too. ``looked`` gets the number up to
    which was looked."""
    rows = Selection(output, lambda line: line.stream == STDERR and line.rank in ranks, archive.first)
    lines = AllRows(output, archive)
    await sift(rows, lines, lambda: looked(rows.scan.seen))
    return rows
