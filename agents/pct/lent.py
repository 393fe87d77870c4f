"""A file that another process writes, as whoever was handed its descriptor reads it: in place.

Its owner may cut it short at any time, and a touch of a mapped page that is no more ends a process. So the pages of a
piece are asked for before they are touched, by a call that fails instead; what is cut in the moment between the two
still ends us, which is told as what it is (agents/pct/fates.py). Where the kernel does not know that call (before
5.14), or the file cannot be mapped, pieces are read into memory of our own.
"""

from __future__ import annotations

import errno
import mmap
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

#: MADV_POPULATE_READ, which Python has no name for before 3.14.
_POPULATE = 22
#: The kernel does not know it; the file system does not map (FUSE, some of the network), or may not so much.
_NOT_IN_PLACE = (errno.EINVAL, errno.ENODEV, errno.ENOMEM)


class Lent:
    """The file behind the descriptor ``fd``, which is ours from now on."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map: Optional[mmap.mmap] = None
        self._view = memoryview(b"")
        self._buffer: Optional[memoryview] = None

    def piece(self, offset: int, count: int) -> memoryview:
        """The ``count`` bytes at ``offset``, or fewer where it ends; good until the next piece is asked for.

        OSError when it cannot be read.
        """
        if self._buffer is None:
            end = offset + count
            start = offset - offset % mmap.PAGESIZE
            try:
                if end > len(self._view):
                    self._look()
                if self._map is not None and offset < len(self._view):
                    self._map.madvise(_POPULATE, start, min(end, len(self._view)) - start)
                return self._view[offset:end]
            except OSError as error:
                if error.errno == errno.EFAULT:
                    return memoryview(b"")
                if error.errno not in _NOT_IN_PLACE:
                    raise
            except ValueError:  # Python's own look at the file found it shorter than ours
                return memoryview(b"")
        return self._read(offset, count)

    def _look(self) -> None:
        size = os.fstat(self._fd).st_size
        if size > len(self._view):
            self._map = mmap.mmap(self._fd, size, prot=mmap.PROT_READ)
            self._view = memoryview(self._map)

    def _read(self, offset: int, count: int) -> memoryview:
        if self._buffer is None or len(self._buffer) < count:
            self._buffer = memoryview(bytearray(count))
        return self._buffer[: os.preadv(self._fd, [self._buffer[:count]], offset)]

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        # unmapped when the last piece of it is let go of
        self._view, self._map = memoryview(b""), None
