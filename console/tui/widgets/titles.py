"""Titles of frames: plain text, never markup, and drawn only when they change, and then alone.

Textual draws all of a widget again for another title.
"""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget


def set_title(widget: Widget, text: str) -> None:
    """The title in the frame's upper edge."""
    title = Content(text)
    if widget.border_title != title.markup:
        widget._border_title = title
        _redraw_edge(widget, 0)


def set_subtitle(widget: Widget, text: str) -> None:
    """The title in the frame's lower edge."""
    title = Content(text)
    if widget.border_subtitle != title.markup:
        widget._border_subtitle = title
        _redraw_edge(widget, widget.outer_size.height - 1)


def _redraw_edge(widget: Widget, y: int) -> None:
    left, top = widget.content_offset
    widget.refresh(Region(-left, y - top, widget.outer_size.width, 1))
