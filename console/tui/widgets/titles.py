"""Titles of frames: plain text, never markup, and set only when they change, for setting one repaints all."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget


def set_title(widget: Widget, text: str) -> None:
    """The title in the frame's upper edge."""
    title = Content(text)
    if widget.border_title != title.markup:
        widget.border_title = title


def set_subtitle(widget: Widget, text: str) -> None:
    """The title in the frame's lower edge."""
    title = Content(text)
    if widget.border_subtitle != title.markup:
        widget.border_subtitle = title
