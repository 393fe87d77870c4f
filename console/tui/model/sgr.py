"""Colours of programs: the SGR sequences (select graphic rendition, ECMA-48) in their output. No I/O.

Only what changes the look of characters without hiding them is known here: colours, bold, dim, italic, underline,
reverse and strike. Conceal, blink and fonts are left out.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from console.tui.format import one_line, tab_gaps

#: What is taken out of a line: SGR, erasures of the line (both have parameters and a final letter), and the two that
#: terminfo's ``sgr0`` puts beside SGR: the return to the ASCII character set, which was never left.
SEQUENCES = re.compile("\x1b\\[([0-9;:]*)([mK])|\x1b\\(B|\x0f")
#: A sequence whose end was not read yet.
BEGUN = re.compile("\x1b(\\[[0-9;:]*|\\()?$")
_LONGEST = 128  # characters of parameters; longer ones are no programmer's

#: -1: the screen's own; up to 255: a number in the terminal's table; from _RGB on: red, green, blue.
Colour = int
OWN: Colour = -1
RGB = 1 << 24


class Look(NamedTuple):
    """How characters look."""

    front: Colour = OWN
    back: Colour = OWN
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False


class Change(NamedTuple):
    """From the ``at``-th character of a line on, the look is another one."""

    at: int
    look: Look


#: In order of ``at``; before the first, the look is PLAIN.
Changes = tuple[Change, ...]

PLAIN = Look()
_ON: dict[int, dict[str, bool]] = {
    1: {"bold": True}, 2: {"dim": True}, 3: {"italic": True}, 4: {"underline": True}, 7: {"reverse": True},
    9: {"strike": True}, 21: {"underline": True}, 22: {"bold": False, "dim": False}, 23: {"italic": False},
    24: {"underline": False}, 27: {"reverse": False}, 29: {"strike": False},
}  # fmt: skip


def changed(look: Look, parameters: str) -> Look:
    """The look after an SGR sequence with these parameters. What is unknown in them changes nothing."""
    return _changed(look, parameters) if len(parameters) <= _LONGEST else look


@lru_cache(4096)
def _changed(look: Look, parameters: str) -> Look:
    given = parameters.split(";")
    while given:
        word, *parts = given.pop(0).split(":")
        code = int(word or 0)
        if code in (38, 48, 58):
            colour = _colour(parts, ordered=len(parts) < 5) if parts else _colour(_taken(given), ordered=True)
            if colour is not None and code != 58:  # 58 is the colour of the underline
                look = look._replace(front=colour) if code == 38 else look._replace(back=colour)
        elif code == 4 and parts:
            look = look._replace(underline=parts[0] != "0")  # 4:3 is a curly line
        elif parts:
            continue
        elif code == 0:
            look = PLAIN
        elif code in _ON:
            look = look._replace(**_ON[code])
        elif 30 <= code <= 37 or 90 <= code <= 97:
            look = look._replace(front=code - 30 if code < 90 else code - 82)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            look = look._replace(back=code - 40 if code < 100 else code - 92)
        elif code == 39:
            look = look._replace(front=OWN)
        elif code == 49:
            look = look._replace(back=OWN)
    return look


def _taken(given: list[str]) -> list[str]:
    """Take the parameters of a colour from the list."""
    count = {"5": 2, "2": 4}.get(given[0], len(given)) if given else 0
    taken = given[:count]
    del given[:count]
    return taken


def _colour(parts: list[str], *, ordered: bool) -> Colour | None:
    """The colour of ``5;n`` or ``2;r;g;b``, or, if not ``ordered``, of ``2:space:r:g:b``; None if it is invalid."""
    if any(not part.isdigit() for part in parts if part):
        return None
    numbers = [int(part or 0) for part in parts]
    if len(numbers) >= 2 and numbers[0] == 5 and numbers[1] < 256:
        return numbers[1]
    rgb = numbers[1:4] if ordered else numbers[2:5]
    if numbers[:1] == [2] and len(rgb) == 3 and max(rgb) < 256:
        return RGB | rgb[0] << 16 | rgb[1] << 8 | rgb[2]
    return None


def sequence(look: Look) -> str:
    """The SGR sequence that sets exactly this look."""
    codes = ["0"]
    for code, on in ((1, look.bold), (2, look.dim), (3, look.italic), (4, look.underline), (7, look.reverse),
                     (9, look.strike)):  # fmt: skip
        if on:
            codes.append(str(code))
    for code, colour in ((38, look.front), (48, look.back)):
        if colour >= RGB:
            codes.append(f"{code};2;{colour >> 16 & 255};{colour >> 8 & 255};{colour & 255}")
        elif colour != OWN:
            codes.append(f"{code};5;{colour}")
    return f"\x1b[{';'.join(codes)}m"


def without(text: str) -> str:
    """The text without the sequences; other control characters stay."""
    return SEQUENCES.sub("", text)


class Read(NamedTuple):
    """What output shows of a line."""

    text: str  # sanitised
    coloured: bool
    after: Look  # in which the next line begins


def read(line: str, look: Look) -> Read:
    """Read a line without carriage returns that begins in a look, as cheaply as possible."""
    parts = SEQUENCES.split(line)
    text = one_line("".join(parts[::3]))
    kinds = parts[2::3]
    if "m" not in kinds:
        return Read(text, look != PLAIN, look)
    if kinds[-1] == "m" and parts[-3] in ("", "0"):  # most lines end as they began
        return Read(text, True, PLAIN)
    for what, kind in zip(parts[1::3], kinds, strict=True):
        if kind == "m":
            look = changed(look, what)
    return Read(text, True, look)


@lru_cache(512)
def changes(line: str, look: Look) -> Changes:
    """The colours of such a line, by the characters of what ``read`` makes of it."""
    parts = SEQUENCES.split(line)
    found: list[Change] = []
    at, last = 0, PLAIN
    for piece, what, kind in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        if piece and look != last:
            found.append(Change(at, look))
            last = look
        at += len(piece)
        if kind == "m":
            look = changed(look, what)
    plain = "".join(parts[::3])
    if found and "\t" in plain:
        tabs = [at for at, character in enumerate(plain) if character == "\t"]
        shifts = [0, *accumulate(gap - 1 for gap in tab_gaps(plain))]
        return tuple(Change(at + shifts[bisect.bisect_left(tabs, at)], look) for at, look in found)
    return tuple(found)


def written(pieces: Iterable[tuple[str, Look]]) -> str:
    """A line whose pieces have these looks, as a program writes it."""
    line: list[str] = []
    before = PLAIN
    for text, look in pieces:
        if look != before:
            line.append(sequence(look))
            before = look
        line.append(text)
    return "".join(line)


def cut(text: str, colours: Changes, begin: int, end: int) -> list[tuple[str, Look]]:
    """The pieces of a part of a line, each with its look."""
    after = bisect.bisect_right(colours, begin, key=lambda change: change.at)
    look = colours[after - 1].look if after else PLAIN
    pieces: list[tuple[str, Look]] = []
    at = begin
    for change in colours[after:]:
        if change.at >= end:
            break
        pieces.append((text[at : change.at], look))
        at, look = change
    pieces.append((text[at:end], look))
    return pieces
