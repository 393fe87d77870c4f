"""One launch: its ranks, what they write, signals, how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from console.tui.actions.registry import bindings
from console.tui.attachment import AttachError
from console.tui.run import Phase, RankState, signal_name
from console.tui.screens.confirm import Confirm
from console.tui.screens.frame import Framed
from console.tui.watching import Watch
from console.tui.widgets.cell_grid import CellGrid
from console.tui.widgets.completion import Completion
from console.tui.widgets.output_pane import OutputPane
from console.tui.widgets.rank_grid import RANK_GLYPHS, RankGrid
from console.tui.widgets.titles import set_subtitle, set_title
from console.tui.words import amount, elapsed, several

_HZ = 10  # how often what arrived is drawn, however fast it comes
_KILLERS = frozenset((15, 9))
_WORDS = {
    RankState.WAITING: "waiting",
    RankState.RUNNING: "running",
    RankState.EXITED: "exit 0",
    RankState.FAILED: "failed",
    RankState.SIGNALLED: "signalled",
    RankState.LOST: "lost",
}


class RunScreen(Framed):
    """A tab for each launch."""

    TITLE_FOR_HELP = "run"
    AUTO_FOCUS = "#output"
    BINDINGS: ClassVar[list[BindingType]] = bindings("run")
    PLACES = ("run", "ranks", "cells", "output")

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._run = watch.run

    def facts(self) -> dict[str, str]:
        """The launcher of this tab."""
        return {"launcher": str(self._run.launcher)}

    def body(self) -> Iterable[Widget]:
        """A line about the launch, ranks, output, the completion table."""
        run = self._run
        self._head = Static(id="run-head")
        self._grid = RankGrid(run, id="ranks")
        self._counts = Static(id="rank-counts")
        self._output = OutputPane(run.output, id="output")
        self._completion = Completion(run, id="completion")
        self._output.border_title = "output"
        yield self._head
        yield Horizontal(Vertical(self._grid, self._counts, id="rank-side"), self._output, id="run-body")
        yield self._completion

    def on_mount(self) -> None:
        """Draws what arrived, ten times a second while anybody looks."""
        self.set_interval(1 / _HZ, self._draw)
        self.console.runs_changed.subscribe(self, lambda _: self._phase_changed())
        self._phase_changed()

    def on_screen_resume(self) -> None:
        """Nothing was drawn meanwhile."""
        self._phase_changed()

    def _phase_changed(self) -> None:
        if not self.is_current:
            return
        self._draw()
        self._completion.update_rows()
        self._titles()
        self.refresh_bindings()

    def _draw(self) -> None:
        if not self.is_current:
            return
        run = self._run
        self._head.update(self._heading())
        self._grid.update_ranks()
        self._counts.update(self._summary())
        self._output.update_output(run.size)
        set_subtitle(self._output, self._volume())

    def _heading(self) -> Content:
        run = self._run
        style = {Phase.RUNNING: "$success", Phase.ENDED: "$error" if run.failed else "$success"}.get(
            run.phase, "$warning"
        )
        what: str = run.phase.value
        if run.phase is Phase.ENDED:
            what = f"exit {run.exit_status}" + (f" after {run.elapsed_s:.1f} s" if run.elapsed_s is not None else "")
        elif run.phase is Phase.RUNNING and run.started_at is not None:
            what = f"running {elapsed(max(0.0, self.console.wall_clock() - run.started_at))}"
        elif run.phase is Phase.GONE and self._watch.trouble:
            what = self._watch.trouble
        facts = [several(run.size, "rank"), run.user, f"partition {run.partition}" if run.partition else ""]
        right = Content.assemble(("  ", ""), (what, style))
        room = self._head.content_size.width
        for fact in filter(None, facts):
            more = right.append(Content.styled(f"  {fact}", "$quiet"))
            if more.cell_length < room - 24:
                right = more
        left = Content.assemble((f" {run.launcher} ", "bold reverse"), " ", (run.command or "…", "bold"))
        if left.cell_length > (space := max(8, room - right.cell_length)):
            left = left.truncate(space, ellipsis=True)
        return left.append(right)

    def _summary(self) -> Content:
        lines = []
        for state, count in self._run.counts().items():
            glyph = RANK_GLYPHS[state]
            look = self._grid.get_visual_style(f"cell-grid--rank-{state.name.lower()}")
            lines.append(Content.assemble((f" {glyph} ", look), f" {_WORDS[state]} ", (f"{count:,}", "bold")))
        return Content("\n").join(lines)

    def _volume(self) -> str:
        output = self._run.output
        parts = [f"{amount(output.total_bytes)}, {several(output.end, 'line')}"]
        if output.first:
            parts.append(f"the newest {len(output):,} kept")
        if output.skipped_bytes:
            parts.append(f"{amount(output.skipped_bytes)} skipped")
        return " · ".join(parts)

    @on(OutputPane.Changed)
    def _titles(self) -> None:
        rank = self._output.rank
        whose = "output" if rank is None else f"output of rank {rank}"
        set_title(self._output, whose + ("" if self._output.following else " · paused, G follows"))
        set_title(self._grid, "ranks" if rank is None else f"rank {rank} alone")

    # ranks

    @on(CellGrid.Moved)
    def _moved(self, event: CellGrid.Moved) -> None:
        run, rank = self._run, event.cell
        if rank < run.size:
            end = run.ends.get(rank)
            what = _WORDS[RankState(run.states[rank])]
            if end is not None:
                what = signal_name(end.signal) if end.signal else f"exit {end.status}"
            node = f" {run.nodes[rank]}" if run.nodes[rank] else ""
            set_subtitle(self._grid, f"{rank}{node} {what}")

    @on(CellGrid.Chosen)
    def _chosen(self, event: CellGrid.Chosen) -> None:
        self._output.rank = None if self._output.rank == event.cell else event.cell
        self.refresh_bindings()

    def action_all_ranks(self) -> None:
        """Everybody's output again."""
        self._output.rank = None
        self.refresh_bindings()

    def action_rank(self, step: int) -> None:
        """The next or the previous rank's output alone."""
        if self._run.size:
            now = self._output.rank
            self._output.rank = (self._grid.cursor if now is None else now + step) % self._run.size
            self._grid.cursor = self._output.rank
            self.refresh_bindings()

    # what one can do to it

    def possible(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Signals reach what lives; only what is out of sight can be attached to again."""
        del parameters
        if action == "signal":
            return self._run.live
        if action == "reattach":
            return self._run.phase is Phase.GONE
        if action == "all_ranks" and self.is_mounted:
            return self._output.rank is not None
        return True

    def action_signal(self, number: int) -> None:
        """Sends it; asks before one that ends processes."""
        rank = self._output.rank
        ranks = None if rank is None else [rank]
        if number not in _KILLERS:
            self.run_worker(self._send(number, ranks))
            return
        whom = f"all {several(self._run.size, 'rank')}" if rank is None else f"rank {rank}"
        end = "They can not refuse it, nor clean up." if number == 9 else "They may clean up and end."
        question = Confirm(
            f"{signal_name(number)} to {whom} of launcher {self._run.launcher}?",
            f"{self._run.command}\n{end}",
            f"Send {signal_name(number).removeprefix('SIG')}",
        )

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._send(number, ranks))

        self.app.push_screen(question, answered)

    async def _send(self, number: int, ranks: list[int] | None) -> None:
        try:
            await self._watch.signal(number, ranks)
        except AttachError as error:
            self.notify(f"{error.message} ({error.hint})", severity="error", markup=False)

    def action_reattach(self) -> None:
        """Connects again."""
        self.console.follow(self._watch)

    def action_close(self) -> None:
        """Closes the tab; the launch goes on."""
        self.console.close_run(self._run.launcher)
