"""Output on its way up: a queue limited by credit, and the pipes of the ranks.

Nothing is dropped, and memory is limited: pipes are read only while little of their data waits, and children send only
within the credit that they get when their bytes have been sent on.
"""

from __future__ import annotations

import os
import select
import struct
import time

from agents.link.lean import deque
from agents.link.link import Buffer, Link
from agents.link.loop import READ, Loop
from agents.wire.frames import STDERR, STDOUT

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Deque, Dict, List, Tuple, Union

    Passed = Callable[[int], None]
    Item = Tuple[int, int, Buffer, Passed]

CHUNK = 64 << 10  # the capacity of a pipe
SENDING = 1 << 20  # bytes in the link's own queue above which nothing is added
LOCAL = 512 << 10  # bytes read from pipes that may wait for credit
#: Seconds for which the beginning of a line waits for its rest, and bytes above which it never does. Programs write
#: lines in pieces (unbuffered stdio, as with MPICH; ``cerr << a << b``), which belong together.
LINE_S = 0.02
LINE = 4 << 10

_HEADER = struct.Struct("!BII")  # kind, length, rank
_COUNT = struct.Struct("i")


class Relay:
    """The queue to the parent: output within credit, and callbacks that wait for all output before them."""

    def __init__(self, link: Link, credit: int) -> None:
        self._link = link
        self._credit = credit
        self._queue: Deque[Union[Item, Callable[[], None]]] = deque()
        self._flushing = False
        self.abandoned = False  # nobody reads: everything counts as sent
        link.on_drained = self.flush

    @property
    def empty(self) -> bool:
        """True if everything has been sent."""
        return not self._queue

    def push(self, kind: int, rank: int, data: Buffer, passed: Passed) -> None:
        """Output of ``rank``; ``passed(bytes)`` is called as it is sent on."""
        self._queue.append((kind, rank, data, passed))
        self.flush()

    def barrier(self, call: Callable[[], None]) -> None:
        """Call back when everything pushed so far has been sent."""
        if self._queue:
            self._queue.append(call)
        else:
            call()

    def grant(self, count: int) -> None:
        """The parent has taken ``count`` more bytes."""
        self._credit += count
        self.flush()

    def abandon(self) -> None:
        """The parent is lost: discard waiting and later output."""
        self.abandoned = True
        self.flush()

    def flush(self) -> None:
        """Send as much as the credit permits."""
        if self._flushing:
            return
        self._flushing = True
        while self._queue:
            item = self._queue[0]
            if callable(item):
                self._queue.popleft()
                item()
            elif not self._send(item):
                break
        self._flushing = False

    def _send(self, item: Item) -> bool:
        kind, rank, data, passed = item
        count = len(data)
        if not self.abandoned:
            if self._credit <= 0 or self._link.out_bytes > SENDING:
                return False
            if count > self._credit:
                view = memoryview(data)
                data, count = view[: self._credit], self._credit
                self._queue[0] = (kind, rank, view[count:], passed)
            else:
                self._queue.popleft()
            self._credit -= count
            self._link.send_parts(_HEADER.pack(kind, 4 + count, rank), data)
        else:
            self._queue.popleft()
        passed(count)
        return True


class Stream:
    """One pipe of a rank."""

    __slots__ = ("fd", "held", "held_at", "kind", "left", "rank")

    def __init__(self, fd: int, kind: int, rank: int) -> None:
        self.fd = fd
        self.kind = kind
        self.rank = rank
        self.left = -1  # bytes still to read after it was given up; -1: until its end
        self.held, self.held_at = b"", 0.0  # the beginning of a line, and when it arrived


