"""That a processor is in one launch only, whatever a launcher says or a credential allows (system mode).

A launch child holds a lock on one byte of a file for each of its processors, until none of its processes is left. The
kernel lets go of it when the launch child dies, and no fork inherits it (fcntl(2), record locks).
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
    """Holds ``processors`` of ``node``; LoadFailed when a process of another launch may still run on one of them."""

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
        """Others may have them."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
