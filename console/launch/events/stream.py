"""The event stream of a launch, for the frontend, the spool and any number of observers."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Listener(Protocol):
        """A receiver of the stream."""

        def event(self, event: dict[str, Any]) -> None:
            """Handle an event."""

        def frame(self, kind: int, payload: bytes) -> None:
            """Handle a rank's output; ``payload`` is that of an output frame."""


class Stream:
    """Adds times to events, stores them for later observers, and sends them to ``front`` and then to all listeners."""

    def __init__(self, front: Callable[[dict[str, Any]], None]) -> None:
        self.front = front
        self.past: list[dict[str, Any]] = []
        self.listeners: list[Listener] = []

    def emit(self, event: dict[str, Any]) -> None:
        """Send ``event`` to all receivers."""
        event = stamped(event)
        self.past.append(event)
        self.front(event)
        for listener in list(self.listeners):
            listener.event(event)

    def frame(self, kind: int, payload: bytes) -> None:
        """Send output to all receivers that want it."""
        for listener in list(self.listeners):
            listener.frame(kind, payload)


def stamped(event: dict[str, Any]) -> dict[str, Any]:
    """``event`` with the time, in UTC seconds."""
    return {"event": event["event"], "at": round(time.time(), 6), **event}