class Streams:
    """The pipes of all ranks of this node, read while the relay keeps up.

    ``on_closed(rank)`` is called when both pipes of a rank have ended or been given up. The pipes are on a separate
    epoll, so that one call stops reading all of them. With ``whole_lines``, pieces of a line that arrive directly after
    each other are joined.
    """

    def __init__(
        self, loop: Loop, relay: Relay, on_closed: Callable[[int], None], *, whole_lines: bool = False
    ) -> None:
        self._loop = loop
        self._relay = relay
        self._on_closed = on_closed
        self._epoll = select.epoll()
        self._streams: Dict[int, Stream] = {}
        self._of_rank: Dict[int, List[Stream]] = {}
        self._waiting = 0
        self._reading = False
        self._whole_lines = whole_lines
        self._unfinished: Dict[int, Stream] = {}  # by descriptor: those with the beginning of a line
        self._looking = False

    def add(self, rank: int, out_fd: int, err_fd: int) -> None:
        """Read these pipes as the stdout and stderr of ``rank``."""
        streams = [Stream(out_fd, STDOUT, rank), Stream(err_fd, STDERR, rank)]
        self._of_rank[rank] = streams
        for stream in streams:
            self._streams[stream.fd] = stream
            self._epoll.register(stream.fd, READ)
        self._watch()

    @property
    def open_ranks(self) -> List[int]:
        """Ranks whose pipes have not ended yet."""
        return list(self._of_rank)

    def give_up(self, rank: int) -> None:
        """Read what is in the pipes of ``rank`` now, and no more, because another process holds them open."""
        for stream in list(self._of_rank.get(rank, ())):
            if stream.left < 0:
                stream.left = _bytes_in(stream.fd)
            if stream.left == 0:
                self._close(stream)

    def close(self) -> None:
        """Stop, when every pipe has been closed."""
        self._epoll.close()

    def _watch(self) -> None:
        wanted = bool(self._streams) and self._waiting < LOCAL
        if wanted and not self._reading:
            self._loop.watch(self._epoll.fileno(), READ, self._on_ready)
        elif self._reading and not wanted:
            self._loop.unwatch(self._epoll.fileno())
        self._reading = wanted

    def _on_ready(self, _events: int) -> None:
        for fd, _ in self._epoll.poll(0, 64):
            stream = self._streams.get(fd)
            if stream is None:
                continue
            try:
                data = os.read(fd, CHUNK if stream.left < 0 else min(CHUNK, stream.left))
            except BlockingIOError:
                continue
            except OSError:  # a terminal that no process has open any more
                data = b""
            if data:
                self._waiting += len(data)
                if self._whole_lines:
                    self._pass_lines(stream, data)
                else:
                    self._relay.push(stream.kind, stream.rank, data, self._passed)
                if stream.left > 0:
                    stream.left -= len(data)
            if not data or stream.left == 0:
                self._close(stream)
            if self._waiting >= LOCAL:
                break
        self._watch()

    def _pass_lines(self, stream: Stream, data: bytes) -> None:
        if self._unfinished:
            for other in self._of_rank[stream.rank]:
                if other is not stream:
                    self._let_go(other)  # it arrived first
            if stream.held:
                data = stream.held + data
        if len(data) < LINE and not data.endswith(b"\n"):
            if not stream.held:
                stream.held_at = time.monotonic()
                if not self._looking:
                    self._looking = True
                    self._loop.after(LINE_S, self._look)
                self._unfinished[stream.fd] = stream
            stream.held = data
            return
        if stream.held:
            stream.held = b""
            del self._unfinished[stream.fd]
        self._relay.push(stream.kind, stream.rank, data, self._passed)

    def _look(self) -> None:
        late = time.monotonic() - LINE_S
        for stream in [each for each in self._unfinished.values() if each.held_at <= late]:
            self._let_go(stream)
        self._looking = bool(self._unfinished)
        if self._looking:
            self._loop.after(LINE_S / 2, self._look)

    def _let_go(self, stream: Stream) -> None:
        if stream.held:
            data, stream.held = stream.held, b""
            del self._unfinished[stream.fd]
            self._relay.push(stream.kind, stream.rank, data, self._passed)

    def _passed(self, count: int) -> None:
        self._waiting -= count
        if not self._reading:
            self._watch()

    def _close(self, stream: Stream) -> None:
        self._let_go(stream)
        self._epoll.unregister(stream.fd)
        os.close(stream.fd)
        del self._streams[stream.fd]
        siblings = self._of_rank[stream.rank]
        siblings.remove(stream)
        if not siblings:
            del self._of_rank[stream.rank]
            rank = stream.rank
            self._relay.barrier(lambda: self._on_closed(rank))
        self._watch()


def _bytes_in(fd: int) -> int:
    import fcntl  # rarely needed, and every imported module is memory in every fork
    import termios

    count: int = _COUNT.unpack(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
    return count


class Returns:
    """Credit for a child, returned not by the byte but by the quarter of a window."""

    __slots__ = ("_due", "_send", "_step")

    def __init__(self, window: int, send: Callable[[int], None]) -> None:
        self._step = max(1, window // 4)
        self._send = send
        self._due = 0

    def passed(self, count: int) -> None:
        """``count`` more bytes have been sent on."""
        self._due += count
        if self._due >= self._step:
            due, self._due = self._due, 0
            self._send(due)
