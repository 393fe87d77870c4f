"""When the user scrolls back, reads lines that were dropped from memory again, from a detached launch's spool."""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TextIO

from agents.wire import control, frames
from agents.wire.errors import AgentError
from console.tui.model.launch import Run
from console.tui.model.output import NOTE, Line, Output, Unfinished
from console.tui.model.patterns import Pattern

STEP = 256 << 10  # bytes between two marks: for one line, so many are read again
_PAGES = 6  # parts held in memory
_LOOK_S = 0.5  # a thread looks at lines for so long: it cannot be stopped from outside


Keep = Callable[[Line], bool]


class Found(NamedTuple):
    """The lines of a part that pass a filter, with their numbers, up to the line before ``seen``."""

    lines: list[tuple[int, Line]]
    seen: int


class Part(NamedTuple):
    """A part of a spool between two marks. It can be read on a thread."""

    path: str
    offset: int
    size: int
    state: Unfinished  # at its beginning
    end: int | None  # the number after its last line; None for the newest part, which still grows

    def read(self) -> list[Line]:
        """Its lines; empty if it is unreadable."""
        run = Run(0)  # events cause lines too, so they are applied as on the first reading
        run.output = Output.resumed(self.state)
        try:
            for_each_frame(self.path, self.offset, self.size, run_frame(run))
        except (OSError, AgentError):
            return []
        return run.output.lines(self.state.end)

    def search(self, pattern: Pattern, at: int, end: int, step: int) -> tuple[int | None, int]:
        """The number of the first match from ``at`` to ``end`` within this part, or None, and the number with which
        the search goes on; it looks for a limited time. Raises TooSlowError."""
        first, lines = self.state.end, self.read()
        after = first + len(lines) if self.end is None else self.end
        last = min(end, after - 1) if step > 0 else max(end, first)
        until = time.monotonic() + _LOOK_S
        for number in range(at, last + step, step):
            if number - first < len(lines) and pattern.search(lines[number - first].text):
                return number, number
            if number != last and time.monotonic() > until:
                return None, number + step
        return None, max(last, at) + 1 if step > 0 else min(last, at) - 1

    def passing(self, keep: Keep | None, at: int) -> Found | None:
        """The lines from number ``at`` on that pass, as many as can be looked at in a limited time; None if the part
        is unreadable. Raises TooSlowError."""
        first, lines = self.state.end, self.read()
        after = first + len(lines)
        if self.end is not None:
            after = min(after, self.end)
        if after <= at:
            return None
        found = []
        until = time.monotonic() + _LOOK_S
        for number in range(at, after):
            line = lines[number - first]
            if keep is None or keep(line):
                found.append((number, line))
            if time.monotonic() > until:
                return Found(found, number + 1)
        return Found(found, after)


class Archive:
    """Marks in a spool, one every 256 KiB: from each, the following lines can be rebuilt with the same numbers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offsets: list[int] = []
        self._states: list[Unfinished] = []
        self._pages: dict[int, list[Line]] = {}
        self._file: tuple[int, int] | None = None  # the file of the marks: another launch may get the same name

    def clear(self) -> None:
        """Forget all marks: the spool is read from its beginning again, or was rewritten."""
        self._offsets.clear()
        self._states.clear()
        self._pages.clear()
        self._file = None

    def reached(self, offset: int, output: Output) -> None:
        """Add a mark, if one is due: the stream has been read up to ``offset``, with the result in ``output``."""
        if not self._offsets or offset >= self._offsets[-1] + STEP:
            self._file = self._file or self._present()
            self._offsets.append(offset)
            self._states.append(output.unfinished())

    @property
    def first(self) -> int | None:
        """The oldest line that can be read again; None if there is none."""
        return self._states[0].end if self._states else None

    def line(self, number: int) -> Line:
        """The line of a number. Raises IndexError if it is unavailable."""
        index = bisect.bisect_right(self._states, number, key=lambda state: state.end) - 1
        if index < 0:
            raise IndexError(number)
        lines = self._pages.get(index)
        if lines is None:
            lines = self._read(index)
            if index + 1 < len(self._states):  # the newest part still grows
                self._pages[index] = lines
            if len(self._pages) > _PAGES:
                del self._pages[next(iter(self._pages))]
        return lines[number - self._states[index].end]

    def _present(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _read(self, index: int) -> list[Line]:
        return self._part(index).read()

    def _part(self, index: int) -> Part:
        start, state = self._offsets[index], self._states[index]
        grows = index + 1 == len(self._offsets)
        size = 2 * STEP if grows else self._offsets[index + 1] - start
        path = self._path if self._present() == self._file else ""  # another launch's file is as good as none
        return Part(path, start, size, state, None if grows else self._states[index + 1].end)

    def part(self, number: int) -> Part | None:
        """The part with the line of a number; None if it is unavailable."""
        index = bisect.bisect_right(self._states, number, key=lambda state: state.end) - 1
        return self._part(index) if index >= 0 else None


def run_frame(run: Run) -> Callable[[int, bytes], None]:
    """A function that feeds a launch's model with the frames of a stream."""

    def take(kind: int, payload: bytes) -> None:
        if kind in (frames.STDOUT, frames.STDERR):
            rank, data = frames.split_output(payload)
            run.output.feed(rank, kind, data)
        elif kind == frames.CONTROL:
            message = control.decode(payload)
            if "event" in message:
                run.take(message)

    return take


