"""Gathers identical output lines of many ranks as they arrive. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from console.tui.model.output import NOTE, Line, Output
from console.tui.model.scan import Scan
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

    def __init__(self, output: Output, keep: Callable[[Line], bool] | None = None, start: int | None = None) -> None:
        """``start``: the oldest line to look at; None: the oldest in memory."""
        self.scan = Scan(output, keep, start, settled=True)
        self.dropped = False  # there are so many groups that older ones are not kept
        self._groups: list[_Group] = []
        self._by_key: dict[tuple[str, int, int], _Group] = {}
        self._times: dict[tuple[str, int, int], int] = {}

    def refresh(self) -> None:
        """Add new lines. Raises TooSlowError."""
        self.take(self.scan.passing())

    def take(self, passing: Iterable[tuple[int, Line]]) -> None:
        """Add lines that pass; the oldest groups are dropped if there are too many."""
        for number, line in passing:
            self._add(number, line)
        if len(self._groups) > MOST + MOST // 4 or len(self._times) > _MOST_WRITERS:
            self.dropped = True
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
