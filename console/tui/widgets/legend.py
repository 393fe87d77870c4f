"""What the glyphs mean, and how many processors are in each state."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content
from textual.widget import Widget

from console.tui.machine import GLYPHS, Machine, State

#: These always stand there; the others while there are any.
_ALWAYS = (State.FREE, State.PENDING, State.BUSY, State.STALE, State.DOWN, State.RESERVED)
_ORDER = (*_ALWAYS, State.DRAINING, State.DRAINED, State.HELD, State.SERVICE)


class Legend(Widget):
    """One line; busy stands for the letters of all launchers."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "legend--quiet",
        *(f"cell-grid--{state.name.lower()}" for state in State),
    }

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        self._counts: dict[State, int] = {}

    def update_counts(self) -> None:
        """Draws anew where a count has changed."""
        counts = self._machine.counts()
        if counts != self._counts:
            self._counts = counts
            self.refresh()

    def render(self) -> Content:
        """Glyph in its colours, name, count; tighter on a narrow terminal, and then without what there is none of."""
        states = [state for state in _ORDER if state in _ALWAYS or self._counts.get(state)]
        there = [state for state in states if self._counts.get(state)]
        for shown, gap, wide in ((states, 3, True), (states, 2, True), (states, 1, True), (states, 1, False),
                                 (there, 1, True), (there, 1, False)):  # fmt: skip
            line = self._line(shown, gap, wide)
            if line.cell_length <= self.size.width:
                break
        return line

    def _line(self, states: list[State], gap: int, wide: bool) -> Content:
        quiet = self.get_visual_style("legend--quiet")
        parts: list[Content] = []
        for state in states:
            name = state.name.lower()
            glyph = "a-z" if state is State.BUSY and wide else GLYPHS[state]
            glyph = f" {glyph} " if wide else glyph
            style = self.get_visual_style(f"cell-grid--{name}")
            parts.append(Content.assemble((glyph, style), (f" {name} ", quiet), f"{self._counts.get(state, 0):,}"))
        return Content(" " * gap).join(parts)
