"""Two faults of Textual (8.2.8): the mouse on what was just removed, or a screen that closed before it was mounted,
ended the console.

- A removed widget stays in the layout until the next layout. Where a selection of text began on it, Textual asked its
  parent for a region, and it had no parent any more.
- A screen that is closed, or whose application ends, before its task has begun is mounted without its widgets. Its
  handlers then look for one.
"""

from __future__ import annotations

from typing import Any

from textual import events
from textual.geometry import Offset
from textual.screen import Screen
from textual.widget import Widget

Found = tuple[Widget | None, Offset | None]


def without_removed(screen: Screen[Any], found: Found) -> Found:
    """What a screen found at a position; nothing if that was removed."""
    widget = found[0]
    return (None, None) if widget is not None and widget is not screen and widget.parent is None else found


_on_event = Screen.on_event


async def _on_event_while_open(self: Screen[Any], event: events.Event) -> None:
    closed = self._closing or self._pruning or self.app._exit
    if not (closed and isinstance(event, events.Mount | events.ScreenResume)):
        await _on_event(self, event)


def mend() -> None:
    """Mount no screen that has closed already."""
    Screen.on_event = _on_event_while_open  # type: ignore[method-assign, assignment]
