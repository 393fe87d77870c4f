"""Regular expressions that the user types. No I/O.

Python's ``re`` has no limit of time: with ``(a+)+$``, one line of 40 characters blocks the console for hours. The
package ``regex`` takes the same expressions, has a limit, and lets other threads run while it searches. It has no limit
where it compiles: it writes out what is repeated, so that ``((a{1000}){1000}){1000}`` took all memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from console.errors import ConsoleError

if TYPE_CHECKING:
    import regex

#: The longest search of one text, in seconds of the process's CPU time. A usual expression takes microseconds.
MOST_S = 0.25
#: How often a search of many texts asks for its CPU time: the question takes longer than a text.
_ASKED_EVERY_S = 0.005
#: The most parts of an expression, with repeated ones written out. A usual one has some dozens; 100,000 take 0.1 s.
_MOST_PARTS = 20_000
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\s*(?P<times>[0-9]+)[^}]*\}|.", re.DOTALL)


class FilterError(ConsoleError):
    """An invalid, perhaps incomplete, filter or expression."""


class TooSlowError(FilterError):
    """A regular expression takes too long."""


class Pattern:
    """A regular expression; case matters only if it contains capitals."""

    def __init__(self, words: str) -> None:
        """Raises FilterError."""
        import regex  # only where an expression is compiled: it takes 20 ms of the console's start

        self.words = words
        if _parts(words) > _MOST_PARTS:
            raise FilterError(f"{words!r} is not a regular expression: it repeats too much")
        flags = 0 if any(c.isupper() for c in words) else regex.IGNORECASE
        try:
            self._compiled: regex.Pattern[str] = regex.compile(words, flags)
        except (regex.error, OverflowError, RecursionError) as error:
            raise FilterError(f"{words!r} is not a regular expression: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.words == self.words

    def __hash__(self) -> int:
        return hash(self.words)

    def search(self, text: str) -> bool:
        """True if the expression matches somewhere in the text. Raises TooSlowError."""
        try:
            return self._compiled.search(text, timeout=MOST_S) is not None
        except TimeoutError:
            raise _too_slow(self.words, MOST_S, "one line") from None

    def spans(self, text: str, most_s: float) -> list[tuple[int, int]]:
        """Where the expression matches, without empty matches; none if that takes longer than ``most_s``."""
        try:
            found = [match.span() for match in self._compiled.finditer(text, timeout=most_s)]
        except TimeoutError:
            return []
        return [(begin, end) for begin, end in found if begin < end]


def _parts(words: str) -> int:
    """How many parts the expression has when each repetition is written out as often as it is demanded."""
    groups, last = [0], 0  # the open groups; the last part, which a number in braces repeats
    for part in _PART.finditer(words):
        if part[0] == "(":
            groups.append(0)
            last = 0
        elif part[0] == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif part["times"] is not None:
            more = last * max(0, int(part["times"][:9]) - 1)
            groups[-1] += more
            last += more
        else:
            last = 1
            groups[-1] += 1
    return sum(groups)


def within(words: str, matches: Callable[[str], bool], most_s: float) -> Callable[[str], bool]:
    """The test of an expression for many texts, which may take ``most_s`` of CPU time from now on. Raises
    TooSlowError."""
    until = time.process_time() + most_s
    due = 0.0

    def test(text: str) -> bool:
        nonlocal due
        if (now := time.monotonic()) > due:
            due = now + _ASKED_EVERY_S
            if time.process_time() > until:
                raise _too_slow(words, most_s, "all rows")
        return matches(text)

    return test


def _too_slow(words: str, most_s: float, what: str) -> TooSlowError:
    return TooSlowError(
        f"{words!r} takes more than {most_s:g} s for {what}",
        "a repetition inside a repetition, as in (a+)+, tries too many ways to match",
    )
