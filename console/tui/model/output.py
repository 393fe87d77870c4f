"""Output of a launch's ranks as lines in limited memory. No I/O."""

import codecs
import re
from typing import NamedTuple

from rich.cells import cell_len

from console.tui.format import one_line

STDOUT, STDERR = 2, 3  # the kinds of frames they come in (docs/protocol.md)
NOTE = 0  # lines of yod itself, between the ranks' lines
NOBODY = -1  # the rank of a note

MAX_LINES = 20_000
MAX_CHARACTERS = 16 << 20
MAX_LINE = 4_096  # longer lines are cut, because one line must not fill the memory
_SLACK = 2_048  # lines are dropped in groups, because each drop moves the list


_COLOURS = re.compile("\x1b\\[[0-9;:]*[mK]")
_ERASE = re.compile("\x1b\\[([0-2]?)K")
_BEGUN = re.compile("\x1b(\\[[0-9;:]*)?$")  # an escape sequence whose end was not read yet
#: A line that is overwritten repeatedly keeps its place while at most this many lines came after it.
_STAYS = 20


class Line(NamedTuple):
    """A rank's line, sanitised."""

    rank: int
    stream: int
    text: str
    at: float = 0.0  # when the console read it; 0 for lines that were written before it attached


class Unfinished(NamedTuple):
    """The state of all incomplete lines, from which parsing can continue."""

    end: int  # the number of the next line
    open: dict[tuple[int, int], str]
    decoders: dict[tuple[int, int], tuple[bytes, int]]
    drawn_over: dict[tuple[int, int], int]


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
        self._drawn_over: dict[tuple[int, int], int] = {}  # the numbers of incomplete lines with carriage returns
        self._decoders: dict[tuple[int, int], codecs.IncrementalDecoder] = {}

    @classmethod
    def resumed(cls, state: Unfinished) -> "Output":
        """An output that continues from a saved state, and keeps everything."""
        output = cls(1 << 60, 1 << 60)
        output.first = state.end
        output._open = dict(state.open)
        output._drawn_over = dict(state.drawn_over)
        for key, inner in state.decoders.items():
            output._decoder(key).setstate(inner)
        return output

    def unfinished(self) -> Unfinished:
        """The present state of incomplete lines."""
        decoders = {key: state for key, one in self._decoders.items() if (state := one.getstate())[0]}
        return Unfinished(self.end, dict(self._open), decoders, dict(self._drawn_over))

    def __len__(self) -> int:
        """The number of kept lines."""
        return len(self._lines)

    def clear(self) -> None:
        """Discard everything; numbers start again."""
        self.generation += 1
        self.first = self.total_bytes = self.skipped_bytes = self._characters = self.longest = 0
        self._lines.clear()
        self._open.clear()
        self._drawn_over.clear()
        self._decoders.clear()

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
        if len(rest) > MAX_LINE:
            parts.append(rest)
            rest = ""
        if parts and key in self._drawn_over:
            self._draw_over(key, _overwritten(parts.pop(0))[0])
            del self._drawn_over[key]
        if rest:
            self._open[key] = rest
        longest = max(map(len, parts), default=0)
        joined = "".join(parts)
        if longest <= MAX_LINE and joined.isprintable():  # the usual case
            if not joined.isascii():
                longest = max(map(cell_len, parts))
            now = self.now
            self._lines += [Line(rank, stream, part, now) for part in parts]
            self._characters += len(text) - len(rest)
            self.longest = max(self.longest, longest)
        else:
            for part in parts:
                self._append(rank, stream, part)
        if "\r" in rest:
            begun = _BEGUN.search(rest)
            later = begun[0] if begun else ""
            line, before = _overwritten(rest.removesuffix(later))
            self._open[key] = f"{line}\r{before}{later}"  # the same line and cursor after any number of overwrites
            self._draw_over(key, line)
        self._trim()

    def _draw_over(self, key: tuple[int, int], text: str) -> None:
        """Show an incomplete line in its present form, at its earlier place."""
        number = self._drawn_over.get(key, -1)
        if number < max(0, self.end - _STAYS):
            self._drawn_over[key] = self.end
            self._append(*key, text[:MAX_LINE])
        elif number >= self.first:
            before = self._lines[number - self.first]
            line = self._lines[number - self.first] = Line(*key, _cleaned(text)[:MAX_LINE], self.now)
            self._characters += len(line.text) - len(before.text)
            self.longest = max(self.longest, cell_len(line.text))
            self.redrawn += 1

    def note(self, text: str) -> None:
        """Add a line of yod itself."""
        self._append(NOBODY, NOTE, text)

    def finish(self, rank: int | None = None) -> None:
        """Make incomplete lines visible: of one rank that has ended, or of all."""
        for key in [key for key in self._open if rank is None or key[0] == rank]:
            text = self._open.pop(key)
            if key in self._drawn_over:
                del self._drawn_over[key]  # the line is in the list already
            else:
                self._append(*key, text)
        self._trim()

    def _append(self, rank: int, stream: int, text: str) -> None:
        text = _cleaned(text)
        for start in range(0, max(1, len(text)), MAX_LINE):
            piece = text[start : start + MAX_LINE]
            self._lines.append(Line(rank, stream, piece, self.now))
            self._characters += len(piece)
            if stream != NOTE:  # notes are wrapped
                self.longest = max(self.longest, cell_len(piece))

    def _trim(self) -> None:
        excess = len(self._lines) - self._max_lines
        if excess <= _SLACK and self._characters <= self._max_characters:
            return
        drop = max(0, excess)
        freed = sum(len(line.text) for line in self._lines[:drop])
        while self._characters - freed > self._max_characters * 3 // 4 and drop < len(self._lines):
            freed += len(self._lines[drop].text)
            drop += 1
        del self._lines[:drop]
        self.first += drop
        self._characters -= freed


def _cleaned(text: str) -> str:
    """A line as a terminal shows it, without colours; other control characters become visible."""
    if text.isprintable():
        return text
    return one_line(_overwritten(text)[0] if "\r" in text else _COLOURS.sub("", text))


def _overwritten(text: str) -> tuple[str, str]:
    """A line after its carriage returns and erasures, as on a terminal, and its part before the cursor."""
    line: list[str] = []  # the text of each column
    at = 0
    for drawn in text.split("\r"):
        at = 0
        for i, piece in enumerate(_ERASE.split(drawn)):
            if not i % 2:
                cells = _columns(_COLOURS.sub("", piece))
                end = at + len(cells)
                if line[end : end + 1] == [""]:
                    line[end] = " "  # the left half of a wide character was overwritten
                line[at:end] = cells
                at = end
            else:  # the erased part: 0 after the cursor, 1 before it, 2 all
                line = [" "] * at + (line[at:] if piece == "1" else []) if piece in ("1", "2") else line[:at]
    return "".join(line), "".join(line[:at])


def _columns(text: str) -> list[str]:
    """The text of each column: the second column of a wide character is empty, accents are with their letter."""
    if text.isascii():
        return list(text)
    found: list[str] = []
    for character in text:
        width = 1 if character.isascii() else cell_len(character)
        if width:
            found += [character, *[""] * (width - 1)]
        elif found:
            found[-1 if found[-1] else -2] += character
    return found
