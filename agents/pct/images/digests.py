"""SHA-256 digests of files, computed once, to tell whether a node already has a program (``--bcast=auto``)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time

from agents.pct.images.ram_disk import user_directory
from agents.pct.images.store import ImageError, own_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Generator, Tuple

    _Key = Tuple[int, int, int, int, int]

# bytes to read at once; the smaller value at first, and for a slow file system
_PIECE, _SMALL_PIECE = 1 << 20, 64 << 10
_STEP_S = 0.01  # after which a caller with other work gets control back
#: A change within the clock tick of the last one leaves the times unchanged, so such files are hashed each time.
_SETTLED_NS = 2_000_000_000
_MOST_DIGESTS = 256
_TURN_S = 2.0
_AGAIN_S = 0.005


class Digests:
    """Digests of files, cached by device, inode, size, mtime and ctime.

    With a ``ram_disk``, the PCTs of a host share digests: one computes, the others wait.
    """

    def __init__(self, ram_disk: str = "") -> None:
        self._known: Dict[_Key, str] = {}
        self._shared = ""
        if ram_disk:
            self._shared = os.path.join(user_directory(ram_disk, os.geteuid()), "digests")
            own_place(self._shared)

    def steps(self, path: str) -> Generator[float, None, Tuple[str, int]]:
        """Compute digest and size of the file at ``path`` in steps of some milliseconds; yields how long to wait.

        A cached digest, and that of a small file, comes at once. Raises OSError if the file is unreadable, and
        ImageError if it changes.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise ImageError(f"{path} is not a regular file")
            key = _key(found)
            known = self._known.get(key) or self._told(key)
            if not known:
                turn = _Turn(self._shared, key)
                try:
                    while not turn.come():
                        yield _AGAIN_S  # flock has no time-out
                    known = self._told(key)
                    if not known:
                        known = yield from _sha256(fd)
                        self._keep(path, fd, found, known)
                finally:
                    turn.close()
            return known, found.st_size
        finally:
            os.close(fd)

    def _told(self, key: _Key) -> str:
        if not self._shared:
            return ""
        try:
            # A symbolic link is created atomically, and read in one call.
            return os.readlink(os.path.join(self._shared, _name(key)))
        except OSError:
            return ""

    def _keep(self, path: str, fd: int, found: os.stat_result, digest: str) -> None:
        key = _key(found)
        if _key(os.fstat(fd)) != key:
            raise ImageError(f"{path} changes while it is read", "launch again when it is whole")
        if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _SETTLED_NS:
            if len(self._known) >= _MOST_DIGESTS:
                del self._known[next(iter(self._known))]
            self._known[key] = digest
            self._tell(key, digest)

    def _tell(self, key: _Key, digest: str) -> None:
        if not self._shared:
            return
        try:
            if len(os.listdir(self._shared)) >= _MOST_DIGESTS:
                for name in os.listdir(self._shared):
                    os.unlink(os.path.join(self._shared, name))
            os.symlink(digest, os.path.join(self._shared, _name(key)))
        except OSError:
            pass  # it is only a cache; the next process computes it again

    def in_place(self, path: str, digest: str, size: int) -> bool:
        """True if this node's file at ``path`` is the announced one and may be executed."""
        return bool(_to_the_end(self.in_place_steps(path, digest, size)))

    def in_place_steps(self, path: str, digest: str, size: int) -> Generator[float, None, bool]:
        """As :meth:`in_place`, in steps as in :meth:`steps`."""
        try:
            if os.stat(path).st_size != size or not os.access(path, os.X_OK):
                return False  # the size differs, so no byte is read
            return (yield from self.steps(path)) == (digest, size)
        except (OSError, ImageError):
            return False


def _to_the_end(steps: Generator[float, None, Any]) -> Any:
    # For callers without other work; others wait in their event loop (steps, in_place_steps).
    while True:
        try:
            time.sleep(next(steps))
        except StopIteration as over:
            return over.value


def _key(found: os.stat_result) -> _Key:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _name(key: _Key) -> str:
    return "-".join(map(str, key))


class _Turn:
    """A lock by which one process computes while others wait, but not for a stopped one."""

    def __init__(self, shared: str, key: _Key) -> None:
        self._path = os.path.join(shared, _name(key) + ".lock") if shared else ""
        self._fd = -1
        self._until = time.monotonic() + _TURN_S
        if self._path:
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError:
                pass  # then do not wait

    def come(self) -> bool:
        """True if the lock is ours, or if its holder is no longer waited for."""
        if self._fd < 0 or time.monotonic() > self._until:
            return True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            try:
                os.unlink(self._path)
            except OSError:
                pass
            os.close(self._fd)


def _sha256(fd: int) -> Generator[float, None, str]:
    hasher = hashlib.sha256()
    buffer = memoryview(bytearray(_PIECE))
    at, size, since = 0, _SMALL_PIECE, time.monotonic()
    while True:
        asked = time.monotonic()
        count = os.preadv(fd, [buffer[:size]], at)
        if not count:
            return hasher.hexdigest()
        size = _SMALL_PIECE if time.monotonic() - asked > _STEP_S else min(2 * size, _PIECE)
        hasher.update(buffer[:count])
        at += count
        if time.monotonic() - since > _STEP_S:
            yield 0.0
            since = time.monotonic()
