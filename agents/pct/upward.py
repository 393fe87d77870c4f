"""What a launch child tells its parent: a greeting first, and ends of ranks gathered for a moment."""

from __future__ import annotations

from agents.wire.control import Message, control

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional

    from agents.link.link import Link
    from agents.link.loop import Loop, Timer

#: Ends are gathered so long before they go up, unless they are the last.
GATHER_S = 0.005


class Upward:
    """The way up. ``is_last()``: whether no more ranks can end."""

    def __init__(
        self, loop: Loop, parent: Link, greeting: bytes, is_last: Callable[[], bool], gather_s: float = GATHER_S
    ) -> None:
        self._loop, self._parent, self._greeting, self._is_last = loop, parent, greeting, is_last
        self._gather_s = gather_s
        self._exits: List[List[Any]] = []
        self._closed: List[int] = []
        self._timer: Optional[Timer] = None

    def send(self, data: bytes) -> None:
        """Frames, as they are."""
        # The greeting travels with the first thing there is to say: one wake-up of the parent less.
        if self._greeting:
            data, self._greeting = self._greeting + data, b""
        self._parent.send_raw(data)

    def tell(self, message: Message) -> None:
        """A message, at once."""
        self.send(control(message))

    def ended(self, ranks: List[List[Any]]) -> None:
        """Ranks have ended: [rank, status, seconds] of each."""
        self._exits += ranks
        self._gather()

    def closed(self, ranks: List[int]) -> None:
        """All that these ranks have written has gone up."""
        self._closed += ranks
        self._gather()

    def _gather(self) -> None:
        if self._timer is None:
            self._timer = self._loop.after(0 if self._is_last() else self._gather_s, self.flush)

    def flush(self, more: bytes = b"") -> None:
        """What has been gathered goes up, ``more`` behind it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        data = b""
        if self._exits:
            data += control({"op": "exits", "ranks": self._exits})
            self._exits = []
        if self._closed:
            data += control({"op": "closed", "ranks": self._closed})
            self._closed = []
        if data or more:
            self.send(data + more)
