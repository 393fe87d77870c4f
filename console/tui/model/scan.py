"""Looks through the lines of a launch, oldest first, for those that pass a filter. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from console.tui.model.output import Line, Output

_SLICE_S = 0.1  # lines in memory are looked at for so long; then keys are handled


class Scan:
    """How far a launch's lines have been looked at. Lines that are no longer in memory are looked at elsewhere
    (console/tui/sources/sift.py), and reported with ``seen``."""

    def __init__(
        self, output: Output, keep: Callable[[Line], bool] | None, start: int | None = None, *, settled: bool = False
    ) -> None:
        """``start``: the oldest line; None: the oldest in memory. ``settled``: progress bars count when they end."""
        self.output, self.keep = output, keep
        self.start = self.seen = output.first if start is None else start
        self._settled = settled
        self._generation = output.generation
        self._open: set[int] = set()  # lines that are still being overwritten
        self.gone: list[int] = []  # lines that may have passed before they were overwritten, and do not pass now

    @property
    def outdated(self) -> bool:
        """True if numbers mean other lines now, so that all has to be looked at again."""
        return self._generation != self.output.generation

    @property
    def behind(self) -> bool:
        """True if the next line is no longer in memory."""
        return self.seen < self.output.first

    @property
    def caught_up(self) -> bool:
        """True if every line was looked at."""
        return self.seen >= self.output.end

    def skip(self) -> None:
        """Leave out lines that cannot be read."""
        self.start = self.seen = max(self.seen, self.output.first)

    def passing(self) -> Iterator[tuple[int, Line]]:
        """The lines in memory that pass, as many as can be looked at in a short time; those that were overwritten
        come again. Raises TooSlowError."""
        output, keep = self.output, self.keep
        unsettled = output.unsettled
        again = [number for number in sorted(self._open) if number >= output.first]
        self._open &= unsettled
        for number in again:
            if self._settled and number in unsettled:
                continue
            line = output.line(number)
            if keep is None or keep(line):
                yield number, line
            elif not self._settled:
                self.gone.append(number)
        if self.behind:
            return
        until = time.monotonic() + _SLICE_S
        for number, line in enumerate(output.lines(self.seen), self.seen):
            self.seen = number + 1
            if number in unsettled:
                self._open.add(number)
                if self._settled:
                    continue
            if keep is None or keep(line):
                yield number, line
            if time.monotonic() > until:
                return
