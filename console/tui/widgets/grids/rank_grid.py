"""The ranks of a launch, a cell each."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from console.tui.actions.registry import bindings
from console.tui.format import HELD
from console.tui.map.layout import Block, Layout, Lines
from console.tui.model.launch import RankState, Run
from console.tui.widgets.grids.grid import CellGrid

#: Readable without colour: every state has its own glyph.
RANK_GLYPHS = {
    RankState.WAITING: "·",
    RankState.RUNNING: "▸",
    RankState.HELD: HELD,
    RankState.EXITED: "✓",
    RankState.FAILED: "✗",
    RankState.SIGNALLED: "!",
    RankState.LOST: "?",
    RankState.STOPPED: "–",
}
FIRST_GLYPH, FIRST_STYLE = "◆", "rank-first"  # the rank with which the failure of the launch began
_FRAME = 5  # edges, the space inside them, the scroll bar
_LEAST_WIDE = 24  # for the line below: the number of ranks in each state
_STYLES = {state: f"rank-{state.name.lower()}" for state in RankState}


class RankGrid(CellGrid):
    """States of all ranks with a cursor. Draws :class:`Run` and never changes it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "cell-grid--rank-aside",
        f"cell-grid--{FIRST_STYLE}",
        *(f"cell-grid--{name}" for name in _STYLES.values()),
    }

    BINDINGS: ClassVar[list[BindingType]] = bindings("ranks")

    def __init__(self, run: Run, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._run = run
        self._drawn = bytearray()
        self._first: frozenset[int] = frozenset()
        self._scope: frozenset[int] | None = None
        self._from: int | None = None  # the rank at which a range begins
        self._before: frozenset[int] = frozenset()  # the selection before the range
        self._asked: frozenset[int] | None = None  # the selection that the range requested last
        self._drags = False

    class Marked(Message):
        """The user adds a rank to the selection, or removes it."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    class Ranged(Message):
        """These ranks are the selection from now on."""

        def __init__(self, ranks: frozenset[int]) -> None:
            super().__init__()
            self.ranks = ranks

    def action_mark(self) -> None:
        """Mark or unmark the rank under the cursor, and go to the next."""
        if self.cells:
            self.post_message(self.Marked(self.cursor))
            self.cursor = min(self.cells - 1, self.cursor + 1)

    def action_extend(self, where: str) -> None:
        """Move the cursor, and mark the ranks on the way."""
        self._begin_range()
        self.action_move(where)
        self._mark_range()

    def _begin_range(self) -> None:
        """Start a range here, unless an unfinished one continues."""
        if self._from is None or self._from >= self.cells or self._asked != self._scope:
            self._from, self._before = self.cursor, self._scope or frozenset()

    def _mark_range(self) -> None:
        if self._from is not None and self.cells:
            ends = sorted((self._from, self.cursor))
            self._asked = self._before | frozenset(range(ends[0], ends[1] + 1))
            self.post_message(self.Ranged(self._asked))

    def _rank_at(self, event: events.MouseEvent) -> int | None:
        offset = event.get_content_offset(self)
        if offset is None or not self.cells:
            return None
        return self._layout.at(offset.x + self.scroll_offset.x, offset.y + self.scroll_offset.y)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """With shift: mark the ranks up to here. Otherwise: the start of a possible drag."""
        rank = self._rank_at(event)
        if rank is None or event.button != 1:
            return
        if event.shift:
            self._begin_range()
            self.cursor = rank
            self._mark_range()
        else:
            self._from = None
            self.cursor = rank
        self._drags = True

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """A drag marks the ranks it passes."""
        rank = self._rank_at(event)
        if event.button != 1 or not self._drags or rank is None or rank == self.cursor:
            return
        self._begin_range()
        self.cursor = rank
        self._mark_range()

    def on_mouse_up(self) -> None:
        """The drag has ended; shift and a click extend it."""
        self._drags = False

    def set_scope(self, scope: frozenset[int] | None) -> None:
        """Set the selected ranks; the others are dimmed."""
        if scope != self._scope:
            self._scope = scope
            self.rebuild()

    @property
    def cells(self) -> int:
        """How many ranks there are."""
        return len(self._run.states)

    def wanted_width(self, most: int) -> int:
        """The columns for widely spaced cells, including the frame."""
        size = self.cells
        run = min(8, size)
        return min(most, max(_LEAST_WIDE, len(str(size)) + 1 + 4 * run + _FRAME)) if size <= 64 else most

    def lay_out(self, width: int, height: int) -> Lines:
        """Runs of eight or more, labelled by their first rank; each on one line."""
        size = self.cells
        run = 8 if size <= 64 else 16 if size <= 512 else 32
        blocks = [Block(str(first), first, min(run, size - first)) for first in range(0, size, run)]
        return Layout(blocks, width, height, halves=False)

    def appearance(self, cell: int) -> tuple[str, str]:
        """Glyph and style of a rank."""
        state = RankState(self._run.states[cell])
        aside = self._scope is not None and cell not in self._scope
        glyph, style = (FIRST_GLYPH, FIRST_STYLE) if cell in self._first else (RANK_GLYPHS[state], _STYLES[state])
        return glyph, "rank-aside" if aside else style

    def update_ranks(self) -> None:
        """Repaint the ranks whose state has changed since the last call."""
        states = bytes(self._run.states)
        first = self._run.first_to_fail
        changed, self._first = set(first ^ self._first), first
        if len(states) != len(self._drawn):
            self._drawn = bytearray(states)
            self.rebuild()
        elif states != self._drawn or changed:
            changed |= {rank for rank, state in enumerate(states) if state != self._drawn[rank]}
            self._drawn = bytearray(states)
            self.repaint(changed)
