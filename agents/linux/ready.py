"""Waiting for descriptors of any number: ``select.select`` raises ValueError for those above 1023."""

import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Set


def ready(*fds: int, seconds: "Optional[float]" = None) -> "Set[int]":
    """Return those descriptors that can be read, have ended or are broken; empty after ``seconds`` (None: never)."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if seconds is None else max(0.0, 1000 * seconds))}
