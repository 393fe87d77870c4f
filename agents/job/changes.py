"""Waiting for the next commit of an object's owner, without looking again and again: the kernel tells (inotify(7))."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import time

from agents.job.http_query import etag
from redmesh.state import StateError

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
#: Where the kernel does not tell (another host's file system, no watches left), and an owner's death, which changes
#: no file: a look now and then.
LOOK_S = 2.0
_GULP, _PAUSE_S = 64 << 10, 0.02
_libc = ctypes.CDLL(None, use_errno=True)


class Changes:
    """The changes of one object's files. OSError where the kernel has no watch left."""

    def __init__(self, path: str) -> None:
        self._fd = _libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._name = os.path.basename(path).encode()
        mask = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
        # the directory, for the log beside the object comes and goes; what is written there is read from it by name
        if _libc.inotify_add_watch(self._fd, os.fsencode(os.path.dirname(path) or "."), mask) < 0:
            number = ctypes.get_errno()
            os.close(self._fd)
            raise OSError(number, os.strerror(number))

    def wait(self, seconds: float) -> bool:
        """Whether something of the object changed within ``seconds``."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._fd], [], [], left)
            if ready and self._ours():
                return True
        return False

    def _ours(self) -> bool:
        found = False
        while True:
            try:
                data = os.read(self._fd, _GULP)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
                return found
            found = found or self._name in data

    def close(self) -> None:
        """Watch no more."""
        os.close(self._fd)


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
