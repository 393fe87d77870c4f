"""Standard input on its way down: to the ranks' pipes here and to the children below, each as fast as it takes it."""

from __future__ import annotations

import errno
import os
import stat

from agents.link.lean import deque
from agents.link.loop import WRITE, Loop
from agents.pct.errors import LoadFailed
from agents.pct.launch.load import Load
from agents.wire.control import to_bytes
from agents.wire.errors import AgentError
from agents.wire.frames import MAX_DATA

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Deque, List

CREDIT = 256 << 10  # what a link begins with, in bytes (docs/protocol.md)


class Sink:
    """Somebody who takes standard input: bytes wait here until it does."""

    def __init__(self, on_taken: "Callable[[Sink], None]") -> None:
        self._queue: Deque[memoryview] = deque()
        self._on_taken = on_taken
        self.taken = 0  # bytes taken since the beginning
        self.gone = False
        self._ending = False

    def give(self, data: bytes) -> None:
        """More bytes for it."""
        if not self.gone:
            self._queue.append(memoryview(data))
            self.push()

    def end(self) -> None:
        """No more bytes will come."""
        self._ending = True
        self.push()

    def push(self) -> None:
        """Hand over what it takes now: each kind of reader in its own way."""
        raise NotImplementedError

    def _took(self, count: int) -> None:
        self.taken += count
        head = self._queue[0]
        if count == len(head):
            self._queue.popleft()
        else:
            self._queue[0] = head[count:]
        self._on_taken(self)

    def drop(self) -> None:
        """It takes nothing any more; what it was meant to get counts as taken."""
        self.gone = True
        self._queue.clear()
        self._on_taken(self)


class PipeSink(Sink):
    """The standard input of a rank, or of all ranks of the root's node."""

    def __init__(self, loop: Loop, fd: int, on_taken: Callable[[Sink], None]) -> None:
        super().__init__(on_taken)
        os.set_blocking(fd, False)
        self._loop = loop
        self._fd = fd

    def push(self) -> None:
        while self._queue and not self.gone:
            try:
                self._took(os.write(self._fd, self._queue[0]))
            except BlockingIOError:
                self._loop.watch(self._fd, WRITE, self._on_writable)
                return
            except OSError:  # every reader has gone
                self.drop()
        if self._ending:
            self.drop()

    def _on_writable(self, _events: int) -> None:
        self._loop.unwatch(self._fd)
        self.push()

    def drop(self) -> None:
        if not self.gone:
            self._loop.unwatch(self._fd)
            os.close(self._fd)
            super().drop()


class ChildSink(Sink):
    """The subtree below one child, on its credit. ``send(data)`` makes a frame of it, ``finish()`` says eof."""

    def __init__(
        self, send: Callable[[bytes], None], finish: Callable[[], None], on_taken: Callable[[Sink], None]
    ) -> None:
        super().__init__(on_taken)
        self._send = send
        self._finish = finish
        self._credit = CREDIT

    def grant(self, count: int) -> None:
        """The child has taken so many bytes more."""
        self._credit += count
        self.push()

    def push(self) -> None:
        while self._queue and self._credit > 0 and not self.gone:
            part = self._queue[0][: min(self._credit, MAX_DATA)]
            self._credit -= len(part)
            self._send(bytes(part))
            self._took(len(part))
        if self._ending and not self._queue and not self.gone:
            self._finish()
            self.drop()


class Inputs:
    """Everybody below who reads standard input. ``grant(bytes)`` gives credit back to the parent.

    Credit goes back at the pace of the slowest; with nobody left to read, at once.
    """

    def __init__(self, grant: Callable[[int], None]) -> None:
        self._grant = grant
        self._sinks: List[Sink] = []
        self._came = 0
        self._granted = 0

    def add(self, sink: Sink) -> None:
        """One more reader, from the beginning."""
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

    def settle(self, _sink: object = None) -> None:
        """Give back the credit of what everybody has taken."""
        taken = min((sink.taken for sink in self._sinks if not sink.gone), default=self._came)
        if taken > self._granted:
            count, self._granted = taken - self._granted, taken
            self._grant(count)


def stdin_file(load: Load, rank: int) -> int:
    """The file on this node that ``rank`` has as its standard input, opened. LoadFailed."""
    names = load.nodes[0]["stdin"]
    try:
        name = to_bytes(names[load.ranks.index(rank)])
    except (AgentError, TypeError, IndexError):
        raise LoadFailed(
            f"{load.name}: the load names no standard input for rank {rank}", "launch", rank=rank
        ) from None
    try:
        # a pipe that nobody writes must not hold us up; the rank gets it blocking, as a shell would give it
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        os.set_blocking(fd, True)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return fd
    except OSError as error:
        shown = name.decode("utf-8", "replace")
        raise LoadFailed(
            f"{load.name}: standard input of rank {rank}: {shown}: {error.strerror}", "program", rank=rank
        ) from None
