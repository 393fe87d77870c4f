"""One of a few words, chosen on one line."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from console.tui.actions.registry import bindings


class Choice(Widget, can_focus=True):
    """Left, right or space choose; what is chosen stands out and is marked."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"choice--chosen", "choice--other"}

    BINDINGS: ClassVar[list[BindingType]] = bindings("choice")

    index = reactive(0)

    class Changed(Message):
        """Another word is chosen."""

    def __init__(self, words: tuple[str, ...], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._words = words

    @property
    def value(self) -> str:
        """The word chosen."""
        return self._words[self.index]

    def action_step(self, step: int) -> None:
        """The next word, or the one before; round at the end."""
        self.index = (self.index + step) % len(self._words)

    def watch_index(self) -> None:
        """Says so."""
        self.post_message(self.Changed())

    def on_click(self, event: events.Click) -> None:
        """Chooses the word that was clicked."""
        x = 0
        for index, word in enumerate(self._words):
            x += len(word) + 4
            if event.x < x:
                self.index = index
                return

    def render(self) -> Content:
        """All words; ``(•)`` before the chosen one, so that it can be told without colour."""
        parts = []
        for index, word in enumerate(self._words):
            style = self.get_visual_style("choice--chosen" if index == self.index else "choice--other")
            parts.append(Content.styled(f"{'●' if index == self.index else '○'} {word}", style))
            parts.append(Content("  "))
        return Content("").join(parts)
