"""All lines of a launch: the newest from memory, older ones from its spool."""

from __future__ import annotations

from console.tui.archive import Archive
from console.tui.output import NOTE, Line, Output


class Everything:
    """Rows for the output pane without a filter."""

    def __init__(self, output: Output, archive: Archive) -> None:
        self._output = output
        self._archive = archive
        self._first = self._end = 0

    def refresh(self) -> None:
        """Takes in what arrived since."""
        oldest = self._archive.first
        self._first = self._output.first if oldest is None else min(oldest, self._output.first)
        self._end = self._output.end

    def __len__(self) -> int:
        return self._end - self._first

    def number(self, index: int) -> int:
        """The number of the ``index``-th line."""
        return self._first + index

    def line(self, index: int) -> Line:
        """The ``index``-th line. IndexError when it is no longer to be had."""
        number = self._first + index
        return self._output.line(number) if number >= self._output.first else self._archive.line(number)

    def who(self, index: int) -> str:
        """Whose it is."""
        line = self.line(index)
        return "yod" if line.stream == NOTE else str(line.rank)
