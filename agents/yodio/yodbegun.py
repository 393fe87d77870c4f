"""The calls that a process of ``redmesh.Executor`` has begun, on a page of memory that it shares with its worker.

A worker sends calls ahead of their results, and may have to take back those that have not begun, while the process is
busy with a long one. A system call for each call would cost more than the call; this page costs two accesses to memory.

1. Calls are counted in the order of sending, from 1. Each word has one writer.
2. The process writes the count of a call before it runs it, and then reads the round. If the round has changed, it
   waits until the round is even, and reads which calls were taken back. It passes over these.
3. The worker makes the round odd, waits until that is visible to the process and the count is visible to the worker,
   reads the count, writes what is taken back, and makes the round even. A call whose count it has read has begun.
4. So a call whose count came too late for the worker is one before which the process waits.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import mmap
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

#: The words of the page: what was begun; the round; what was taken back is after the first and up to the last.
_BEGUN, _ROUND, _FIRST, _LAST, _WORKER = range(5)
_SIZE = 4096
#: Seconds until a word that one process has written is visible to another: a processor needs less than a microsecond.
_VISIBLE_S = 0.001


class Begun:
    """The page, for the worker and for its process."""

    def __init__(self, fd: int) -> None:
        self._words = memoryview(mmap.mmap(fd, _SIZE)).cast("Q")
        self._count = self._round = self._first = self._last = 0

    @classmethod
    def create(cls) -> Tuple[int, Begun]:
        """A new page, by a worker; returns its descriptor too, for the process."""
        fd = os.memfd_create("begun")
        os.ftruncate(fd, _SIZE)
        page = cls(fd)
        page._words[_WORKER] = os.getpid()
        return fd, page

    def begin(self) -> bool:
        """Note, in the process, that the next call begins; False if it was taken back."""
        self._count = count = self._count + 1
        words = self._words
        words[_BEGUN] = count
        if words[_ROUND] != self._round:
            self._learn()
        return count > self._last or count <= self._first

    def _learn(self) -> None:
        """Read what was taken back. Raises EOFError if the worker has exited."""
        words = self._words
        while True:
            before = words[_ROUND]
            self._first, self._last = words[_FIRST], words[_LAST]
            if not before & 1 and words[_ROUND] == before:
                self._round = before
                return
            if os.getppid() != words[_WORKER]:
                raise EOFError
            time.sleep(_VISIBLE_S)

    def take_back(self, sent: int) -> int:
        """Take back, as the worker, those of the first ``sent`` calls that have not begun; returns the last of the
        others."""
        words = self._words
        words[_ROUND] += 1
        time.sleep(_VISIBLE_S)
        begun = words[_BEGUN]
        if begun > words[_LAST]:  # otherwise it is still before the calls that were taken back earlier, or among them
            words[_FIRST] = begun
        words[_LAST] = sent
        words[_ROUND] += 1
        return int(words[_FIRST])

    def begun(self) -> int:
        """The last call that the process has begun."""
        return int(self._words[_BEGUN])
