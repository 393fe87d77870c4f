"""The filter for a launch's output: by rank, node, stream and regular expression. No I/O."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from console.errors import ConsoleError
from console.launch.options.lists import parse_list
from console.tui.model.output import NOBODY, NOTE, STDERR, STDOUT, Line, Output

_MOST_RANKS = 1 << 20
_STREAMS = {"out": STDOUT, "stdout": STDOUT, "err": STDERR, "stderr": STDERR, "yod": NOTE}


class FilterError(ConsoleError):
    """An invalid, perhaps incomplete, filter."""


class Filter(NamedTuple):
    """The conditions on a line. None means no condition."""

    ranks: frozenset[int] | None = None
    node: re.Pattern[str] | None = None
    stream: int | None = None
    text: re.Pattern[str] | None = None
    inverted: bool = False  # the text must not match

    def keeps(self, nodes: Sequence[str]) -> Callable[[Line], bool] | None:
        """A test for lines; None if all pass. ``nodes``: of each rank."""
        if self == Filter():
            return None
        ranks = self.ranks
        if self.node is not None:
            here = {rank for rank, name in enumerate(nodes) if self.node.fullmatch(name)}
            ranks = frozenset(here if ranks is None else ranks & here)
        stream, text, inverted = self.stream, self.text, self.inverted

        def keep(line: Line) -> bool:
            if ranks is not None and line.rank not in ranks and line.rank != NOBODY:
                return False
            if stream is not None and line.stream != stream:
                return False
            return text is None or (text.search(line.text) is not None) != inverted

        return keep


def pattern(words: str) -> re.Pattern[str]:
    """A regular expression; case matters only if it contains capitals. Raises FilterError."""
    try:
        return re.compile(words, 0 if any(c.isupper() for c in words) else re.IGNORECASE)
    except (re.error, OverflowError) as error:
        raise FilterError(f"{words!r} is not a regular expression: {error}") from None


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
            found = found._replace(node=_glob(value))
        elif value in _STREAMS:
            found = found._replace(stream=_STREAMS[value])
        else:
            raise FilterError(f"stream:{value}: there are out, err and yod")
    text = " ".join(rest).strip()
    if text.startswith("!"):
        found, text = found._replace(inverted=True), text[1:].lstrip()
    return found._replace(text=pattern(text)) if text else found._replace(inverted=False)


def parse_ranks(value: str) -> frozenset[int]:
    """Parse a list of ranks like ``0-3,8``. Raises FilterError."""
    try:
        found = parse_list(value)
    except ConsoleError:
        found = {"nodes": [value], "processors": []}
    if found["nodes"] or sum(last - first for first, last in found["processors"]) > _MOST_RANKS:
        raise FilterError(f"rank:{value}: numbers and ranges, like 0-3,8")
    return frozenset(rank for first, last in found["processors"] for rank in range(first, last + 1))


def _glob(value: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in value.split(",")))


class Selection:
    """The numbers of output lines that pass a filter, as of the last refresh."""

    def __init__(self, output: Output, keep: Callable[[Line], bool] | None = None) -> None:
        self._output = output
        self._keep = keep
        self._numbers: list[int] | range = []
        self._unsettled: set[int] = set()  # lines that are still being overwritten, and do not pass yet
        self._seen = output.first
        self._generation = output.generation

    def refresh(self) -> None:
        """Add new lines, and remove dropped ones."""
        output = self._output
        if self._keep is None:
            self._numbers = range(output.first, output.end)
            return
        if self._generation != output.generation:
            self._generation, self._seen, self._numbers = output.generation, output.first, []
            self._unsettled.clear()
        assert isinstance(self._numbers, list)
        start = max(self._seen, output.first)
        keep = self._keep
        unsettled = output.unsettled
        for number in sorted(self._unsettled):
            if number < output.first or keep(output.line(number)):
                self._unsettled.discard(number)
                if number >= output.first:
                    bisect.insort(self._numbers, number)
        self._unsettled &= unsettled
        self._numbers += [number for number, line in enumerate(output.lines(start), start) if keep(line)]
        self._unsettled |= {number for number in unsettled if number >= start and not keep(output.line(number))}
        self._seen = output.end
        gone = 0
        while gone < len(self._numbers) and self._numbers[gone] < output.first:
            gone += 1
        if gone:
            del self._numbers[:gone]

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, index: int) -> int:
        """The number of the ``index``-th shown line, which does not change when lines are dropped."""
        return self._numbers[index]

    def line(self, index: int) -> Line:
        """The ``index``-th shown line. Raises IndexError if it was dropped since the last refresh."""
        return self._output.line(self.number(index))

    def who(self, index: int) -> str:
        """The label of its rank."""
        line = self.line(index)
        return "yod" if line.stream == NOTE else str(line.rank)
