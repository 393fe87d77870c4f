"""Writing less to the terminal, and sooner: of a line only the cells that changed, and after a key at once.

Textual's own update repaints each changed line from the left edge of its widget: 174 KiB a refresh for one cell in a
hundred, which a connection over SSH feels. And it paints sixty times a second, so that a key waits for its turn.
Both lean on Textual's inside, which is why its version is pinned.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.control import Control
from textual import events
from textual._compositor import ChopsUpdate, Compositor
from textual.screen import Screen

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

    def _forward_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.MouseDown):
            self._pressed_at = time.monotonic()
        super()._forward_event(event)

    async def _on_idle(self, event: events.Idle) -> None:
        if self._dirty_widgets and not self._layout_required and time.monotonic() - self._pressed_at < _AT_ONCE_S:
            event.prevent_default()
            self._on_timer_update()
        else:
            await super()._on_idle(event)
