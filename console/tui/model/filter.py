"""The filter for a launch's output: by rank, node, stream and regular expression. No I/O."""

from __future__ import annotations

import bisect
import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from console.errors import ConsoleError
from console.launch.options.lists import parse_list
from console.tui.model.output import MAX_CHARACTERS, MAX_LINES, NOBODY, NOTE, STDERR, STDOUT, Line, Output
from console.tui.model.patterns import FilterError, Pattern
from console.tui.model.scan import Scan

_MOST_RANKS = 1 << 20
_SLACK = 2_048  # lines are dropped in groups, because each drop moves the list
_STREAMS = {"out": STDOUT, "stdout": STDOUT, "err": STDERR, "stderr": STDERR, "yod": NOTE}


class Filter(NamedTuple):
    """The conditions on a line. None means no condition."""

    ranks: frozenset[int] | None = None
    nodes: tuple[str, ...] = ()  # names with * and ?; empty: no condition
    stream: int | None = None
    text: Pattern | None = None
    inverted: bool = False  # the text must not match

    def keeps(self, nodes: Sequence[str]) -> Callable[[Line], bool] | None:
        """A test for lines, which raises TooSlowError; None if all pass. ``nodes``: of each rank."""
        if self == Filter():
            return None
        ranks = self.ranks
        if self.nodes:
            here = {
                rank for rank, name in enumerate(nodes) if any(fnmatch.fnmatchcase(name, one) for one in self.nodes)
            }
            ranks = frozenset(here if ranks is None else ranks & here)
        stream, text, inverted = self.stream, self.text, self.inverted

        def keep(line: Line) -> bool:
            if ranks is not None and line.rank not in ranks and line.rank != NOBODY:
                return False
            if stream is not None and line.stream != stream:
                return False
            return text is None or text.search(line.text) != inverted

        return keep


def parse_filter(words: str) -> Filter:
    """Parse ``rank:0-3,8 node:n1 stream:err !residual``: each at most once, the rest is a regular expression. Raises
    FilterError."""
    found = Filter()
    rest = []
    for word in words.split(" "):
        name, colon, value = word.partition(":")
        if not colon or name not in ("rank", "node", "stream"):
            rest.append(word)
        elif name == "rank":
            found = found._replace(ranks=parse_ranks(value))
        elif name == "node":
            found = found._replace(nodes=tuple(value.replace("[", "[[]").split(",")))
        elif value in _STREAMS:
            found = found._replace(stream=_STREAMS[value])
        else:
            raise FilterError(f"stream:{value}: there are out, err and yod")
    text = " ".join(rest).strip()
    if text.startswith("!"):
        found, text = found._replace(inverted=True), text[1:].lstrip()
    return found._replace(text=Pattern(text)) if text else found._replace(inverted=False)


def parse_ranks(value: str) -> frozenset[int]:
    """Parse a list of ranks like ``0-3,8``. Raises FilterError."""
    try:
        found = parse_list(value)
    except ConsoleError:
        found = {"nodes": [value], "processors": []}
    if found["nodes"] or sum(last - first for first, last in found["processors"]) > _MOST_RANKS:
        raise FilterError(f"rank:{value}: numbers and ranges, like 0-3,8")
    return frozenset(rank for first, last in found["processors"] for rank in range(first, last + 1))


class Selection:
    """The newest lines of a launch that pass a filter. They stay when the output drops them from memory."""

    def __init__(self, output: Output, keep: Callable[[Line], bool], start: int | None = None) -> None:
        """``start``: the oldest line to look at; None: the oldest in memory."""
        self.scan = Scan(output, keep, start)
        self.dropped = False  # so many lines pass that older ones are not kept
        self._numbers: list[int] = []
        self._lines: list[Line] = []
        self._characters = 0

    def refresh(self) -> None:
        """Add new lines, and remove those that do not pass any more. Raises TooSlowError."""
        self.take(self.scan.passing())
        for number in self.scan.gone:
            at = bisect.bisect_left(self._numbers, number)
            if at < len(self._numbers) and self._numbers[at] == number:
                self._characters -= _weight(self._lines[at])
                del self._numbers[at], self._lines[at]
        self.scan.gone.clear()

    def take(self, passing: Iterable[tuple[int, Line]]) -> None:
        """Add lines that pass, or replace lines that were overwritten."""
        for number, line in passing:
            at = len(self._numbers)
            if at and number <= self._numbers[-1]:
                at = bisect.bisect_left(self._numbers, number)
            if at < len(self._numbers) and self._numbers[at] == number:
                self._characters -= _weight(self._lines[at])
                self._lines[at] = line
            else:
                self._numbers.insert(at, number)
                self._lines.insert(at, line)
            self._characters += _weight(line)
            if len(self._lines) > MAX_LINES + _SLACK or self._characters > MAX_CHARACTERS:
                self._drop()

    def _drop(self) -> None:
        drop = max(0, len(self._lines) - MAX_LINES)
        freed = sum(map(_weight, self._lines[:drop]))
        while self._characters - freed > MAX_CHARACTERS * 3 // 4 and drop < len(self._lines):
            freed += _weight(self._lines[drop])
            drop += 1
        del self._numbers[:drop], self._lines[:drop]
        self._characters -= freed
        self.dropped = True

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, index: int) -> int:
        """The number of the ``index``-th shown line, which does not change when lines are dropped."""
        return self._numbers[index]

    def line(self, index: int) -> Line:
        """The ``index``-th shown line."""
        return self._lines[index]

    def who(self, index: int) -> str:
        """The label of its rank."""
        line = self._lines[index]
        return "yod" if line.stream == NOTE else str(line.rank)


def _weight(line: Line) -> int:
    return len(line.text) + len(line.written)
