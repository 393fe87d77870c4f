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
        """Glyph in its colours, name, count; tighter on a narrow terminal."""
        for gap, wide in ((3, True), (2, True), (1, True), (1, False)):
            line = self._line(gap, wide)
            if line.cell_length <= self.size.width:
                break
        return line

    def _line(self, gap: int, wide: bool) -> Content:
        counts = self._machine.counts()
        quiet = self.get_visual_style("legend--quiet")
        parts: list[Content] = []
        for state in _ORDER:
            name = state.name.lower()
            glyph = "a-z" if state is State.BUSY and wide else GLYPHS[state]
            glyph = f" {glyph} " if wide else glyph
            style = self.get_visual_style(f"cell-grid--{name}")
            parts.append(Content.assemble((glyph, style), (f" {name} ", quiet), f"{counts[state]:,}"))
        return Content(" " * gap).join(parts)
