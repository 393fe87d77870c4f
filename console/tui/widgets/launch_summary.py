"""Texts about a launch above its ranks and beside its output."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from console.tui.format import amount, elapsed, fitted, several
from console.tui.model.launch import Phase, RankState, Row, Run
from console.tui.model.output import Output
from console.tui.widgets.grids.rank_grid import FIRST_GLYPH, FIRST_STYLE, RANK_GLYPHS
from console.tui.widgets.lines import LineList
from redmesh.idset import fold_ranks


def heading(run: Run, trouble: str, now: float, room: int) -> Content:
    """Number, program, phase, and what else fits into ``room`` columns. ``now``: by the clock of the events."""
    style = {Phase.RUNNING: "$success", Phase.ENDED: "$error" if run.failed else "$success"}.get(run.phase, "$warning")
    what: str = run.phase.value
    if run.phase is Phase.ENDED:
        what = run.how + (f" after {run.elapsed_s:.1f} s" if run.elapsed_s is not None else "")
    elif run.past and run.phase is not Phase.GONE:
        what, style = "is over; what it wrote is being read", "$quiet"
    elif run.phase is Phase.RUNNING and run.held:
        what, style = "held at the first instruction", "$warning"
    elif run.phase is Phase.RUNNING and run.started_at is not None:
        what = f"running {elapsed(max(0.0, now - run.started_at))}"
        if run.bad_exits:
            what, style = f"{what}, {run.ended_badly:,} of {several(run.size, 'rank')} ended badly", "$error"
    elif run.phase is Phase.GONE and trouble:
        what = trouble
    right = Content.assemble(("  ", ""), (what, style))
    left = Content.assemble((f" {run.launcher} ", "bold reverse"), " ", (run.shown or "…", "bold"))
    wanted = min(left.cell_length, room * 2 // 3)  # the command has priority over the rest
    facts = [several(run.size, "rank"), run.user, f"partition {run.partition}" if run.partition else ""]
    for fact in filter(None, facts):
        more = right.append(Content.styled(f"  {fact}", "$quiet"))
        if more.cell_length <= room - wanted:
            right = more
    if left.cell_length > (space := max(8, room - right.cell_length)):
        left = left.truncate(space, ellipsis=True)
    return left.append(right)


def volume(output: Output, shown: int, whole: bool) -> str:
    """The amount of output, and how much is shown. ``whole``: all of it can be scrolled to."""
    parts = [f"{amount(output.total_bytes)}, {several(output.end, 'line')}"]
    if output.first and not whole:
        parts.append(f"the newest {len(output):,} kept")
    if shown != output.end and not (output.first and shown == len(output)):
        parts.append(f"{shown:,} shown")
    if output.skipped_bytes:
        parts.append(f"{amount(output.skipped_bytes)} skipped")
    return " · ".join(parts)


def whose(ranks: frozenset[int] | None) -> str:
    """``rank 3``, ``ranks 0-3,8``; empty for all."""
    if ranks is None:
        return ""
    told = fold_ranks(sorted(ranks))
    return f"rank {told}" if len(ranks) == 1 else f"ranks {told if len(told) < 24 else told[:23] + '…'}"


# The completion table: exits of the ranks, equal ones folded.


class Completion(LineList):
    """Hidden until the launch has ended."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"cell-grid--{FIRST_STYLE}",
        *(f"cell-grid--rank-{state.name.lower()}" for state in RankState),
    }

    def __init__(self, run: Run, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._run = run
        self._rows: list[Row] = []
        self.stacks_known = False  # ranks left stacks

    def update_rows(self) -> None:
        """Take the table from the run."""
        ended = self._run.phase is Phase.ENDED
        self._rows = self._run.completion() if ended else []
        self.set_class(ended, "-ended")
        self.styles.height = min(len(self._rows), 6) + 2 if ended else None
        status = f"exit status {self._run.exit_status}"
        self.border_title = "completion"
        stacks = ", enter shows the stacks" if self.stacks_known else ""
        self.border_subtitle = status + stacks if ended else ""
        self.set_keys(list(range(len(self._rows))))

    def ranks(self, key: int) -> frozenset[int]:
        """The ranks of a row; empty if the launch was attached to again and has no such row any more."""
        return self._rows[key].members if key < len(self._rows) else frozenset()

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """Glyph, what happened, which ranks, where, how long."""
        row = self._rows[key]
        name = FIRST_STYLE if row.first else f"rank-{row.state.name.lower()}"
        mark = self.look(f"cell-grid--{name}")
        quiet = base + self.look("line-list--quiet")
        low, high = f"{row.shortest_s:.1f}", f"{row.longest_s:.1f}"
        time = "" if row.state is RankState.LOST else f"{low} s" if low == high else f"{low} to {high} s"
        room = max(8, width - 3 - 24 - 18)
        who = f"rank {row.ranks}"
        where = f" on {row.nodes}" if row.nodes else ""
        if row.first:
            alone = len(row.first) == len(row.members)
            where += ", the first to fail" if alone else f", {fold_ranks(sorted(row.first))} the first to fail"
        if cell_len(who + where) > room:
            who = fitted(who, room - 11)
            where = where if cell_len(who + where) <= room else ""
        return [
            Segment(f" {FIRST_GLYPH if row.first else RANK_GLYPHS[row.state]} ", mark),
            Segment(set_cell_size(f" {row.what}", 24), base),
            Segment(set_cell_size(who, min(cell_len(who), room)), base),
            Segment(set_cell_size(where, room - min(cell_len(who), room)), quiet),
            Segment(time.rjust(17) + " ", quiet),
        ]
