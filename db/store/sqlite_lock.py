"""The flock that lets one process at a time write an SQLite database.

SQLite's own busy handler sleeps, so it is unfair under contention. With several writing connections, a checkpoint must
never meet another writer (the WAL-reset bug fixed in SQLite 3.51.3).
"""

from __future__ import annotations

import fcntl
import os
import time

from db.errors import DatabaseUnavailable

FIRST_PAUSE_S = 0.0002
LONGEST_PAUSE_S = 0.004


class WriterLock:
    """A lock held around BEGIN IMMEDIATE … COMMIT, checkpoints and the closing of a connection."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self.held = False

    def acquire(self, patience_s: float) -> None:
        """Take the lock. Raises DatabaseUnavailable if another process holds it for longer than ``patience_s``."""
        if self._fd < 0:
            self._fd = self._open()
        deadline = time.monotonic() + patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.held = True
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DatabaseUnavailable(
                        f"another process has held the system database for {patience_s:g} s",
                        f"find that process: fuser {self.path}",
                    ) from None
            time.sleep(pause_s)  # poll: an flock with a time limit
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    def release(self) -> None:
        if self.held:
            self.held = False
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        self.release()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise DatabaseUnavailable(f"{self.path}: {error.strerror}", "check the mesh's state directory") from None
