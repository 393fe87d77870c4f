"""The map as text: a character for each processor, grouped by node, and a letter for each launcher. No I/O."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: The glyph of every state, in the legend's order; busy processors show their launcher's letter instead.
GLYPHS = {"free": ".", "pending": "+", "busy": "a", "stale": "-", "down": "#", "drained": "!", "reserved": "="}
#: States that are called otherwise on a screen than in JSON: the processors of a suspect node.
_WORDS = {"stale": "suspect"}
#: States that totals leave out where no processor is in them, so that a line has room in 80 columns.
RARE = ("drained",)
#: Free, but only for a batch job's partition; counted as free.
KEPT = ":"
#: Free, but on a service node: allocated only if requested by name.
SERVICE = ","
_FREE = {"kept": KEPT, "service": SERVICE}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

_COLOURS = {"free": "2", "pending": "33", "stale": "35", "down": "31", "drained": "33", "reserved": "36"}
_LAUNCHER_COLOURS = ("32", "34", "33", "36", "92", "94", "93", "96", "95", "35")


class Cell(NamedTuple):
    """A processor: its state for display, and its launcher."""

    state: str
    launcher: int | None


class Group(NamedTuple):
    """One node: its name and its processors."""

    name: str
    cells: Sequence[Cell]


def letters(launchers: Iterable[int]) -> dict[int, str]:
    """Return a letter for each launcher, or a word of two or more letters if there are more than 62 launchers.

    A launcher's letter is derived from its id, so that it seldom changes when other launchers start and end.
    """
    ids = sorted(launchers)
    width, room = 1, len(LETTERS)
    while len(ids) > room:
        width, room = width + 1, room * len(LETTERS)
    taken: dict[int, int] = {}
    for one in ids:
        place = (one - 1) % room
        while place in taken:
            place = (place + 1) % room
        taken[place] = one
    return {one: _word(place, width) for place, one in taken.items()}


def _word(place: int, width: int) -> str:
    word = ""
    for _ in range(width):
        place, rest = divmod(place, len(LETTERS))
        word = LETTERS[rest] + word
    return word


def draw(groups: Sequence[Group], letter: dict[int, str], width: int, *, colour: bool = False) -> list[str]:
    """The map in ``width`` columns: nodes side by side if they fit, long ones over several lines."""
    if not groups:
        return ["no processors"]
    wide = max((len(word) for word in letter.values()), default=1)
    names = max(len(group.name) for group in groups)
    longest = max(1, *(len(group.cells) for group in groups))
    room = max(1, (width - names - 1) // wide)
    run = longest if longest <= room else max(1, room // 8 * 8 or room)
    block = names + 1 + run * wide
    beside = max(1, (width + 2) // (block + 2))
    if longest > run:
        beside = 1
    lines = []
    for first in range(0, len(groups), beside):
        lines += _row(groups[first : first + beside], letter, (names, run, wide), colour)
    return lines


def _row(groups: Sequence[Group], letter: dict[int, str], sizes: tuple[int, int, int], colour: bool) -> list[str]:
    names, run, wide = sizes
    lines = []
    for start in range(0, max(1, *(len(group.cells) for group in groups)), run):
        parts = []
        for group in groups:
            cells = group.cells[start : start + run]
            name = group.name if start == 0 else ""
            glyphs = [glyph_of(cell, letter, wide) for cell in cells]
            text = painted(glyphs) if colour else "".join(glyph for glyph, _ in glyphs)
            parts.append(f"{name:>{names}} {text}{' ' * (wide * (run - len(cells)))}")
        lines.append("  ".join(parts).rstrip())
    return lines


def glyph_of(cell: Cell, letter: dict[int, str], wide: int) -> tuple[str, str]:
    """The characters of a processor and their colour."""
    if cell.state == "busy" and cell.launcher in letter:
        return letter[cell.launcher], _LAUNCHER_COLOURS[cell.launcher % len(_LAUNCHER_COLOURS)]
    return (_FREE.get(cell.state) or GLYPHS[cell.state]) * wide, _COLOURS.get(cell.state, "0")


def painted(glyphs: Iterable[tuple[str, str]]) -> str:
    """Glyphs in their colours, with one escape sequence for each run of the same colour."""
    text, last = "", ""
    for glyph, code in glyphs:
        text += glyph if code == last else f"\x1b[0;{code}m{glyph}"
        last = code
    return f"{text}\x1b[0m" if last else text


def legend(counts: dict[str, int]) -> str:
    """Every state with its glyph and how many processors are in it; drained ones only if there are any."""
    return "   ".join(
        f"{glyph} {state_word(state)} {counts.get(state, 0)}"
        for state, glyph in GLYPHS.items()
        if state not in RARE or counts.get(state)
    )


def state_word(state: str) -> str:
    """The word for a state on a screen."""
    return _WORDS.get(state, state)


def elapsed(seconds: float) -> str:
    """Hours, minutes and seconds in the format of the original pingd: 39:36:54."""
    whole = max(0, int(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: Iterable[int] = ()) -> list[str]:
    """Columns under a head, separated by two blanks; ``right`` are right-aligned; lines are cut off at ``width``."""
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head))]
    right = set(right)
    lines = []
    for row in [head, *rows]:
        cells = [f"{t:>{w}}" if i in right else f"{t:<{w}}" for i, (t, w) in enumerate(zip(row, widths, strict=True))]
        lines.append(cut("  ".join(cells).rstrip(), width))
    return lines


def cut(line: str, width: int) -> str:
    """``line`` in at most ``width`` columns, with a mark at its end if it was cut off."""
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"
