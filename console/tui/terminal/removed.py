"""Two faults of Textual (8.2.8): the mouse on what was just removed ended the console.

- A removed widget stays in the layout until the next layout. Where a selection of text began on it, Textual asked its
  parent for a region, and it had no parent any more.
- A click carries the number of the option under it. The list may have fewer options when the click is handled.
"""

from __future__ import annotations

from typing import Any

from textual import events
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


class Options(OptionList):
    """A list of options that may change while it is clicked."""

    async def _on_click(self, event: events.Click) -> None:
        ignore_removed_option(self, event)
