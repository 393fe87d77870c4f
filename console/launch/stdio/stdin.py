"""Sends standard input to the ranks, as far as their credit allows: yod's own, or input from observers."""

from __future__ import annotations

import errno
import os

from agents.link.lean import signal
from agents.wire.errors import WireError
from console.launch.stdio.sink import private_description

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.link.loop import Loop

CREDIT = 256 << 10  # docs/protocol.md
_PIECE = 64 << 10
_READ = 1  # EPOLLIN
_FOREGROUND_S = 0.5  # how often a background job checks whether it is in the foreground


class Feeder:
    """Reads ``fd`` while there is credit. ``send(bytes)`` is called for each piece, ``end(why)`` once at the end.

    ``why`` is "" at a normal end. A closed or empty standard input, or a terminal in the background, never stops a
    launch.
    """

    def __init__(self, loop: Loop, fd: int, send: Callable[[bytes], None], end: Callable[[str], None]) -> None:
        self._loop, self._send, self._end = loop, send, end
        self._terminal = os.isatty(fd)
        if self._terminal:
            # A read in the background then fails with EIO instead of stopping this process.
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        own = private_description(fd, os.O_RDONLY)
        self._fd, self._own = (fd, False) if own < 0 else (own, True)
        self._credit = CREDIT
        self._watched = False
        self._open = True
        self._resume()

    def credit(self, amount: int) -> None:
        """Add credit: the ranks have read ``amount`` bytes."""
        self._credit += amount
        self._resume()

    def close(self) -> None:
        """Stop reading, without a call to ``end``."""
        self._pause()
        self._open = False
        if self._own:  # the private, non-blocking description of the terminal or pipe
            os.close(self._fd)
            self._own = False

    def _resume(self) -> None:
        if self._open and not self._watched and self._credit > 0:
            self._watched = True
            try:
                self._loop.watch(self._fd, _READ, self._on_readable)
            except OSError:  # EPERM: a file or /dev/null, always ready
                self._loop.after(0, lambda: self._on_readable(_READ))

    def _pause(self) -> None:
        if self._watched:
            self._loop.unwatch(self._fd)
            self._watched = False

    def _on_readable(self, _events: int) -> None:
        if not self._open:
            return
        self._pause()
        if self._in_background():
            self._later()
            return
        why = ""
        try:
            data = os.read(self._fd, min(_PIECE, self._credit))
        except BlockingIOError:
            self._resume()
            return
        except OSError as error:
            if error.errno == errno.EIO and self._terminal and self._in_background():
                self._later()
                return
            # A terminal that was hung up has ended; a missing stdin counts as empty.
            data, why = b"", "" if self._terminal or error.errno == errno.EBADF else str(error.strerror)
        if not data:
            self.close()
            self._end(why)
            return
        self._credit -= len(data)
        self._send(data)
        self._resume()

    def _later(self) -> None:
        self._loop.after(_FOREGROUND_S, self._resume)

    def _in_background(self) -> bool:
        if not self._terminal:
            return False
        try:
            return os.tcgetpgrp(self._fd) != os.getpgrp()
        except OSError:
            return False


#: Bytes that may wait for ranks that do not read; further input is refused.
_HELD = 256 << 10


class TypedInput:
    """Input from observers (``yod --detach --input=all``), in place of a :class:`Feeder`."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._credit = CREDIT
        self._waiting = bytearray()
        self._open = True

    def give(self, data: bytes) -> None:
        """Queue an observer's input. Raises WireError if standard input has ended, or if the queue is full."""
        if not self._open:
            raise WireError("standard input has ended")
        if len(self._waiting) + len(data) > _HELD:
            raise WireError("the ranks do not read what they were sent")
        self._waiting += data
        self._pass_on()

    def credit(self, amount: int) -> None:
        """Add credit: the ranks have read ``amount`` bytes."""
        self._credit += amount
        self._pass_on()

    def close(self) -> None:
        """Refuse further input."""
        self._open = False

    def _pass_on(self) -> None:
        count = min(len(self._waiting), self._credit)
        if count > 0:
            self._send(bytes(self._waiting[:count]))
            del self._waiting[:count]
            self._credit -= count
