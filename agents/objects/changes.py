"""Waits for the next commit of an object's owner without polling, through inotify(7)."""

from __future__ import annotations

import os
import struct
import time

from agents.linux.ready import ready
from agents.objects.http_query import etag
from redmesh.state import StateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Set

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
#: The polling interval if inotify is unavailable (another host's file system, no watches left), and for the owner's
#: death, which changes no file.
LOOK_S = 2.0
_GULP, _PAUSE_S = 64 << 10, 0.02
_AT_ONCE = 16  # gulps read before other events are handled: a writer may be faster than the reader


class DirectoryChanges:
    """Changes of the objects in one directory; ``fd`` is readable when there are some. Raises OSError if no watch is
    left."""

    def __init__(self, directory: str) -> None:
        import ctypes  # 4 ms, which a command that only reads an object does not spend

        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        mask = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
        # Watch the directory, because the log beside an object is created and removed.
        if libc.inotify_add_watch(self.fd, os.fsencode(directory or "."), mask) < 0:
            number = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(number, os.strerror(number))

    def gulps(self) -> Iterator[bytes]:
        """Events in the kernel's format (inotify(7)). ``fd`` stays readable if more have arrived than are read."""
        for _ in range(_AT_ONCE):
            try:
                yield os.read(self.fd, _GULP)
            except BlockingIOError:
                return

    def names(self) -> Set[str]:
        """The names of files that changed, or whose writer closed them: ``UUID.job``, ``UUID.job-wal`` … Traces of
        readers (they open the log and create its shared memory) are left out."""
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
    """Changes of one object's files. Raises OSError if no watch is left."""

    def __init__(self, path: str) -> None:
        self._directory = DirectoryChanges(os.path.dirname(path))
        self._name = os.path.basename(path).encode()

    def wait(self, seconds: float) -> bool:
        """Wait until the object changes; returns False after ``seconds``."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if ready(self._directory.fd, seconds=left) and self._name in b"".join(self._directory.gulps()):
                return True
        return False

    def close(self) -> None:
        """Watch no more."""
        self._directory.close()


def wait_for_change(path: str, known: str, seconds: float) -> None:
    """Return when the object's ETag differs from ``known``, or after ``seconds``."""
    until = time.monotonic() + seconds
    try:
        changes = Changes(path)
    except OSError:
        changes = None
    try:
        while (left := until - time.monotonic()) > 0 and etag(path) == known:
            if changes is not None:
                changes.wait(min(left, LOOK_S))
                # so that an owner that commits every 20 ms is not followed commit by commit
                time.sleep(min(left, _PAUSE_S))
            else:
                time.sleep(min(left, LOOK_S / 4))  # no inotify watch is left, so poll
    except StateError:
        pass  # it was removed: answer with its present state
    finally:
        if changes is not None:
            changes.close()
