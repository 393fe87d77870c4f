"""Gathers identical output lines of many ranks as they arrive. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from console.tui.model.output import NOTE, Line, Output
from redmesh.idset import fold_ranks

MOST = 20_000  # groups kept
_MOST_WRITERS = 400_000  # times a rank is remembered for a text


class _Group:
    __slots__ = ("first", "line", "ranks", "who")

    def __init__(self, first: int, line: Line) -> None:
        self.first, self.line = first, line
        self.ranks = {line.rank}
        self.who = ""


class Gathered:
    """The lines that pass a filter, with equal lines of different ranks in one row.

    When a rank writes a text for the second time, it joins the group of all second times, so the groups do not depend
    on the order of arrival.
    """

    def __init__(self, output: Output, keep: Callable[[Line], bool] | None = None) -> None:
        self._output = output
        self._keep = keep
        self._start()

    def _start(self) -> None:
        self._generation = self._output.generation
        self._seen = self._output.first
        self._groups: list[_Group] = []
        self._by_key: dict[tuple[str, int, int], _Group] = {}
        self._times: dict[tuple[str, int, int], int] = {}
        self._unsettled: set[int] = set()  # progress bars are gathered when they end

    def refresh(self) -> None:
        """Add new lines; the oldest groups are dropped if there are too many."""
        output, keep = self._output, self._keep
        if self._generation != output.generation:
            self._start()
        start = max(self._seen, output.first)
        unsettled = output.unsettled
        settled = sorted(number for number in self._unsettled - unsettled if number >= output.first)
        self._unsettled = {number for number in unsettled if number >= output.first}
        fresh = [(number, line) for number, line in enumerate(output.lines(start), start) if number not in unsettled]
        for number, line in [*((number, output.line(number)) for number in settled), *fresh]:
            if keep is None or keep(line):
                self._add(number, line)
        self._seen = output.end
        if len(self._groups) > MOST + MOST // 4 or len(self._times) > _MOST_WRITERS:
            del self._groups[: max(len(self._groups) - MOST, len(self._groups) // 2)]
            kept = set(map(id, self._groups))
            self._by_key = {key: group for key, group in self._by_key.items() if id(group) in kept}
            texts = {key[:2] for key in self._by_key}
            self._times = {key: times for key, times in self._times.items() if key[:2] in texts}

    def _add(self, number: int, line: Line) -> None:
        if line.stream == NOTE:
            self._groups.append(_Group(number, line))
            return
        own = (line.text, line.stream, line.rank)
        times = self._times.get(own, 0) + 1
        self._times[own] = times
        key = (line.text, line.stream, times)
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = _Group(number, line)
            self._groups.append(group)
        else:
            group.ranks.add(line.rank)
            group.who = ""

    def __len__(self) -> int:
        return len(self._groups)

    def number(self, index: int) -> int:
        """The number of the first line of the ``index``-th row."""
        return self._groups[index].first

    def line(self, index: int) -> Line:
        """The line that all of them wrote."""
        return self._groups[index].line

    def who(self, index: int) -> str:
        """The label of the ranks that wrote it."""
        group = self._groups[index]
        if not group.who:
            group.who = "yod" if group.line.stream == NOTE else fold_ranks(sorted(group.ranks))
        return group.who
