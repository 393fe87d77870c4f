"""Writing less to the terminal, and sooner: of a line only the cells that changed; keys at once, and in their order.

Textual's own update repaints each changed line from the left edge of its widget: 174 KiB a refresh for one cell in a
hundred, which a connection over SSH feels. And it paints sixty times a second, so that a key waits for its turn, and
hands each key to the widget that has the focus when it comes: what is typed right behind a key that opens, closes or
changes a screen goes to the old one. All three lean on Textual's inside, which is why its version is pinned.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.control import Control
from textual import events
from textual._compositor import ChopsUpdate, Compositor
from textual.app import App
from textual.screen import Screen
from textual.widgets import Input

_AT_ONCE_S = 0.03  # so long after a key what changes is painted as it comes


class CellsUpdate(ChopsUpdate):
    """The changed spans, cut at both ends."""

    def render_segments(self, console: Console) -> str:
        """What is written: for each span where it begins, and its cells."""
        parts: list[str] = []
        chops, ends = self.chops, self.chop_ends
        for y, left, right in self.spans:
            for end, (x, strip) in zip(ends[y], chops[y].items(), strict=False):
                if strip is None or x >= right or end <= left:
                    continue
                begin = max(x, left)
                if begin > x or end > right:
                    strip = strip.crop(begin - x, min(end, right) - x)
                parts += (Control.move_to(begin, y).segment.text, strip.render(console))
        return "".join(parts)


class CellsCompositor(Compositor):
    """Textual's, with leaner updates."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """The update of what changed; None when nothing did."""
        update = super().render_partial_update()
        return None if update is None else CellsUpdate(update.chops, update.spans, update.chop_ends)


class PromptScreen(Screen[None]):
    """A screen that writes little, and what a key has changed at once."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = CellsCompositor()
        self._pressed_at = 0.0

    def pressed(self) -> None:
        """A key was pressed: what it changes is painted as it comes."""
        self._pressed_at = time.monotonic()

    def _forward_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.MouseDown):
            self.pressed()
        super()._forward_event(event)

    async def _on_idle(self, event: events.Idle) -> None:
        if self._dirty_widgets and not self._layout_required and time.monotonic() - self._pressed_at < _AT_ONCE_S:
            event.prevent_default()
            self._on_timer_update()
        else:
            await super()._on_idle(event)


class PromptApp(App[None]):
    """An application whose keys are dealt with one after the other."""

    async def on_event(self, event: events.Event) -> None:
        """A key that is bound is done before the next one is looked at; where text is typed Textual's way holds."""
        if isinstance(event, events.Key) and not event.is_forwarded and not isinstance(self.focused, Input):
            for priority in (True, False):
                if await self._check_bindings(event.key, priority=priority):
                    if isinstance(self.screen, PromptScreen):
                        self.screen.pressed()
                    return
        await super().on_event(event)
