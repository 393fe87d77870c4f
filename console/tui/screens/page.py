"""A page of text over the screen: scrolled by keys, closed by escape."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from console.tui.actions.registry import bindings
from console.tui.widgets.titles import set_subtitle, set_title


class Page(ModalScreen[None]):
    """Lines under a title. The text has been cleaned."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("page")

    def __init__(self, title: str, lines: list[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._dismissed = False

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with Vertical(id="page") as frame:
            set_title(frame, self._title)
            set_subtitle(frame, "escape closes, y copies")
            with VerticalScroll(id="page-text"):
                yield Static(Content("\n".join(self._lines)))

    def action_close(self) -> None:
        """Closes the page, once."""
        if not self._dismissed:
            self._dismissed = True
            self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Scrolls the page."""
        self.query_one("#page-text").scroll_relative(y=lines, animate=False)

    def action_copy(self) -> None:
        """All of it into the clipboard."""
        self.app.copy_to_clipboard("\n".join(self._lines))
