"""The signals of a batch system, in a launch child: it passes them on to the ranks that do not get them themselves."""

from __future__ import annotations

import time

from agents.linux import ending
from agents.linux.batch_signals import HOLD_S, PASSED, Copies, Fate

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from agents.link.loop import Loop

#: SIGHUP, SIGINT, SIGQUIT, SIGTERM
_MAY_END = (1, 2, 3, 15)


class ManagerSignals:
    """``send(number, ranks)`` signals this node's ranks; ``themselves()`` is True if the batch system started them, and
    so signals them; ``end`` ends the launch here, if a signal is meant for this process."""

    def __init__(
        self, loop: Loop, send: Callable[[int, Optional[List[int]]], None], themselves: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:  # fmt: skip
        self._loop, self._send, self._themselves, self._end = loop, send, themselves, end
        self._copies = Copies()
        for number in PASSED:
            loop.on_signal(number, lambda number=number: self._arrived(number))  # type: ignore[misc]

    def _arrived(self, number: int) -> None:
        if number in _MAY_END and ending.is_meant():
            self._end()
            return
        fate = self._copies.from_manager(number, time.monotonic())
        if fate is Fate.DELIVER and not (ending.reaches_ranks() or self._themselves()):
            self._send(number, None)

    def relayed(self, number: int, ranks: Optional[List[int]]) -> None:
        """Yod has got this signal as a process of the job, and passes it on."""
        fate = self._copies.from_yod(number, time.monotonic())
        if fate is Fate.DELIVER:
            self._send(number, ranks)
        elif fate is Fate.HOLD:
            self._loop.after(HOLD_S, lambda: self._held_over(number, ranks))

    def _held_over(self, number: int, ranks: Optional[List[int]]) -> None:
        if self._copies.held_over(number, time.monotonic()) is Fate.DELIVER:
            self._send(number, ranks)
