"""Whether the peer of a launch's link still answers. It is asked only if nothing arrives. No I/O.

Time is counted in ticks of this process, not in seconds, so that time in which it was itself stopped does not count.
"""

from __future__ import annotations

import time

from agents.link.lean import Enum
from agents.pct.errors import LoadFailed

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, Tuple

    from agents.link.loop import Loop


#: Seconds of a tick; and ticks of silence after which a child is asked, and after which it counts as silent.
TICK_S = 1.0
ASK_AFTER, SILENT_AFTER = 2, 6


class State(Enum):
    """The state of the peer."""

    TALKING = "talking"
    ASKED = "asked"
    SILENT = "silent"


class Event(Enum):
    """The finding of a tick."""

    WORD = "word"  # data has arrived since the last tick
    QUIET = "quiet"
    TOO_QUIET = "too quiet"


class Action(Enum):
    """The action after a tick."""

    NONE = "none"
    ASK = "ask"
    TELL_SILENT = "tell silent"
    TELL_BACK = "tell back"


S, E, A = State, Event, Action

#: All transitions. An event that a state does not list changes nothing.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[State, Action]] = {
    (S.TALKING, E.QUIET): (S.ASKED, A.ASK),
    (S.TALKING, E.TOO_QUIET): (S.ASKED, A.ASK),
    (S.ASKED, E.WORD): (S.TALKING, A.NONE),
    (S.ASKED, E.TOO_QUIET): (S.SILENT, A.TELL_SILENT),
    (S.SILENT, E.WORD): (S.TALKING, A.TELL_BACK),
}


class Pulse:
    """The liveness of one link. The reader of the link sets ``heard``; ``seconds`` is the silence in whole ticks."""

    __slots__ = ("_ask_after", "_delivered", "_quiet", "_silent_after", "_tick_s", "heard", "seconds", "state")

    def __init__(self, tick_s: float = TICK_S) -> None:
        self.state = State.TALKING
        self.heard = False
        self.seconds = 0.0
        self._tick_s = tick_s
        self._ask_after, self._silent_after = round(ASK_AFTER / tick_s), round(SILENT_AFTER / tick_s)
        self._quiet = 0
        self._delivered = -1

    def tick(self, delivered: int = -1) -> Action:
        """Apply the passing of one tick; returns the action.

        ``delivered`` (Link.delivered): on a slow connection the question waits behind earlier data, so ticks count from
        the last one in which the peer's kernel received more. Such a connection stalls now and then.
        """
        before, self._delivered = self._delivered, delivered
        if self.heard:
            self.heard, self._quiet, event = False, 0, Event.WORD
        elif delivered > before >= 0:
            self._quiet = 0
            return Action.NONE
        else:
            self._quiet += 1
            self.seconds = self._quiet * self._tick_s
            if self._quiet < self._ask_after:
                return Action.NONE
            event = Event.QUIET if self._quiet < self._silent_after else Event.TOO_QUIET
        entry = TRANSITIONS.get((self.state, event))
        if entry is None:
            return Action.NONE
        self.state, action = entry
        return action


def silent(node: str, seconds: float, pct_is_up: bool) -> LoadFailed:
    """The error of a launch whose launch child on ``node`` has been silent before GO."""
    if not pct_is_up:
        return LoadFailed(f"{node}: silent for {seconds:.0f} s", "node")
    return LoadFailed(
        f"{node}: its launch child has been silent for {seconds:.0f} s, and its PCT answers",
        "stalled",
        hint="somebody stopped it (SIGSTOP), or a file system that it uses hangs there; the node stays in service",
    )


# Until the processes of a launch on a node are held: a slow node is waited for, one without progress is at fault.
# Counting begins when everything they need is here, because transfers have a check of their own.


#: Seconds without a further held process after which a node is at fault.
READY_S = 5.0


class Readiness:
    """``waiting()``: some processes are not held yet.

    ``patience_s``: extra time, for ranks that were told to sleep first. Children are not counted: they have a clock of
    their own, and one that does not answer is detected by its Pulse.
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
            self._fail(LoadFailed(f"{self._node}: its processes do not reach their exec", "stalled"))
