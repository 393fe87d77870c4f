"""Ensures that a processor is in only one launch, whatever a launcher says or a credential allows (system mode).

A launch child locks one byte of a file for each of its processors until none of its processes is left. The kernel
releases the lock when the launch child dies, and no forked process inherits it (fcntl(2), record locks).
"""

from __future__ import annotations

import errno
import fcntl
import os

from agents.pct.errors import LoadFailed

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Sequence


class ProcessorLock:
    """Locks ``processors`` of ``node``. Raises LoadFailed if a process of another launch may still run on one of
    them."""

    def __init__(self, path: str, node: str, processors: Sequence[int]) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LoadFailed(f"{node}: {path}: {error.strerror}", "node") from None
        for processor in processors:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, processor)
            except OSError as error:
                self.release()
                taken = error.errno in (errno.EAGAIN, errno.EACCES)
                why = "is still in another launch" if taken else f"cannot be held: {error.strerror}"
                raise LoadFailed(f"{node}: processor {processor} {why}", "node") from None

    def release(self) -> None:
        """Release the processors."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
