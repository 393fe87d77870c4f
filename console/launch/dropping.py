"""A spool that is full loses its oldest output: what is kept is written anew, behind all events there were.

Readers that are in the old file read it to its end (it lives as long as they do) and go on where it goes on.
"""

from __future__ import annotations

import os

from agents.wire.control import control
from console.launch.stream import stamped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PIECE = 8 << 20
_MARKS = 64  # places in a file where it may be cut


class Move:
    """From one file to the next: the old one's ``end``; what stood from ``kept_from`` on stands behind ``preamble``."""

    __slots__ = ("end", "kept_from", "lost", "preamble")

    def __init__(self, end: int, kept_from: int, preamble: int, lost: int) -> None:
        self.end, self.kept_from, self.preamble, self.lost = end, kept_from, preamble, lost

    def follow(self, offset: int) -> tuple[int, int]:
        """The offset in the next file, and how many bytes of output were lost to whoever stood at ``offset``."""
        if offset >= self.kept_from:
            return offset - self.kept_from + self.preamble, 0
        return self.preamble, self.lost


class Dropping:
    """Keeps a spool under ``limit`` bytes, the moment of rewriting it counted in. ``events``: all, as frames."""

    def __init__(self, limit: int) -> None:
        self._due, self._keep = limit * 2 // 3, limit // 3
        self._step = max(1, limit // _MARKS)
        self._marks: list[tuple[int, int, int]] = []  # offset, events before it, output before it
        self._output = 0  # bytes of output so far, dropped ones too
        self._gone = 0  # bytes of output that are dropped
        self.events: list[bytes] = []
        self.moves: list[Move] = []  # one for each time the file was written anew

    def before_output(self, offset: int, size: int) -> None:
        """An output frame of ``size`` bytes of output is about to be written at ``offset``."""
        if not self._marks or offset - self._marks[-1][0] >= self._step:
            self._marks.append((offset, len(self.events), self._output))
        self._output += size

    def is_due(self, written: int) -> bool:
        """Whether the file has to be written anew."""
        return written >= self._due

    def rewrite(self, path: str, fd: int, written: int) -> tuple[int, int]:
        """Replace the file by one with the newest output; its descriptor and size. OSError."""
        at = next((mark for mark in self._marks if mark[0] >= written - self._keep), self._marks[-1])
        kept_from, events, output = at
        skipped: dict[str, Any] = {"event": "skipped", "bytes": output, "dropped": True}
        preamble = b"".join(self.events[:events]) + control(stamped(skipped))
        from console.launch.spool import hold  # which imports us for a spool that drops

        new_path = path + ".new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        new = os.open(new_path, flags, 0o600)
        try:
            _write_all(new, preamble)
            _copy(path, kept_from, written, new)
            hold(new)
            os.replace(new_path, path)
        except OSError:
            os.close(new)
            os.unlink(new_path)
            raise
        os.close(fd)
        self.moves.append(Move(written, kept_from, len(preamble), output - self._gone))
        self._gone = output
        shift = len(preamble) - kept_from
        self._marks = [(offset + shift, *rest) for offset, *rest in self._marks if offset >= kept_from]  # type: ignore[misc]
        return new, written + shift


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _copy(path: str, start: int, end: int, to: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while start < end:
            data = os.pread(source, min(_PIECE, end - start), start)
            if not data:
                raise OSError(5, "the spool is shorter than it was")
            _write_all(to, data)
            start += len(data)
    finally:
        os.close(source)
