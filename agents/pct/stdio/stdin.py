"""Standard input on its way down: to the ranks' pipes here and to the children, each at its own pace."""

from __future__ import annotations

import errno
import os
import stat

from agents.link.lean import deque
from agents.link.loop import WRITE, Loop
from agents.pct.errors import LoadFailed
from agents.wire.control import to_bytes
from agents.wire.errors import AgentError
from agents.wire.frames import MAX_DATA
from redmesh.byte_text import from_bytes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, List, Protocol

    class Sink(Protocol):
        """A reader of standard input: ``taken`` bytes since the beginning; ``gone``: it takes no more."""

        taken: int
        gone: bool

        def give(self, data: bytes) -> None: ...

        def end(self) -> None: ...

        def drop(self) -> None: ...


CREDIT = 256 << 10  # the initial credit of a link in bytes (docs/protocol.md)


class InputQueue:
    """Bytes of standard input that wait for their reader."""

    def __init__(self) -> None:
        self._parts: Deque[memoryview] = deque()
        self.ending = False  # no more bytes will come

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def head(self) -> memoryview:
        """The next bytes."""
        return self._parts[0]

    def add(self, data: bytes) -> None:
        """More bytes."""
        self._parts.append(memoryview(data))

    def take(self, count: int) -> None:
        """The first ``count`` bytes of the head have been taken."""
        head = self._parts[0]
        if count == len(head):
            self._parts.popleft()
        else:
            self._parts[0] = head[count:]

    def clear(self) -> None:
        """The reader takes nothing any more."""
        self._parts.clear()


class PipeSink:
    """The standard input of a rank, or of all ranks of the root's node, through the descriptor ``fd``.

    ``end_mark`` ends the input if closing ``fd`` does not: a terminal has a character for it.
    """

    def __init__(self, loop: Loop, fd: int, on_taken: Callable[[], None], end_mark: bytes = b"") -> None:
        os.set_blocking(fd, False)
        self._loop, self._fd, self._on_taken, self._end_mark = loop, fd, on_taken, end_mark
        self._queue = InputQueue()
        self.taken = 0
        self.gone = False

    def give(self, data: bytes) -> None:
        """More bytes for the reader."""
        if not self.gone:
            self._queue.add(data)
            self._push()

    def end(self) -> None:
        """No more bytes will come."""
        if self._end_mark:
            self.give(self._end_mark)
        self._queue.ending = True
        self._push()

    def _push(self) -> None:
        while self._queue and not self.gone:
            try:
                count = os.write(self._fd, self._queue.head)
            except BlockingIOError:
                self._loop.watch(self._fd, WRITE, self._on_writable)
                return
            except OSError:  # every reader has closed it
                self.drop()
                break
            self._queue.take(count)
            self.taken += count
            self._on_taken()
        if self._queue.ending:
            self.drop()

    def _on_writable(self, _events: int) -> None:
        self._loop.unwatch(self._fd)
        self._push()

    def drop(self) -> None:
        """The reader takes nothing any more; bytes for it count as taken."""
        if not self.gone:
            self._loop.unwatch(self._fd)
            os.close(self._fd)
            self.gone = True
            self._queue.clear()
            self._on_taken()


class ChildSink:
    """The subtree of one child, limited by its credit. ``send(data)`` sends a frame, ``finish()`` sends eof."""

    def __init__(self, send: Callable[[bytes], None], finish: Callable[[], None], on_taken: Callable[[], None]) -> None:
        self._send, self._finish, self._on_taken = send, finish, on_taken
        self._queue = InputQueue()
        self._credit = CREDIT
        self.taken = 0
        self.gone = False

    def give(self, data: bytes) -> None:
        """More bytes for the subtree."""
        if not self.gone:
            self._queue.add(data)
            self._push()

    def end(self) -> None:
        """No more bytes will come."""
        self._queue.ending = True
        self._push()

    def grant(self, count: int) -> None:
        """The child has taken ``count`` more bytes."""
        self._credit += count
        self._push()

    def _push(self) -> None:
        while self._queue and self._credit > 0 and not self.gone:
            part = self._queue.head[: min(self._credit, MAX_DATA)]
            self._credit -= len(part)
            self._send(bytes(part))
            self._queue.take(len(part))
            self.taken += len(part)
            self._on_taken()
        if self._queue.ending and not self._queue and not self.gone:
            self._finish()
            self.drop()

    def drop(self) -> None:
        """The subtree takes nothing any more; bytes for it count as taken."""
        self.gone = True
        self._queue.clear()
        self._on_taken()


class Inputs:
    """All readers of standard input below. ``grant(bytes)`` returns credit to the parent.

    Credit is returned at the pace of the slowest reader; if there is none left, at once.
    """

    def __init__(self, grant: Callable[[int], None]) -> None:
        self._grant = grant
        self._sinks: List[Sink] = []
        self._came = 0
        self._granted = 0

    def add(self, sink: Sink) -> None:
        """Add a reader, before the first byte."""
        self._sinks.append(sink)

    def feed(self, data: bytes) -> None:
        """A frame of standard input from the parent."""
        self._came += len(data)
        for sink in self._sinks:
            sink.give(data)
        self.settle()

    def end(self) -> None:
        """The parent's standard input has ended."""
        for sink in self._sinks:
            sink.end()

    def close(self) -> None:
        """Nobody reads any more."""
        for sink in self._sinks:
            if not sink.gone:
                sink.drop()

    def settle(self) -> None:
        """Return the credit for what every reader has taken."""
        taken = min((sink.taken for sink in self._sinks if not sink.gone), default=self._came)
        if taken > self._granted:
            count, self._granted = taken - self._granted, taken
            self._grant(count)


def stdin_file(node: str, names: Any, at: int, rank: int) -> int:
    """Open the file on ``node`` that ``rank`` has as its standard input: ``names[at]``. Raises LoadFailed."""
    try:
        name = to_bytes(names[at])
    except (AgentError, TypeError, IndexError):
        raise LoadFailed(f"{node}: the load names no standard input for rank {rank}", "launch", rank=rank) from None
    try:
        # The open must not block on a pipe without a writer; the rank gets it in blocking mode, as from a shell.
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        os.set_blocking(fd, True)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return fd
    except OSError as error:
        shown = from_bytes(name)
        raise LoadFailed(
            f"{node}: standard input of rank {rank}: {shown}: {error.strerror}", "program", rank=rank
        ) from None
