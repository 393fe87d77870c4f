"""The completion table: how the ranks ended, like ends folded into one row."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from console.tui.run import Phase, RankState, Row, Run
from console.tui.widgets.line_list import LineList
from console.tui.widgets.rank_grid import RANK_GLYPHS


class Completion(LineList):
    """Hidden until the launch has ended."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"cell-grid--rank-{state.name.lower()}" for state in RankState}

    def __init__(self, run: Run, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._run = run
        self._rows: list[Row] = []

    def update_rows(self) -> None:
        """Takes the table from the run."""
        ended = self._run.phase is Phase.ENDED
        self._rows = self._run.completion() if ended else []
        self.set_class(ended, "-ended")
        self.styles.height = min(len(self._rows), 6) + 2 if ended else None
        status = f"exit status {self._run.exit_status}"
        self.border_title = "completion"
        stacks = ", enter shows the stacks" if self._run.traced else ""
        self.border_subtitle = status + stacks if ended else ""
        self.set_keys(list(range(len(self._rows))))

    def ranks(self, key: int) -> frozenset[int]:
        """The ranks of a row; none where the launch is attached to anew and has no such row any more."""
        return self._rows[key].members if key < len(self._rows) else frozenset()

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """Glyph, what happened, which ranks, where, how long."""
        row = self._rows[key]
        mark = self.look(f"cell-grid--rank-{row.state.name.lower()}")
        quiet = base + self.look("line-list--quiet")
        low, high = f"{row.shortest_s:.1f}", f"{row.longest_s:.1f}"
        time = "" if row.state is RankState.LOST else f"{low} s" if low == high else f"{low} to {high} s"
        room = max(8, width - 3 - 24 - 18)
        who = f"rank {row.ranks}"
        where = f" on {row.nodes}" if row.nodes else ""
        if cell_len(who + where) > room:
            who = set_cell_size(who, min(len(who), room - 12)) + "…"
            where = where if cell_len(who + where) <= room else ""
        return [
            Segment(f" {RANK_GLYPHS[row.state]} ", mark),
            Segment(set_cell_size(f" {row.what}", 24), base),
            Segment(set_cell_size(who, min(len(who), room)), base),
            Segment(set_cell_size(where, room - min(cell_len(who), room)), quiet),
            Segment(time.rjust(17) + " ", quiet),
        ]
