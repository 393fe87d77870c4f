"""Output of a launch's ranks as lines in limited memory. No I/O."""

import codecs
from typing import NamedTuple

from rich.cells import cell_len

from console.tui.format import one_line
from console.tui.model.sgr import (
    BEGUN,
    PLAIN,
    SEQUENCES,
    Changes,
    Look,
    Read,
    changed,
    changes,
    cut,
    read,
    sequence,
    without,
)
from console.tui.model.sgr import written as with_colours
from redmesh.sanitise import clean

STDOUT, STDERR = 2, 3  # the kinds of frames they come in (docs/protocol.md)
NOTE = 0  # lines of yod itself, between the ranks' lines
NOBODY = -1  # the rank of a note

MAX_LINES = 20_000
MAX_CHARACTERS = 16 << 20
MAX_LINE = 4_096  # longer lines are cut, because one line must not fill the memory
_SLACK = 2_048  # lines are dropped in groups, because each drop moves the list
_MAX_WRITTEN = 4 * MAX_LINE  # the same with colours: of longer lines they are left out
_LONGEST_BEGUN = 128  # characters of an escape sequence whose end was not read yet
#: A line that is overwritten repeatedly keeps its place while at most this many lines came after it.
_STAYS = 20


class Line(NamedTuple):
    """A rank's line, sanitised."""

    rank: int
    stream: int
    text: str
    at: float = 0.0  # when the console read it; 0 for lines that were written before it attached
    written: str = ""  # with its SGR sequences, not sanitised; empty if it has none
    look: Look = PLAIN  # in which it begins

    @property
    def changes(self) -> Changes:
        """The colours of ``text``."""
        if self.look == PLAIN and not self.written:
            return ()
        return changes(self.written or self.text, self.look)


class Unfinished(NamedTuple):
    """The state of all incomplete lines, from which parsing can continue."""

    end: int  # the number of the next line
    open: dict[tuple[int, int], str]
    decoders: dict[tuple[int, int], tuple[bytes, int]]
    drawn_over: dict[tuple[int, int], int]
    looks: dict[tuple[int, int], Look]


