"""What the glyphs mean, and how many processors are in each state."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content
from textual.widget import Widget

from console.tui.machine import GLYPHS, Machine, State

_ORDER = (State.FREE, State.PENDING, State.BUSY, State.STALE, State.DOWN, State.RESERVED)


class Legend(Widget):
    """One line; busy stands for the letters of all launchers."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "legend--quiet",
        *(f"cell-grid--{state.name.lower()}" for state in State),
    }

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine

    def render(self) -> Content:
        """Glyph in its colours, name, count; the names give way on a narrow terminal."""
        counts = self._machine.counts()
        quiet = self.get_visual_style("legend--quiet")
        short = self.size.width < 76
        parts: list[Content] = []
        for state in _ORDER:
            name = state.name.lower()
            glyph = "a-z" if state is State.BUSY and not short else GLYPHS[state]
            style = self.get_visual_style(f"cell-grid--{name}")
            strong = f"{counts[state]:,}"
            gap = "" if short and len(parts) == len(_ORDER) - 1 else " " if short else "  "
            parts.append(Content.assemble((f" {glyph} ", style), (f" {name} ", quiet), strong, gap))
        return Content("").join(parts)
