"""Lines that memory no longer holds, read again from a detached launch's spool where somebody scrolls back to them."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Iterable
from typing import TextIO

from agents.wire import control, frames
from agents.wire.errors import AgentError
from console.tui.model.launch import Run
from console.tui.model.output import NOTE, Line, Output, Unfinished

STEP = 256 << 10  # bytes of the spool between two marks: what is read again for one line
_PAGES = 6  # stretches held in memory


class Archive:
    """Marks in a spool, one every 256 KiB: from each the lines behind it can be made again, with the same numbers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offsets: list[int] = []
        self._states: list[Unfinished] = []
        self._pages: dict[int, list[Line]] = {}

    def clear(self) -> None:
        """The spool is read from its beginning again, or has been written anew."""
        self._offsets.clear()
        self._states.clear()
        self._pages.clear()

    def reached(self, offset: int, output: Output) -> None:
        """The stream has been read so far, and ``output`` holds what came of it."""
        if not self._offsets or offset >= self._offsets[-1] + STEP:
            self._offsets.append(offset)
            self._states.append(output.unfinished())

    @property
    def first(self) -> int | None:
        """The oldest line that can be read again; None when there is none."""
        return self._states[0].end if self._states else None

    def line(self, number: int) -> Line:
        """The line of that number. IndexError when it is not there (any more)."""
        index = bisect.bisect_right(self._states, number, key=lambda state: state.end) - 1
        if index < 0:
            raise IndexError(number)
        lines = self._pages.get(index)
        if lines is None:
            lines = self._read(index)
            if index + 1 < len(self._states):  # the newest stretch still grows
                self._pages[index] = lines
            if len(self._pages) > _PAGES:
                del self._pages[next(iter(self._pages))]
        return lines[number - self._states[index].end]

    def _read(self, index: int) -> list[Line]:
        start, state = self._offsets[index], self._states[index]
        size = self._offsets[index + 1] - start if index + 1 < len(self._offsets) else 2 * STEP
        run = Run(0)  # events make lines too: they are taken as they were the first time
        run.output = Output.resumed(state)
        try:
            for_each_frame(self._path, start, size, run_frame(run))
        except (OSError, AgentError):
            return []
        return run.output.lines(state.end)


def run_frame(run: Run) -> Callable[[int, bytes], None]:
    """What feeds a run with the frames of a stream."""

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
    """The whole frames that begin in ``size`` bytes of a spool from ``offset`` on. OSError, AgentError."""
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


# Writes a launch's output into a file: what passes a filter, from the spool where there is one.


Keep = Callable[[Line], bool]


def save(path: str, lines: list[Line], spool: str, keep: Keep | None, *, overwrite: bool, labels: bool) -> int:
    """Writes ``lines``, or the whole ``spool`` where that exists; how many lines. OSError, AgentError.

    FileExistsError when the file is there and must not be overwritten. Lines are written as they are shown: cleaned.
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
    """Rows for the output pane without a filter."""

    def __init__(self, output: Output, archive: Archive) -> None:
        self._output = output
        self._archive = archive
        self._first = self._end = 0

    def refresh(self) -> None:
        """Takes in what arrived since."""
        oldest = self._archive.first
        self._first = self._output.first if oldest is None else min(oldest, self._output.first)
        self._end = self._output.end

    def __len__(self) -> int:
        return self._end - self._first

    def number(self, index: int) -> int:
        """The number of the ``index``-th line."""
        return self._first + index

    def line(self, index: int) -> Line:
        """The ``index``-th line. IndexError when it is no longer to be had."""
        number = self._first + index
        return self._output.line(number) if number >= self._output.first else self._archive.line(number)

    def who(self, index: int) -> str:
        """Whose it is."""
        line = self.line(index)
        return "yod" if line.stream == NOTE else str(line.rank)