class Output:
    """The newest lines of a launch. Lines are numbered from 0 in order of arrival; ``first`` is the oldest kept.

    Only lines of one rank and stream are in the order in which they were written.
    """

    def __init__(self, max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> None:
        self.first = 0
        self.longest = 0
        self.total_bytes = 0
        self.skipped_bytes = 0
        self.now = 0.0  # the time for new lines
        self.generation = 0  # increases when numbers come to mean other lines
        self.redrawn = 0  # increases when an existing line changes
        self._max_lines = max_lines
        self._max_characters = max_characters
        self._characters = 0
        self._lines: list[Line] = []
        self._open: dict[tuple[int, int], str] = {}
        self._open_at: dict[tuple[int, int], float] = {}  # when the newest part of each came
        self._drawn_over: dict[tuple[int, int], int] = {}  # the numbers of incomplete lines with carriage returns
        self._decoders: dict[tuple[int, int], codecs.IncrementalDecoder] = {}
        self._looks: dict[tuple[int, int], Look] = {}  # in which the next line begins, unless it is PLAIN

    @classmethod
    def resumed(cls, state: Unfinished) -> "Output":
        """An output that continues from a saved state, and keeps everything."""
        output = cls(1 << 60, 1 << 60)
        output.first = state.end
        output._open = dict(state.open)
        output._drawn_over = dict(state.drawn_over)
        output._looks = dict(state.looks)
        for key, inner in state.decoders.items():
            output._decoder(key).setstate(inner)
        return output

    def unfinished(self) -> Unfinished:
        """The present state of incomplete lines."""
        decoders = {key: state for key, one in self._decoders.items() if (state := one.getstate())[0]}
        return Unfinished(self.end, dict(self._open), decoders, dict(self._drawn_over), dict(self._looks))

    def __len__(self) -> int:
        """The number of kept lines."""
        return len(self._lines)

    def clear(self) -> None:
        """Discard everything; numbers start again."""
        self.generation += 1
        self.first = self.total_bytes = self.skipped_bytes = self._characters = self.longest = 0
        self._lines.clear()
        self._open.clear()
        self._open_at.clear()
        self._drawn_over.clear()
        self._decoders.clear()
        self._looks.clear()

    @property
    def unsettled(self) -> frozenset[int]:
        """The numbers of lines that are still being overwritten: progress bars."""
        return frozenset(self._drawn_over.values())

    @property
    def end(self) -> int:
        """The number the next line will get."""
        return self.first + len(self._lines)

    def line(self, number: int) -> Line:
        """The line of a number. Raises IndexError if it was dropped, or does not exist yet."""
        if number < self.first:
            raise IndexError(number)
        return self._lines[number - self.first]

    def lines(self, start: int) -> list[Line]:
        """The kept lines numbered ``start`` and up."""
        return self._lines[max(0, start - self.first) :]

    def _decoder(self, key: tuple[int, int]) -> codecs.IncrementalDecoder:
        decoder = self._decoders.get(key)
        if decoder is None:
            decoder = self._decoders[key] = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """Add a rank's output. Complete lines become visible at once, and so do incomplete ones with carriage returns
        (progress bars); others become visible when their line ends or exceeds MAX_LINE."""
        key = (rank, stream)
        self.total_bytes += len(data)
        text = self._open.pop(key, "") + self._decoder(key).decode(data)
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        parts = text.split("\n")
        rest = parts.pop()
        if len(rest) > MAX_LINE and _too_long(rest):
            begun = _begun(rest)
            parts.append(rest.removesuffix(begun))
            rest = begun
        if parts and key in self._drawn_over:
            drawn = _overwritten(parts.pop(0), self._looks.get(key, PLAIN))
            self._draw_over(key, drawn)
            self._end_in(key, drawn.look)
            del self._drawn_over[key]
        if rest:
            self._open[key] = rest
            self._open_at[key] = self.now
        longest = max(map(len, parts), default=0)
        joined = "".join(parts)
        if longest <= MAX_LINE and joined.isprintable() and key not in self._looks:  # the usual case
            if not joined.isascii():
                longest = max(map(cell_len, parts))
            now = self.now
            new = tuple.__new__  # half the time of Line(…)
            self._lines += [new(Line, (rank, stream, part, now, "", PLAIN)) for part in parts]
            self._characters += len(joined)
            self.longest = max(self.longest, longest)
        else:
            for part in parts:
                self._append(rank, stream, part)
        if "\r" in rest:
            begun = _begun(rest)
            drawn = _overwritten(rest.removesuffix(begun), self._looks.get(key, PLAIN))
            self._open[key] = drawn.again() + begun  # the same line and cursor after any number of overwrites
            self._draw_over(key, drawn)
        self._trim()

    def _end_in(self, key: tuple[int, int], look: Look) -> None:
        """A line has ended in a look: the rank's next line begins in it, as on a terminal."""
        if look != PLAIN:
            self._looks[key] = look
        else:
            self._looks.pop(key, None)

    def _draw_over(self, key: tuple[int, int], drawn: "_Drawn") -> None:
        """Show an incomplete line in its present form, at its earlier place."""
        number = self._drawn_over.get(key, -1)
        line = drawn.line(*key, self.now)
        if number < max(0, self.end - _STAYS):
            self._drawn_over[key] = self.end
            self._add(line)
        elif number >= self.first:
            self._characters += _weight(line) - _weight(self._lines[number - self.first])
            self._lines[number - self.first] = line
            self.longest = max(self.longest, cell_len(line.text))
            self.redrawn += 1

    def open_lines(self, before: float) -> list[Line]:
        """Lines without an end that were not continued since ``before``: prompts, dots that stand for progress.

        They have no numbers yet. Those with carriage returns are not among them: they are visible already.
        """
        found = []
        for key, rest in self._open.items():
            if key in self._drawn_over or self._open_at.get(key, 0.0) > before or not rest.strip():
                continue
            text, look = rest.removesuffix(_begun(rest)), self._looks.get(key, PLAIN)
            shown = read(text, look)
            if not shown.coloured:
                text, look = "", PLAIN
            found.append(Line(*key, shown.text[:MAX_LINE], self._open_at.get(key, 0.0), text, look))
        return found

    def note(self, text: str) -> None:
        """Add a line of yod itself."""
        self._append(NOBODY, NOTE, text)

    def finish(self, rank: int | None = None) -> None:
        """Make incomplete lines visible: of one rank that has ended, or of all."""
        for key in [key for key in self._open if rank is None or key[0] == rank]:
            text = self._open.pop(key)
            self._open_at.pop(key, None)
            if key in self._drawn_over:
                del self._drawn_over[key]  # the line is in the list already
            else:
                self._append(*key, text)
        for key in [key for key in self._looks if rank is None or key[0] == rank]:
            del self._looks[key]
        self._trim()

    def _append(self, rank: int, stream: int, text: str) -> None:
        key, now = (rank, stream), self.now
        look = self._looks.get(key, PLAIN)
        if "\r" in text:
            drawn = _overwritten(text, look)
            text, look = drawn.written(), PLAIN
            self._end_in(key, drawn.look)
            shown = read(text, PLAIN)
        elif look == PLAIN and "\x1b" not in text and "\x0f" not in text:
            shown = Read(one_line(text), False, PLAIN)
        else:
            shown = read(text, look)
            self._end_in(key, shown.after)
        if not shown.coloured or stream == NOTE or len(text) > _MAX_WRITTEN:
            text, look = "", PLAIN
        if len(shown.text) <= MAX_LINE:
            self._add(Line(rank, stream, shown.text, now, text, look))
            return
        colours = changes(text, look) if text else ()
        for start in range(0, len(shown.text), MAX_LINE):
            piece = with_colours(cut(shown.text, colours, start, start + MAX_LINE)) if colours else ""
            self._add(Line(rank, stream, shown.text[start : start + MAX_LINE], now, piece))

    def _add(self, line: Line) -> None:
        self._lines.append(line)
        self._characters += _weight(line)
        if line.stream != NOTE:  # notes are wrapped
            self.longest = max(self.longest, len(line.text) if line.text.isascii() else cell_len(line.text))

    def _trim(self) -> None:
        excess = len(self._lines) - self._max_lines
        if excess <= _SLACK and self._characters <= self._max_characters:
            return
        drop = max(0, excess)
        freed = sum(map(_weight, self._lines[:drop]))
        while self._characters - freed > self._max_characters * 3 // 4 and drop < len(self._lines):
            freed += _weight(self._lines[drop])
            drop += 1
        del self._lines[:drop]
        self.first += drop
        self._characters -= freed


def lines_of(text: str) -> list[Line]:
    """A program's output as lines, as a terminal would show them."""
    output = Output()
    output.feed(0, STDOUT, text.encode())
    output.finish()
    return output.lines(0)


def _weight(line: Line) -> int:
    """The memory of a line, in characters."""
    return len(line.text) + len(line.written)


def _too_long(rest: str) -> bool:
    """Whether an incomplete line of more than MAX_LINE characters is too long without its colours, too."""
    return "\x1b" not in rest or len(rest) > _MAX_WRITTEN or len(without(rest)) > MAX_LINE


def _begun(rest: str) -> str:
    """The escape sequence at the end of an incomplete line that may go on."""
    begun = BEGUN.search(rest, max(0, len(rest) - _LONGEST_BEGUN))
    return begun[0] if begun else ""


class _Drawn(NamedTuple):
    """A line after carriage returns and erasures, as on a terminal."""

    columns: list[str]  # the text of each, sanitised except for tabs
    looks: list[Look]  # of each column
    at: int  # the cursor's column
    look: Look  # of what comes next

    def written(self) -> str:
        """The line with its colours."""
        return with_colours(zip(self.columns, self.looks, strict=True))

    def line(self, rank: int, stream: int, now: float) -> Line:
        """The line to be shown."""
        written = self.written()
        shown = read(written, PLAIN)
        if len(shown.text) > MAX_LINE or len(written) > _MAX_WRITTEN or not shown.coloured:
            written = ""
        return Line(rank, stream, shown.text[:MAX_LINE], now, written)

    def again(self) -> str:
        """A text that draws the line and puts the cursor where it is."""
        before = with_colours(zip(self.columns[: self.at], self.looks[: self.at], strict=True))
        coloured = self.look != PLAIN or any(look != PLAIN for look in self.looks)
        own, last = (sequence(PLAIN), sequence(self.look)) if coloured else ("", "")
        return f"{own}{self.written()}{own}\r{before}{last}"


def _overwritten(text: str, look: Look) -> _Drawn:
    line: list[str] = []
    looks: list[Look] = []
    at = 0
    for drawn in text.split("\r"):
        at = 0
        parts = SEQUENCES.split(drawn)
        for place in range(0, len(parts), 3):
            what, kind = parts[place - 2 : place] if place else ("", "")
            if kind == "m":
                look = changed(look, what)
            elif kind == "K" and what in ("1", "2"):  # the erased part: 0 after the cursor, 1 before it, 2 all
                line = [" "] * at + (line[at:] if what == "1" else [])
                looks = [PLAIN] * at + (looks[at:] if what == "1" else [])
            elif kind == "K" and what in ("", "0"):
                del line[at:], looks[at:]
            piece = parts[place]
            accents, cells = _columns(piece if piece.isprintable() else "\t".join(map(clean, piece.split("\t"))))
            if accents and at:
                line[at - 1 if line[at - 1] or at == 1 else at - 2] += accents
            end = at + len(cells)
            if cells and line[end : end + 1] == [""]:
                line[end] = " "  # the left half of a wide character was overwritten
            line[at:end] = cells
            looks[at:end] = [look] * len(cells)
            at = end
    return _Drawn(line, looks, at, look)


def _columns(text: str) -> tuple[str, list[str]]:
    """Accents at the beginning, and the text of each column: the second column of a wide character is empty, other
    accents are with their letter."""
    if text.isascii():
        return "", list(text)
    accents = ""
    found: list[str] = []
    for character in text:
        width = 1 if character.isascii() else cell_len(character)
        if width:
            found += [character, *[""] * (width - 1)]
        elif found:
            found[-1 if found[-1] else -2] += character
        else:
            accents += character
    return accents, found
