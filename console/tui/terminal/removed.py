"""Four faults of Textual (8.2.8): the mouse on what was just removed, a key for what is not laid out yet, or a screen
that closed before it was mounted, ended the console.

- A removed widget stays in the layout until the next layout. Where a selection of text began on it, Textual asked its
  parent for a region, and it had no parent any more.
- A click carries the number of the option under it. The list may have fewer options when the click is handled.
- A page up or down in a list of options looks for the line of the present option, which has none before the layout.
- A screen that is closed, or whose application ends, before its task has begun is mounted without its widgets. Its
  handlers then look for one.
"""

from __future__ import annotations

from typing import Any

from textual import events
from textual._widget_navigation import Direction
from textual.geometry import Offset
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import OptionList

Found = tuple[Widget | None, Offset | None]


def without_removed(screen: Screen[Any], found: Found) -> Found:
    """What a screen found at a position; nothing if that was removed."""
    widget = found[0]
    return (None, None) if widget is not None and widget is not screen and widget.parent is None else found


def ignore_removed_option(options: OptionList, event: events.Click) -> None:
    """For ``_on_click``: nothing happens on an option that is not there any more."""
    option = event.style.meta.get("option")
    if option is not None and option >= options.option_count:
        event.prevent_default()


def can_page(options: OptionList) -> bool:
    """For ``_move_page``: whether the present option has a line."""
    return (options.highlighted or 0) in options._index_to_line


class Options(OptionList):
    """A list of options that may change while it is clicked."""

    def _move_page(self, direction: Direction) -> None:
        if can_page(self):
            super()._move_page(direction)

    async def _on_click(self, event: events.Click) -> None:
        ignore_removed_option(self, event)


_on_event = Screen.on_event


async def _on_event_while_open(self: Screen[Any], event: events.Event) -> None:
    closed = self._closing or self._pruning or self.app._exit
    if not (closed and isinstance(event, events.Mount | events.ScreenResume)):
        await _on_event(self, event)


def mend() -> None:
    """Mount no screen that has closed already."""
    Screen.on_event = _on_event_while_open  # type: ignore[method-assign, assignment]
