"""Writes output to a descriptor that may be slow or blocked, without ever blocking or losing a byte."""

from __future__ import annotations

import errno
import os
import stat

from agents.link.lean import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.link.loop import Loop

_PIECE = 64 << 10  # small writes are joined to pieces of this size, to save memory for objects
_ATOMIC = 4096  # PIPE_BUF: what a writable pipe accepts without blocking
_WRITE = 4  # EPOLLOUT


def private_description(fd: int, flags: int) -> int:
    """A descriptor with its own open file description for the pipe, FIFO or terminal behind ``fd``, or -1.

    O_NONBLOCK belongs to the description: set on the original, it would also affect the shell.
    """
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or (stat.S_ISCHR(mode) and os.isatty(fd)):
            return os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        pass  # /proc is missing, or the pipe belongs to another user
    return -1


def _sender(fd: int) -> Callable[[bytes | bytearray | memoryview], int]:
    """Writes to a socket without blocking, and without O_NONBLOCK on a shared description."""
    import socket

    sock = socket.socket(fileno=os.dup(fd))
    flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
    return lambda data: sock.send(data, flags)


class Sink:
    """Writes bytes to ``fd``. ``on_passed(bytes)`` returns credit; ``on_broken(error)`` is called if a write fails.

    After a failure, all data is discarded and its credit returned.
    """

    def __init__(
        self, loop: Loop, fd: int, on_passed: Callable[[int], None], on_broken: Callable[[OSError], None]
    ) -> None:
        self._loop, self._on_passed, self._on_broken = loop, on_passed, on_broken
        mode = os.fstat(fd).st_mode
        # Files and /dev/null accept everything at once.
        self._always_ready = stat.S_ISREG(mode) or stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.isatty(fd))
        own = private_description(fd, os.O_WRONLY)
        self._fd, self._own = (fd, False) if own < 0 else (own, True)
        self._write_now = _sender(fd) if stat.S_ISSOCK(mode) else self._write_fd
        self._blocking = own < 0 and not self._always_ready and not stat.S_ISSOCK(mode)
        self._pieces: deque[tuple[bytearray | bytes | memoryview, int]] = deque()
        self._tail: bytearray | None = None  # the last piece, while it may still grow
        self._tail_credit = 0
        self._offset = 0
        self._watched = False
        self.waiting = 0  # bytes that are not written yet
        self.broken = False

    def push(self, data: bytes | memoryview, credit: int) -> None:
        """Write ``data`` now, or when the descriptor accepts it; return ``credit`` once it is written."""
        if self.broken:
            self._on_passed(credit)
            return
        if not self.waiting and self._try_at_once(data, credit):
            return
        self._append(data, credit)
        self._watch()

    def _try_at_once(self, data: bytes | memoryview, credit: int) -> bool:
        if self._blocking:
            return False
        written = self._write(data)
        if self.broken or written == len(data):
            self._on_passed(credit)
            return True
        if written:
            self._append(memoryview(data)[written:], credit)
            self._watch()
            return True
        return False

    def close(self) -> None:
        """Close the private description, if there is one, so that a reader sees the end."""
        self._unwatch()
        if self._own:
            os.close(self._fd)
            self._own, self.broken = False, True

    def abandon(self) -> int:
        """Stop writing and close the private description; return the credit of the discarded data."""
        self._seal()
        credit = sum(piece[1] for piece in self._pieces)
        self._pieces.clear()
        self.waiting = self._offset = 0
        self.close()
        self.broken = True
        return credit

    def write_out(self) -> None:
        """Write all waiting data, blocking, without returning credit; for a process that exits next."""
        import select

        self._on_passed = lambda _credit: None
        self._on_broken = lambda _error: None
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        while self.waiting and not self.broken:
            poll.poll()
            self._on_writable(_WRITE)

    def _append(self, data: bytes | memoryview, credit: int) -> None:
        self.waiting += len(data)
        if self._tail is None:
            if len(data) >= _PIECE:
                self._pieces.append((bytes(data), credit))
                return
            self._tail, self._tail_credit = bytearray(), 0
        self._tail += data
        self._tail_credit += credit
        if len(self._tail) >= _PIECE:
            self._seal()

    def _seal(self) -> None:
        if self._tail is not None:
            self._pieces.append((self._tail, self._tail_credit))
            self._tail, self._tail_credit = None, 0

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        """Write; return the number of bytes written, 0 if the descriptor accepts nothing now."""
        try:
            if self._blocking:
                data = memoryview(data)[:_ATOMIC]
            return self._write_now(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._break(error)
            return 0

    def _write_fd(self, data: bytes | bytearray | memoryview) -> int:
        return os.write(self._fd, data)

    def _break(self, error: OSError) -> None:
        self.broken = True
        self._unwatch()
        self._seal()
        credit = sum(piece[1] for piece in self._pieces)
        self._pieces.clear()
        self.waiting = self._offset = 0
        if credit:
            self._on_passed(credit)
        self._on_broken(error)

    def _watch(self) -> None:
        if self._watched or not self.waiting:
            return
        self._watched = True
        try:
            self._loop.watch(self._fd, _WRITE, self._on_writable)
        except OSError as error:
            self._watched = False
            if error.errno != errno.EPERM:
                self._break(error)
                return
            # epoll does not support this kind of file, which never blocks.
            self._loop.after(0, self._flush_ready)

    def _flush_ready(self) -> None:
        while self.waiting and not self.broken:
            self._on_writable(_WRITE)

    def _unwatch(self) -> None:
        if self._watched:
            self._loop.unwatch(self._fd)
            self._watched = False

    def _on_writable(self, _events: int) -> None:
        self._seal()
        budget = 1 << 20  # then let the loop handle signals and the tree
        while self._pieces and budget > 0:
            piece, credit = self._pieces[0]
            written = self._write(memoryview(piece)[self._offset :])
            if self.broken:
                return
            if not written:
                break
            budget -= written
            self.waiting -= written
            self._offset += written
            if self._offset == len(piece):
                self._pieces.popleft()
                self._offset = 0
                self._on_passed(credit)
            if self._blocking:
                break
        if not self._pieces:
            self._unwatch()
