"""The spool of a detached launch: a file of frames with its events and output, which observers read."""

from __future__ import annotations

import os
import sys

from agents.link.sockets import own_directory
from agents.wire.control import control
from agents.wire.frames import output
from console.errors import numbered
from console.launch.events.stream import stamped
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: The size limit of a spool in bytes; above it the job blocks in its next write.
LIMIT = 1 << 30
#: Days for which the spool of an ended launch is kept.
KEPT_DAYS = 7


def spool_path(state_dir: str, launcher: int) -> str:
    """The spool file of a detached launch."""
    return f"{state_dir}/spool/{launcher}.frames"


def hold(fd: int) -> None:
    """Lock a spool for as long as its yod runs, so that observers can see that the launch has not ended."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass  # the file system does not support locks: observers rely on the socket


def is_held(path: str) -> bool:
    """True if a process holds the lock of the file at ``path``: of a spool, the yod that writes it."""
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # the file system does not support locks
    finally:
        os.close(fd)
    return False


class SpoolFront:
    """A frontend that writes a spool. Until :meth:`let_go`, errors are also printed on standard error."""

    def __init__(
        self,
        state_dir: str,
        hello: dict[str, Any],
        on_passed: Callable[[int], None],
        on_broken: Callable[[str, int], None],
        limit: int = LIMIT,
        *,
        drops: bool = False,
    ) -> None:
        """``drops``: if the spool is full, its oldest output is removed (SpoolTrimmer) instead of blocking the job."""
        self._state_dir, self._hello, self._limit = state_dir, hello, limit
        self._on_passed, self._on_broken = on_passed, on_broken
        self._drops = drops
        self.dropping: SpoolTrimmer | None = None
        self._fd = -1
        self._written = 0
        self._before: list[dict[str, Any]] = []
        self._full = self._broken = False
        self._on_terminal = True
        self.spool_path = ""
        self.drained = True  # nothing ever waits to be written

    def planned(self, size: int) -> None:
        """Record the number of ranks."""
        self._hello["size"] = size

    def output(self, kind: int, rank: int, data: memoryview) -> None:
        """Write a rank's output. Above the limit no credit is returned; output in transit is still written."""
        if self._broken:
            return
        if self.dropping is not None:
            self.dropping.before_output(self._written, len(data))
        self._write(output(kind, rank, bytes(data)))
        if not self._full:
            self._on_passed(len(data))
        if self.dropping is not None and self.dropping.is_due(self._written):
            self._drop_oldest(self.dropping)
        elif self._written >= self._limit and not self._full:
            self._full = True
            self.event({"event": "note", "at": 0.0, "node": "", "text": f"the spool is full ({self._limit} bytes): "
                        "the job waits in its next write; yod --signal TERM ends it"})  # fmt: skip

    def output_ended(self) -> None:
        """Do nothing when every rank has ended."""

    def event(self, event: dict[str, Any]) -> None:
        """Write an event; events before ``allocated`` wait for it, because it names the spool."""
        if event["event"] == "allocated":
            self._open(event)
        if self._fd < 0:
            self._before.append(event)
        else:
            self._write_event(event)

    def complain(self, message: str, hint: str = "") -> None:
        """Report an error."""
        self.line(f"yod: {numbered(message, hint)}")

    def status(self, text: str) -> None:
        """Do nothing: status lines are for a waiting user."""

    def line(self, text: str) -> None:
        """Print a line on standard error, until the terminal is given up."""
        if self._on_terminal:
            os.write(2, clean(text).encode("utf-8", "replace") + b"\n")

    def let_go_of_terminal(self) -> None:
        """Stop printing on standard error."""
        self._on_terminal = False

    def let_go(self) -> None:
        """Stop printing, and replace descriptors 0 to 2 by /dev/null, before the detaching process exits."""
        self.let_go_of_terminal()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)

    def _open(self, allocated: dict[str, Any]) -> None:
        folder = own_directory(f"{self._state_dir}/spool")
        _sweep(folder)
        self.spool_path = spool_path(self._state_dir, allocated["launcher"])
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self.spool_path, flags, 0o600)
        hold(self._fd)
        hello = {"event": "hello", "at": allocated["at"], "launcher": allocated["launcher"], **self._hello}
        if self._drops:
            self.dropping = SpoolTrimmer(self._limit)
        for event in (hello, *self._before):
            self._write_event(event)

    def _write_event(self, event: dict[str, Any]) -> None:
        data = control(event)
        if self.dropping is not None:
            self.dropping.events.append(data)
        self._write(data)

    def _drop_oldest(self, dropping: SpoolTrimmer) -> None:
        try:
            self._fd, self._written = dropping.rewrite(self.spool_path, self._fd, self._written)
        except OSError as error:
            self._broken = True
            self._on_broken(f"{self.spool_path} cannot be written: {error.strerror}", 125)

    def _write(self, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                written = os.write(self._fd, view)
                self._written += written
                view = view[written:]
        except OSError as error:
            if not self._broken:
                self._broken = True
                self._on_broken(f"{self.spool_path} cannot be written: {error.strerror}", 125)


def _sweep(folder: str) -> None:
    """Remove spools of ended launches that are older than ``KEPT_DAYS``."""
    import time

    limit = time.time() - KEPT_DAYS * 86400
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        try:
            if name.endswith(".frames") and os.lstat(path).st_mtime < limit and not is_held(path):
                os.unlink(path)
        except OSError as error:
            sys.stderr.write(f"yod: {clean(path)}: {error.strerror}\n")


# When a spool is full, its oldest output is removed: a new file gets all events of the removed part, followed by the
# rest of the old file. A reader of the old file reads it to its end and continues at the same place in the new one.


_PIECE = 8 << 20
_MARKS = 64  # positions in a file where it may be cut


class Move:
    """One rewrite of a spool: the old file had ``end`` bytes; those from ``kept_from`` on follow ``preamble`` bytes."""

    __slots__ = ("end", "kept_from", "lost", "preamble")

    def __init__(self, end: int, kept_from: int, preamble: int, lost: int) -> None:
        self.end, self.kept_from, self.preamble, self.lost = end, kept_from, preamble, lost

    def follow(self, offset: int) -> tuple[int, int]:
        """The corresponding offset in the next file, and the bytes of output lost to a reader at ``offset``."""
        if offset >= self.kept_from:
            return offset - self.kept_from + self.preamble, 0
        return self.preamble, self.lost


class SpoolTrimmer:
    """Keeps a spool under ``limit`` bytes, even while it is being rewritten. ``events``: all events, as frames."""

    def __init__(self, limit: int) -> None:
        self._due, self._keep = limit * 2 // 3, limit // 3
        self._step = max(1, limit // _MARKS)
        self._marks: list[tuple[int, int, int]] = []  # offset, events before it, output before it
        self._output = 0  # bytes of output so far, including dropped ones
        self._gone = 0  # bytes of dropped output
        self.events: list[bytes] = []
        self.moves: list[Move] = []  # one for each rewrite

    def before_output(self, offset: int, size: int) -> None:
        """Record that ``size`` bytes of output will be written at ``offset``."""
        if not self._marks or offset - self._marks[-1][0] >= self._step:
            self._marks.append((offset, len(self.events), self._output))
        self._output += size

    def is_due(self, written: int) -> bool:
        """True if the file must be rewritten."""
        return written >= self._due

    def rewrite(self, path: str, fd: int, written: int) -> tuple[int, int]:
        """Replace the file by one without the oldest output; return its descriptor and size. Raises OSError."""
        at = next((mark for mark in self._marks if mark[0] >= written - self._keep), self._marks[-1])
        kept_from, events, output = at
        skipped: dict[str, Any] = {"event": "skipped", "bytes": output, "dropped": True}
        preamble = b"".join(self.events[:events]) + control(stamped(skipped))

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
