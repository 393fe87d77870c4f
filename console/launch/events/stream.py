"""The event stream of a launch: written once, read by the front, the spool and any number of observers."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Listener(Protocol):
        """Somebody who follows a launch."""

        def event(self, event: dict[str, Any]) -> None:
            """Something happened."""

        def frame(self, kind: int, payload: bytes) -> None:
            """A rank wrote something; ``payload`` is an output frame's."""


class Stream:
    """Stamps events, keeps them for observers who come later, and hands them on; ``front`` is always the first."""

    def __init__(self, front: Callable[[dict[str, Any]], None]) -> None:
        self.front = front
        self.past: list[dict[str, Any]] = []
        self.listeners: list[Listener] = []

    def emit(self, event: dict[str, Any]) -> None:
        """Hand ``event`` to everybody."""
        event = stamped(event)
        self.past.append(event)
        self.front(event)
        for listener in list(self.listeners):
            listener.event(event)

    def frame(self, kind: int, payload: bytes) -> None:
        """Hand output to everybody who asked for it."""
        for listener in list(self.listeners):
            listener.frame(kind, payload)


def stamped(event: dict[str, Any]) -> dict[str, Any]:
    """``event`` with the time, in UTC seconds."""
    return {"event": event["event"], "at": round(time.time(), 6), **event}
