"""A pipe that the ranks of one node share as their standard input, whose unread bytes can be taken back.

Nobody can ask a pipe whether somebody wants to read from it; how much of it is unread, the kernel tells.
"""

from __future__ import annotations

import fcntl
import os
import struct

from agents.link.lean import deque
from agents.link.loop import WRITE, Loop

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Deque, Iterable, Optional

    from agents.link.loop import Timer

#: Seconds between two looks at what is unread, the first after it moved and the longest; until it counts as stalled.
_LOOK_S, _LONGEST_S, STALL_S = 0.002, 1.0, 0.05
_GROWS = 1.6
_FIONREAD = 0x541B
_WAITS_TO_READ, _WAITS_FOR_EVENTS = ("pipe_read", "pipe_wait"), ("poll", "select")


class Mouth:
    """``on_taken(bytes)``: so many more have been read; ``on_stall()``: nobody has for a while; again and again."""

    def __init__(self, loop: Loop, on_taken: Callable[[int], None], on_stall: Callable[[], None]) -> None:
        self._loop, self._on_taken, self._on_stall = loop, on_taken, on_stall
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # A description of our own: O_NONBLOCK on the ranks' would be theirs too.
        self._own = os.open(f"/proc/self/fd/{self.reader}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._queue: Deque[memoryview] = deque()
        self._in_pipe = 0  # written, and not known to be read
        self._quiet_s = self._delay_s = 0.0
        self._timer: Optional[Timer] = None

    @property
    def empty(self) -> bool:
        """Whether everything given has been read."""
        return not self._queue and not self._in_pipe

    def give(self, data: bytes) -> None:
        """More to read."""
        self._queue.append(memoryview(data))
        self._push()
        self._moved()

    def _push(self) -> None:
        try:
            while self._queue:
                count = os.write(self._writer, self._queue[0])
                self._in_pipe += count
                if count == len(self._queue[0]):
                    self._queue.popleft()
                else:
                    self._queue[0] = self._queue[0][count:]
        except BlockingIOError:
            self._loop.watch(self._writer, WRITE, self._on_writable)

    def _on_writable(self, _events: int) -> None:
        self._loop.unwatch(self._writer)
        self._count()
        self._push()

    def _unread(self) -> int:
        return int(struct.unpack("i", fcntl.ioctl(self._own, _FIONREAD, bytes(4)))[0])

    def _count(self) -> bool:
        taken = self._in_pipe - self._unread()
        if taken <= 0:
            return False
        self._in_pipe -= taken
        self._on_taken(taken)
        return True

    def _moved(self) -> None:
        self._quiet_s, self._delay_s = 0.0, _LOOK_S
        if self._timer is None and self._writer >= 0 and not self.empty:
            self._timer = self._loop.after(_LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._writer < 0 or self.empty:
            return
        if self._count():
            self._push()
            self._moved()
            return
        self._quiet_s += self._delay_s
        self._delay_s = min(self._delay_s * _GROWS, _LONGEST_S)
        if self._quiet_s >= STALL_S:
            self._on_stall()
        if self._writer >= 0 and not self.empty and self._timer is None:
            self._timer = self._loop.after(self._delay_s, self._look)

    @property
    def held(self) -> int:
        """Bytes given and not known to be read."""
        return self._in_pipe + sum(map(len, self._queue))

    def take_back(self) -> bytes:
        """What nobody has read; ``on_taken`` is not told of the rest of what was held."""
        self._loop.unwatch(self._writer)
        parts = []
        try:
            while self._in_pipe and (data := os.read(self._own, self._in_pipe)):
                parts.append(data)
        except BlockingIOError:
            pass  # that was all, or a rank was quicker with the last of it
        parts += [bytes(data) for data in self._queue]
        self._in_pipe = 0
        self._queue.clear()
        return b"".join(parts)

    def end(self) -> None:
        """Nothing more comes: who reads on reads an end."""
        if self._writer >= 0:
            self._loop.unwatch(self._writer)
            os.close(self._writer)
            os.close(self._own)
            self._writer = self._own = -1


def reads(pids: Iterable[int]) -> int:
    """2 when one of these processes, or a thread of its, waits for a pipe; 1 when it polls, for this or something else.

    /proc/PID/wchan names the function of the kernel in which it sleeps; where that is hidden, it may be reading too.
    """
    found = 0
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/wchan", "rb", buffering=0) as file:
                    where = file.read(64).decode("ascii", "replace")
                if any(word in where for word in _WAITS_TO_READ):
                    return 2
                if where == "0" or any(word in where for word in _WAITS_FOR_EVENTS):
                    found = 1
        except OSError:
            continue
    return found
