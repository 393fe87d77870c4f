"""Waiting for the next commit of an object's owner, without looking again and again: the kernel tells (inotify(7))."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time

from agents.job.http_query import etag
from redmesh.state import StateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Set

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
#: Where the kernel does not tell (another host's file system, no watches left), and an owner's death, which changes
#: no file: a look now and then.
LOOK_S = 2.0
_GULP, _PAUSE_S = 64 << 10, 0.02
_libc = ctypes.CDLL(None, use_errno=True)


class DirectoryChanges:
    """What happens to the objects of one directory; ``fd`` is readable when there is something. OSError where the
    kernel has no watch left."""

    def __init__(self, directory: str) -> None:
        self.fd = _libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        mask = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
        # the directory, for the log beside an object comes and goes
        if _libc.inotify_add_watch(self.fd, os.fsencode(directory or "."), mask) < 0:
            number = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(number, os.strerror(number))

    def gulps(self) -> Iterator[bytes]:
        """Events as the kernel has them (inotify(7)), until there is none any more."""
        while True:
            try:
                yield os.read(self.fd, _GULP)
            except BlockingIOError:
                return

    def names(self) -> Set[str]:
        """The names of the files that changed, or whose writer closed them: ``UUID.job``, ``UUID.job-wal`` ….

        What a reader of an object leaves behind (it opens its log, and makes the log's shared memory) is left out.
        """
        found = set()
        for data in self.gulps():
            at = 0
            while at < len(data):
                _, mask, _, length = struct.unpack_from("iIII", data, at)
                name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode("utf-8", "replace")
                at += 16 + length
                if not name.endswith("-shm") and (not name.endswith("-wal") or mask & _MODIFY):
                    found.add(name)
        return found

    def close(self) -> None:
        """Watch no more."""
        os.close(self.fd)


class Changes:
    """The changes of one object's files. OSError where the kernel has no watch left."""

    def __init__(self, path: str) -> None:
        self._directory = DirectoryChanges(os.path.dirname(path))
        self._name = os.path.basename(path).encode()

    def wait(self, seconds: float) -> bool:
        """Whether something of the object changed within ``seconds``."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._directory.fd], [], [], left)
            if ready and self._name in b"".join(self._directory.gulps()):
                return True
        return False

    def close(self) -> None:
        """Watch no more."""
        self._directory.close()


def wait_for_change(path: str, known: str, seconds: float) -> None:
    """Return when the object's ETag is not ``known`` any more, or after ``seconds``."""
    until = time.monotonic() + seconds
    try:
        changes = Changes(path)
    except OSError:
        changes = None
    try:
        while (left := until - time.monotonic()) > 0 and etag(path) == known:
            if changes is not None:
                changes.wait(min(left, LOOK_S))
                time.sleep(min(left, _PAUSE_S))  # an owner that commits every 20 ms is not followed commit by commit
            else:
                time.sleep(min(left, LOOK_S / 4))  # no inotify is left for this user: nothing else tells
    except StateError:
        pass  # gone: answered as what it is now
    finally:
        if changes is not None:
            changes.close()
