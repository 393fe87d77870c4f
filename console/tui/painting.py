"""Writing less to the terminal: of a line only the cells that changed.

Textual's own update repaints each changed line from the left edge of its widget: 174 KiB a refresh for one cell in a
hundred, which a connection over SSH feels.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor


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
