"""Until the processes of a launch on one node are held: a slow node is waited for, one that stands still is not.

Looked at from the moment when all is here that they need: what travels is watched by whoever fetches it.
"""

from __future__ import annotations

import time

from agents.pct.errors import LoadFailed

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable

    from agents.link.loop import Loop

#: Seconds without one more process held after which a node is at fault.
READY_S = 5.0


class Readiness:
    """``waiting()``: not all are held yet.

    ``patience_s``: for which the ranks were told to sleep first. Children need no such clock: they have their own, and
    one that does not answer is told by its pulse.
    """

    def __init__(
        self,
        loop: Loop,
        node: str,
        waiting: Callable[[], bool],
        fail: Callable[[LoadFailed], None],
        patience_s: float,
    ) -> None:
        self._loop, self._node, self._waiting, self._fail = loop, node, waiting, fail
        self._moved_at = time.monotonic() + patience_s
        loop.after(READY_S + patience_s, self._look)

    def moved(self) -> None:
        """One more process is held."""
        self._moved_at = max(self._moved_at, time.monotonic())

    def _look(self) -> None:
        if not self._waiting():
            return
        quiet = time.monotonic() - self._moved_at
        if quiet < READY_S:
            self._loop.after(READY_S - quiet, self._look)
        else:
            self._fail(LoadFailed(f"{self._node}: its processes do not reach their exec", "node"))