def for_each_frame(path: str, offset: int, size: int, take: Callable[[int, bytes], None]) -> None:
    """Call ``take`` with the whole frames that begin in ``size`` bytes of a spool from ``offset``. Raises OSError or
    AgentError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        decoder = frames.Decoder()
        taken = 0
        while taken < size:
            data = os.pread(file, min(STEP, size), offset + taken + decoder.pending)
            if not data:
                return
            for kind, payload in decoder.feed(data):
                if taken >= size:
                    return
                take(kind, payload)
                taken += frames.HEADER_SIZE + len(payload)
    finally:
        os.close(file)


# Writes a launch's output to a file: what passes a filter, from the spool if there is one.


def save(path: str, lines: list[Line], spool: str, keep: Keep | None, *, overwrite: bool, labels: bool) -> int:
    """Write the ``lines`` (or those of the whole ``spool`` if it exists) that pass ``keep``; returns how many.

    Raises OSError (FileExistsError if the file exists and must not be overwritten) or AgentError. Lines are written as
    shown: sanitised.
    """
    count = 0
    with open(os.path.expanduser(path), "w" if overwrite else "x", encoding="utf-8") as file:
        if not os.path.exists(spool):
            return _write(file, lines, keep, labels)
        run = Run(0)
        take = run_frame(run)
        seen = 0

        def drain() -> None:
            nonlocal count, seen
            count += _write(file, run.output.lines(seen), keep, labels)
            seen = run.output.end

        def one(kind: int, payload: bytes) -> None:
            take(kind, payload)
            if run.output.end - seen > 1000:
                drain()

        for_each_frame(spool, 0, 1 << 62, one)
        run.output.finish()
        drain()
    return count


def _write(file: TextIO, lines: Iterable[Line], keep: Keep | None, labels: bool) -> int:
    count = 0
    for line in lines:
        if keep is None or keep(line):
            who = ("yod: " if line.stream == NOTE else f"{line.rank}: ") if labels else ""
            file.write(f"{who}{line.text}\n")
            count += 1
    return count


# All lines of a launch: the newest from memory, older ones from its spool.


class AllRows:
    """The rows of the output pane if there is no filter."""

    def __init__(self, output: Output, archive: Archive) -> None:
        self._output = output
        self._archive = archive
        self._first = self._end = 0

    def refresh(self) -> None:
        """Include what has arrived since the last call."""
        oldest = self._archive.first
        self._first = self._output.first if oldest is None else min(oldest, self._output.first)
        self._end = self._output.end

    def __len__(self) -> int:
        return self._end - self._first

    def number(self, index: int) -> int:
        """The number of the ``index``-th line."""
        return self._first + index

    def line(self, index: int) -> Line:
        """The ``index``-th line. Raises IndexError if it is unavailable."""
        number = self._first + index
        return self._output.line(number) if number >= self._output.first else self._archive.line(number)

    @property
    def kept(self) -> int:
        """The number of the oldest line in memory."""
        return self._output.first

    def part(self, number: int) -> Part | None:
        """The part of the spool with the line of a number; None if the line is in memory, or nowhere."""
        if number >= self._output.first:
            return None
        part = self._archive.part(number)
        # The newest part also has lines that are in memory.
        return part and part._replace(end=min(self._output.first, part.end or self._output.first))

    def who(self, index: int) -> str:
        """The label of the line's rank: its number, or ``yod``."""
        line = self.line(index)
        return "yod" if line.stream == NOTE else str(line.rank)
