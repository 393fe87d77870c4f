"""The merged stacks of a launch: a call on each line, with its ranks."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType

from console.tui.actions.registry import bindings
from console.tui.model.stacks.rows import Row
from console.tui.widgets.lines import LineList

_WIDEST_RANKS = 22


class StackTree(LineList):
    """Rows of a tree; the cursor stays in place when the stacks are taken again."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "stack-tree--ranks",
        "stack-tree--call",
        "stack-tree--came",
        "stack-tree--left",
        "stack-tree--gone",
    }
    BINDINGS: ClassVar[list[BindingType]] = bindings("tree")
    EMPTY = "no stacks yet"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        self._room = 4  # columns for the ranks

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def show(self, rows: list[Row]) -> None:
        """Show these rows."""
        here = self.row
        self.rows = rows
        self._room = min(_WIDEST_RANKS, max((len(row.ranks) for row in rows), default=4))
        self.set_keys(list(range(len(rows))))
        if here is not None:
            at = next((at for at, row in enumerate(rows) if row.path == here.path), None)
            if at is not None:
                self.cursor = at
        self.refresh()

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """The indented call and its place; its ranks on the left, their changes on the right."""
        row = self.rows[key]

        def look(name: str) -> Style:
            return base + self.look(f"stack-tree--{name}")

        told = f"{row.ranks}" if len(row.ranks) <= _WIDEST_RANKS else f"{row.ranks[: _WIDEST_RANKS - 1]}…"
        ranks = told.rjust(self._room)
        segments = [Segment(f" {ranks} ", look("ranks" if row.ranks else "gone"))]
        segments.append(Segment(f"{row.size:>5,}  " if row.size else "       ", base + self._quiet()))
        segments.append(Segment("│ " * row.depth, base + self._quiet()))
        segments.append(Segment(row.call, look("call" if row.ranks else "gone")))
        segments.append(Segment(f" {row.where}" + (" …" if row.closed else ""), base + self._quiet()))
        for mark, text, name in (("+", row.came, "came"), ("−", row.left, "left")):
            if text:
                shown = text if len(text) <= _WIDEST_RANKS else text[: _WIDEST_RANKS - 1] + "…"
                segments.append(Segment(f"  {mark}{shown}", look(name)))
        return _fitted(segments, width)

    def _quiet(self) -> Style:
        return self.look("line-list--quiet")


def _fitted(segments: list[Segment], width: int) -> list[Segment]:
    """Cut off at the width, with a mark."""
    room, fitted = width, []
    for segment in segments:
        length = cell_len(segment.text)
        if length > room:
            if room > 1:
                fitted.append(Segment(set_cell_size(segment.text, room - 1) + "…", segment.style))
            return fitted
        fitted.append(segment)
        room -= length
    return fitted
