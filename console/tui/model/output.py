"""What the ranks of one launch wrote, as lines in bounded memory. Pure: no widget, no socket."""

import codecs
import re
from typing import NamedTuple

from redmesh.sanitise import clean

STDOUT, STDERR = 2, 3  # the kinds of frames they come in (docs/protocol.md)
NOTE = 0  # what yod says, between the ranks' lines
NOBODY = -1  # the rank of a note

MAX_LINES = 20_000
MAX_CHARACTERS = 16 << 20
MAX_LINE = 4_096  # a longer line is cut into several: one line must not fill the memory
_SLACK = 2_048  # lines are dropped this many at a time: dropping one at a time would move the list each time


_COLOURS = re.compile("\x1b\\[[0-9;:]*[mK]")
_ERASE = re.compile("\x1b\\[([0-2]?)K")
#: A line that is drawn over again and again keeps its place as long as no more lines than this came after it.
_STAYS = 20


class Line(NamedTuple):
    """One line of a rank, cleaned for the terminal."""

    rank: int
    stream: int
    text: str
    at: float = 0.0  # when it was read, by our clock; 0 for what was written before we attached


class Unfinished(NamedTuple):
    """Where the lines of all ranks stand in the middle of a stream: enough to go on from there."""

    end: int  # the number of the next line
    open: dict[tuple[int, int], str]
    decoders: dict[tuple[int, int], tuple[bytes, int]]
    drawn_over: dict[tuple[int, int], int]


class Output:
    """The newest lines of a launch. Lines are numbered from 0 in order of arrival; ``first`` is the oldest kept.

    Order holds within a rank's stream only: that is all the system promises.
    """

    def __init__(self, max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> None:
        self.first = 0
        self.longest = 0
        self.total_bytes = 0
        self.skipped_bytes = 0
        self.now = 0.0  # what lines are stamped with
        self.generation = 0  # goes up when the numbers begin to mean other lines
        self.redrawn = 0  # goes up when a line that exists already changes
        self._max_lines = max_lines
        self._max_characters = max_characters
        self._characters = 0
        self._lines: list[Line] = []
        self._open: dict[tuple[int, int], str] = {}
        self._drawn_over: dict[tuple[int, int], int] = {}  # the numbers of unfinished lines with carriage returns
        self._decoders: dict[tuple[int, int], codecs.IncrementalDecoder] = {}

    @classmethod
    def resumed(cls, state: Unfinished) -> "Output":
        """An output that goes on where another stood, and keeps everything."""
        output = cls(1 << 60, 1 << 60)
        output.first = state.end
        output._open = dict(state.open)
        output._drawn_over = dict(state.drawn_over)
        for key, inner in state.decoders.items():
            output._decoder(key).setstate(inner)
        return output

    def unfinished(self) -> Unfinished:
        """Where all ranks' lines stand now."""
        decoders = {key: state for key, one in self._decoders.items() if (state := one.getstate())[0]}
        return Unfinished(self.end, dict(self._open), decoders, dict(self._drawn_over))

    def __len__(self) -> int:
        """Lines kept."""
        return len(self._lines)

    def clear(self) -> None:
        """Forgets everything; numbers begin anew."""
        self.generation += 1
        self.first = self.total_bytes = self.skipped_bytes = self._characters = self.longest = 0
        self._lines.clear()
        self._open.clear()
        self._drawn_over.clear()
        self._decoders.clear()

    @property
    def unsettled(self) -> frozenset[int]:
        """The numbers of lines that their ranks still draw over: progress bars."""
        return frozenset(self._drawn_over.values())

    @property
    def end(self) -> int:
        """The number the next line will get."""
        return self.first + len(self._lines)

    def line(self, number: int) -> Line:
        """The line of that number. IndexError when it has been dropped or is not there yet."""
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
        """Takes what a rank wrote; whole lines become visible at once, the rest with its end of line."""
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
        if longest <= MAX_LINE and "".join(parts).isprintable():  # nearly always
            now = self.now
            self._lines += [Line(rank, stream, part, now) for part in parts]
            self._characters += len(text) - len(rest)
            self.longest = max(self.longest, longest)
        else:
            for part in parts:
                self._append(rank, stream, part)
        if "\r" in rest:
            line, at = _overwritten(rest)
            self._open[key] = f"{line}\r{line[:at]}"  # the same line and cursor, however often it was drawn over
            self._draw_over(key, line)
        self._trim()

    def _draw_over(self, key: tuple[int, int], text: str) -> None:
        """Shows an unfinished line as it stands now, in the place where it stood before."""
        number = self._drawn_over.get(key, -1)
        if number < max(0, self.end - _STAYS):
            self._drawn_over[key] = self.end
            self._append(*key, text[:MAX_LINE])
        elif number >= self.first:
            before = self._lines[number - self.first]
            line = self._lines[number - self.first] = Line(*key, _cleaned(text)[:MAX_LINE], self.now)
            self._characters += len(line.text) - len(before.text)
            self.longest = max(self.longest, len(line.text))
            self.redrawn += 1

    def note(self, text: str) -> None:
        """A line of yod's own."""
        self._append(NOBODY, NOTE, text)

    def finish(self, rank: int | None = None) -> None:
        """Makes unfinished lines visible: of one rank that has ended, or of all."""
        for key in [key for key in self._open if rank is None or key[0] == rank]:
            text = self._open.pop(key)
            if key in self._drawn_over:
                del self._drawn_over[key]  # it stands there already
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
                self.longest = max(self.longest, len(piece))

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
    """A line as a terminal shows it, without colours; what a terminal would act on is made visible."""
    if text.isprintable():
        return text
    return clean((_overwritten(text)[0] if "\r" in text else _COLOURS.sub("", text)).expandtabs(8))


def _overwritten(text: str) -> tuple[str, int]:
    """A line after its carriage returns and erasures, as a terminal shows it, and the column of the cursor."""
    line, at = "", 0
    for drawn in text.split("\r"):
        at = 0
        for i, piece in enumerate(_ERASE.split(drawn)):
            if not i % 2:
                piece = _COLOURS.sub("", piece)
                line = line[:at] + piece + line[at + len(piece) :]
                at += len(piece)
            else:  # which part is erased: behind the cursor, before it, all
                line = " " * at + (line[at:] if piece == "1" else "") if piece in ("1", "2") else line[:at]
    return line, at
