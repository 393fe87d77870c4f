"""Two stacks, call beside call, with what differs marked."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style

from console.tui.model.stacks.beside import Pair
from console.tui.model.stacks.rows import Row
from console.tui.widgets.lines import LineList


class BesideList(LineList):
    """Draws a pair of calls on each line."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"beside--differs", "beside--call"}
    EMPTY = "neither has any calls"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.pairs: list[Pair] = []

    def show(self, pairs: list[Pair], cursor: int) -> None:
        """Show these pairs, with the cursor on one of them."""
        self.pairs = pairs
        self.set_keys(list(range(len(pairs))))
        self.cursor = min(cursor, max(0, len(pairs) - 1))
        self.refresh()

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """Left call, mark, right call."""
        pair = self.pairs[key]
        half = max(1, (width - 3) // 2)
        call = base + self.look("beside--call")
        if pair.differs:
            call += self.look("beside--differs")
        quiet = base + self.look("line-list--quiet")
        mark = " ≠ " if pair.differs else " │ "
        return [
            *_half(pair.left, half, call, quiet),
            Segment(mark, call if pair.differs else quiet),
            *_half(pair.right, width - 3 - half, call, quiet),
        ]


def _half(row: Row | None, width: int, call: Style, quiet: Style) -> list[Segment]:
    if row is None:
        return [Segment(" " * width, quiet)]
    indent = " " * min(row.depth, width // 3)
    text = f" {indent}{row.call}"
    room = width - len(text)
    if room < 2:
        return [Segment(set_cell_size(text, max(0, width - 1)) + "…", call)]
    where = f" {row.where}" + (" …" if row.closed else "")
    if len(where) > room:
        where = where[: room - 1] + "…"
    return [Segment(text, call), Segment(set_cell_size(where, room), quiet)]
