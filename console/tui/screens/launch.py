"""A launch: its ranks, their output, signals, exits."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar, NamedTuple

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.notifications import SeverityLevel
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from console.launch.options.signal_names import signal_name
from console.tui.actions.registry import bindings
from console.tui.format import several
from console.tui.model.filter import Filter, parse_filter
from console.tui.model.launch import BAD, Phase, RankState
from console.tui.model.output import Line
from console.tui.model.patterns import FilterError, Pattern
from console.tui.model.stacks.crash import Died, died
from console.tui.navigation.presets import Presets, config_directory
from console.tui.screens.base import Framed
from console.tui.screens.dialogs import Confirm
from console.tui.screens.save_output import SaveOutput
from console.tui.screens.stacks.stacks import StacksScreen
from console.tui.sources.launch import Watch
from console.tui.sources.sift import errors_of
from console.tui.sources.yod import AttachError
from console.tui.widgets.bars import set_subtitle, set_title
from console.tui.widgets.grids.grid import CellGrid
from console.tui.widgets.grids.rank_grid import FIRST_GLYPH, FIRST_STYLE, RANK_GLYPHS, RankGrid
from console.tui.widgets.inputs import Prompt
from console.tui.widgets.launch_summary import Completion, heading, volume, whose
from console.tui.widgets.lines import LineList
from console.tui.widgets.output import OutputPane
from redmesh.idset import fold_ranks

_UNFOLDED = 100  # with this many columns, the ranks are beside the output
_WIDEST_SIDE = 38
_HZ = 10  # how many times a second new output is drawn, however fast it arrives
#: What a signal does to a program without a handler for it, where that is not its end: it is sent without a question.
_HARMLESS = frozenset(
    (signal.SIGCHLD, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG,
     signal.SIGWINCH)
)  # fmt: skip
_WARNINGS = {signal.SIGKILL: "They can not refuse it, nor clean up.", signal.SIGTERM: "They may clean up and end."}
_WORDS = {
    RankState.WAITING: "waiting",
    RankState.RUNNING: "running",
    RankState.HELD: "held",
    RankState.EXITED: "exit 0",
    RankState.FAILED: "failed",
    RankState.SIGNALLED: "signalled",
    RankState.LOST: "lost",
    RankState.STOPPED: "ended by yod",
}
_LONGEST = 32  # columns for a filter in the frame


def _few(ranks: frozenset[int]) -> str:
    told = fold_ranks(sorted(ranks))
    return told if len(told) < 8 else f"{told[:7]}…"


class Shown(NamedTuple):
    """What the tab depends on that changes by itself."""

    changes: int  # of the launch's model
    second: int  # by the clock; 0 if nothing counts seconds
    theme: str
    below: int  # lines below the screen, if the output does not follow


class RunScreen(Framed):
    """The tab of a launch."""

    TITLE_FOR_HELP = "run"
    AUTO_FOCUS = "#output"
    BINDINGS: ClassVar[list[BindingType]] = bindings("run")
    PLACES = ("run", "ranks", "cells", "output", "prompt")

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._run = watch.run
        self._shown: Shown | None = None
        self._looks_for_stacks: Worker[None] | None = None
        self._looked = ""  # how much of the output it has read

    def facts(self) -> dict[str, str]:
        """The launcher of this tab, and the selected ranks."""
        scope = self._output.scope if self.is_mounted else None
        rank = str(min(scope)) if scope else "RANK"
        ranks = f" {fold_ranks(sorted(scope))}" if scope else ""
        return {"launcher": str(self._run.launcher), "rank": rank, "ranks": ranks}

    @property
    def in_use(self) -> bool:
        """True while a search, a filter or ranks are chosen, the output is scrolled back, or a line is typed."""
        if not self.is_mounted:
            return False
        output = self._output
        shown = output.search is not None or output.wanted != Filter() or output.scope is not None or output.gathered
        return shown or not output.following or self._prompt.is_open

    def compose(self) -> Iterable[Widget]:
        """A line about the launch, ranks, output, the completion table, the prompt."""
        run = self._run
        self._head = Static(id="run-head")
        self._grid = RankGrid(run, id="ranks")
        self._counts = Static(id="rank-counts")
        self._output = OutputPane(run, self._watch.archive, id="output")
        self._completion = Completion(run, id="completion")
        self._side = Vertical(self._grid, self._counts, id="rank-side")
        self._line = Static(id="rank-line")  # counts in one line, if the ranks are folded
        self._folds: bool | None = None  # the user's choice; None: folded if the screen is narrow
        self._prompt = Prompt(id="prompt")
        self._output.border_title = "output"
        self._saving = SaveOutput(self, run, self._output)
        body = Horizontal(self._side, self._output, id="run-body")
        return self.framed(self._head, self._line, body, self._completion, self._prompt)

    def on_mount(self) -> None:
        """Draw what is new, ten times a second while the screen is in front."""
        self.set_interval(1 / _HZ, self._draw_news)
        self.console.runs_changed.subscribe(self, lambda _: self._phase_changed())
        self._phase_changed()

    def on_screen_resume(self) -> None:
        """Draw what has changed while another screen was in front."""
        self._phase_changed()

    def _phase_changed(self) -> None:
        if not self.is_current:
            return
        self._draw()
        ended = self._run.phase is Phase.ENDED
        self._completion.stacks_known = ended and self._died(frozenset(range(self._run.size))) is not None
        self._completion.update_rows()
        self._titles()
        self.refresh_bindings()

    def _draw_news(self) -> None:
        """Draw if anything has changed since the last time."""
        output, live = self._output, self._run.live
        if not self.is_current:
            return
        second = int(self.console.wall_clock()) if live else 0
        shown = Shown(self._watch.changes, second, self.app.theme, 0 if output.following else output.below)
        if shown != self._shown:
            self._draw()
            self._shown = shown

    def _draw(self) -> None:
        if not self.is_current:
            return
        run = self._run
        room = self._head.content_size.width
        self._head.update(heading(run, self._watch.trouble, self.console.wall_clock(), room))
        self._share_room()
        self._grid.update_ranks()
        (self._counts if self._side.display else self._line).update(self._summary())
        self._output.update_output(self.console.wall_clock())
        whole = self._watch.archive.first is not None
        set_subtitle(self._output, volume(run.output, len(self._output), whole))
        if not self._output.following:
            self._titles()  # the title shows how many lines have arrived below the screen

    def _share_room(self) -> None:
        """Give the ranks the space they need; on a narrow terminal they are folded unless the user unfolds them."""
        folded = self.size.width < _UNFOLDED if self._folds is None else self._folds
        full = self.has_class("-full")
        self._side.display = not (folded or full)
        self._side.styles.width = self._grid.wanted_width(_WIDEST_SIDE if self.size.width >= 110 else _WIDEST_SIDE - 7)
        self._line.display = folded and not full

    def on_resize(self) -> None:
        """Share out the space again: the terminal's size has changed."""
        self._share_room()
        self._shown = None

    def action_fold(self) -> None:
        """Fold or unfold the ranks."""
        self.remove_class("-full")
        self._folds = self._side.display
        self._share_room()
        if self._folds and self._grid.has_focus:
            self._output.focus()
        self._draw()

    def action_full(self) -> None:
        """Show the output on the whole terminal, or with everything around it."""
        self.toggle_class("-full")
        self._share_room()
        self._shown = None
        self._output.focus()
        self._titles()

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them off."""
        self._output.wrap = not self._output.wrap

    def _summary(self) -> Content:
        lines = []
        if self._run.last_seen and not self._side.display:
            lines.append(Content.styled("as last seen:", "$quiet"))
        for state, count in self._run.counts().items():
            glyph = RANK_GLYPHS[state]
            look = self._grid.get_visual_style(f"cell-grid--rank-{state.name.lower()}")
            lines.append(Content.assemble((f" {glyph} ", look), f" {_WORDS[state]} ", (f"{count:,}", "bold")))
        if first := self._run.first_to_fail:
            look = self._grid.get_visual_style(f"cell-grid--{FIRST_STYLE}")
            whose_end = f"rank{'s' * (len(first) > 1)} {_few(first)}"  # the lines above end with counts
            lines.append(Content.assemble((f" {FIRST_GLYPH} ", look), " first to fail: ", (whose_end, "bold")))
        return Content("\n" if self._side.display else "  ").join(lines)

    @on(OutputPane.Changed)
    def _output_changed(self) -> None:
        self._shown = None
        self._titles()

    def _titles(self) -> None:
        output = self._output
        scope = whose(output.scope)
        parts = [f"output of {scope}" if scope else "output"]
        if output.wanted != Filter():
            words = self._filter_words
            parts.append(f"filtered: {words if len(words) <= _LONGEST else words[: _LONGEST - 1] + '…'}")
        if output.gathered:
            parts.append("gathered")
        if covered := output.covered:
            parts.append(covered)
        if output.search is not None:
            progress = f" {output.progress}, escape stops" if output.progress else ""
            parts.append(f"search /{output.search.words}/{progress}")
        if self._looked:
            parts.append(f"looking for tracebacks {self._looked}, escape stops")
        if self.has_class("-full"):
            parts.insert(0, f"{self._run.launcher} {self._run.name}")
        below = f", {output.below:,} more below" if output.below else ""
        if not output.following:
            parts.append(f"paused{below}, G follows" if self._run.live else below.removeprefix(", "))
        elif self._run.live:
            parts.append("following")
        set_title(output, " · ".join(filter(None, parts)))
        seen = " as last seen" if self._run.last_seen else ""
        set_title(self._grid, (f"{scope} alone" if scope else "ranks") + seen)

    # Ranks

    @on(CellGrid.Moved)
    def _moved(self, event: CellGrid.Moved) -> None:
        run, rank = self._run, event.cell
        if 0 <= rank < run.size:
            end = run.ends.get(rank)
            what = _WORDS[RankState(run.states[rank])]
            if end is not None:
                what = signal_name(end.signal) if end.signal else f"exit {end.status}"
            node = f" {run.nodes[rank]}" if run.nodes[rank] else ""
            first = ", first to fail" if rank in run.first_to_fail else ""
            set_subtitle(self._grid, f"{rank}{node} {what}{first}")

    @on(CellGrid.Chosen)
    def _chosen(self, event: CellGrid.Chosen) -> None:
        alone = frozenset((event.cell,))
        self.mean(None if self._output.scope == alone else alone)

    @on(RankGrid.Marked)
    def _marked(self, event: RankGrid.Marked) -> None:
        scope = (self._output.scope or frozenset()) ^ {event.rank}
        self.mean(scope or None)

    @on(RankGrid.Ranged)
    def _ranged(self, event: RankGrid.Ranged) -> None:
        self.mean(event.ranks)

    def mean(self, ranks: frozenset[int] | None) -> None:
        """Select these ranks: only their output is shown, and signals go only to them. None: all."""
        self._output.scope = ranks
        self._grid.set_scope(ranks)
        self.refresh_bindings()

    def action_all_ranks(self) -> None:
        """Select all ranks."""
        self.mean(None)

    def action_rank(self, step: int) -> None:
        """Select only the next or previous rank."""
        if self._run.size:
            scope = self._output.scope
            now = self._grid.cursor if scope is None else (max(scope) if step > 0 else min(scope)) + step
            self.mean(frozenset((now % self._run.size,)))
            self._grid.cursor = now % self._run.size

    # Output

    def action_filter(self) -> None:
        """Ask for a filter, applied while it is typed."""
        self._filter_before = self._filter_words
        self._prompt.ask("filter", "filter", self._filter_words, "rank:0-3 node:n1 stream:err !regex")

    def action_search(self) -> None:
        """Ask for a search text."""
        self._prompt.ask("search", "look for", placeholder="a regular expression")

    def action_match(self, step: int) -> None:
        """Go to the next or previous match."""
        self._output.find(step)

    @on(OutputPane.Sought)
    def _sought(self, event: OutputPane.Sought) -> None:
        severity: SeverityLevel = "warning" if event.bad else "information"
        self.notify(event.told, severity=severity, markup=False, timeout=8 if event.bad else 3)
        self._titles()
        self.refresh_bindings()

    @on(OutputPane.Refused)
    def _refused(self, event: OutputPane.Refused) -> None:
        """A filter that takes too long was dropped: say so in the open line, or in a note."""
        told = f"{event.error.message} ({event.error.hint})"
        self._filter("")
        if self._prompt.is_open and self._prompt.kind == "filter":
            self._prompt.complain(event.error.message)
        else:
            self.notify(f"the filter was dropped: {told}", severity="warning", markup=False, timeout=8)

    def action_gather(self) -> None:
        """Gather equal lines of many ranks in one row, or not."""
        self._output.gathered = not self._output.gathered
        self._draw()

    def action_stamps(self) -> None:
        """Show or hide the times of lines."""
        self._output.stamps = not self._output.stamps

    def action_pause(self) -> None:
        """Stop or start following the output."""
        self._output.action_pause()

    def action_copy(self) -> None:
        """Copy the visible lines to the clipboard."""
        self.app.copy_to_clipboard(self._output.visible_text())

    def action_save(self) -> None:
        """Ask for a file for the shown output."""
        self._prompt.ask("save", "save what is shown to", f"launch-{self._run.launcher}.out")

    def action_input(self) -> None:
        """Ask for input lines for the ranks."""
        self._prompt.ask("input", "to the ranks", placeholder="enter sends, ^D ends it, escape leaves", keeps_open=True)

    _filter_words = ""
    _filter_before = ""  # the filter when the line was opened

    @on(Prompt.Changed)
    def _typed(self, event: Prompt.Changed) -> None:
        if event.kind == "filter":
            self._filter(event.value)

    def _filter(self, words: str) -> bool:
        try:
            wanted = parse_filter(words)
        except FilterError as error:
            self._prompt.complain(error.message)
            return False
        self._prompt.complain("")
        self._filter_words = words
        self._output.wanted = wanted
        self._draw()
        return True

    @on(Prompt.Answered)
    def _answered(self, event: Prompt.Answered) -> None:
        if event.kind == "input":
            self.run_worker(self._tell(self._watch.input(event.value + "\n")))
        elif event.kind == "filter" and self._filter(event.value):
            self._close_prompt()
        elif event.kind == "search":
            self._look_for(event.value)
        elif event.kind == "save":
            self._close_prompt()
            self._saving.save(event.value)

    def _look_for(self, words: str) -> None:
        try:
            self._output.search = Pattern(words) if words else None
            self._titles()
        except FilterError as error:
            self._prompt.complain(error.message)
            return
        self._close_prompt()
        if words:
            self._output.find(-1 if self._output.following else 1, everywhere=True)

    @on(Prompt.Left)
    def _left(self, event: Prompt.Left) -> None:
        if event.kind == "filter":
            self._filter(self._filter_before)
        self._output.focus()
        self.refresh_bindings()

    def _close_prompt(self) -> None:
        self._prompt.close()
        self.set_focus(self._output)  # at once, for the keys behind enter
        self.refresh_bindings()

    @on(Prompt.Ended)
    def _input_ended(self, event: Prompt.Ended) -> None:
        if event.kind == "input":
            self.run_worker(self._tell(self._watch.input(None)))
            self._close_prompt()

    def action_back(self) -> None:
        """Undo one step: the search, the filter, the selection of ranks; then go to the map."""
        output = self._output
        if self._prompt.is_open:
            self._prompt.leave()
        elif self._looks_for_stacks is not None:
            self._looks_for_stacks.cancel()
        elif output.searching:
            output.stop_search()
            self._titles()
            self.notify("the search stopped; n and N go on where it was", markup=False, timeout=3)
        elif output.search is not None:
            output.search = None
            self._titles()
        elif self.has_class("-full"):
            self.action_full()
        elif output.wanted != Filter():
            self._filter("")
        elif output.scope is not None:
            self.mean(None)
        else:
            self.console.action_show("mesh")
        self.refresh_bindings()

    # Commands

    def possible(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the action is possible now: most need a live launch, reattaching needs a lost connection."""
        del parameters
        run = self._run
        if action in ("signal", "debug"):
            return run.live
        if action == "stacks":
            return run.live or bool(run.ended_badly)
        if action == "reattach":
            return run.phase is Phase.GONE
        if action == "input":
            return run.live and run.takes_input
        if action == "release":
            return run.live and run.held
        if action == "all_ranks" and self.is_mounted:
            return self._output.scope is not None
        if action == "match" and self.is_mounted:
            return self._output.search is not None
        return True

    def action_signal(self, number: int) -> None:
        """Send a signal to the selected ranks."""
        scope = self._output.scope
        self.send_signal(number, None if scope is None else sorted(scope), lambda: None)

    def send_signal(self, number: int, ranks: list[int] | None, sent: Callable[[], object]) -> None:
        """Send a signal; asks first if it may end programs. None: to all ranks. ``sent`` is called afterwards."""

        async def send() -> None:
            await self._tell(self._watch.signal(number, ranks))
            sent()

        if number in _HARMLESS:
            self.run_worker(send())
            return
        whom = whose(None if ranks is None else frozenset(ranks)) or f"all {several(self._run.size, 'rank')}"
        name = signal_name(number)
        end = _WARNINGS.get(signal.Signals(number), f"A program without a handler for {name} ends by it.")
        some = "" if ranks is None else f" {fold_ranks(ranks)}"
        same = f"\n\nyod -signal {name.removeprefix('SIG')} {self._run.launcher}{some}"
        question = Confirm(
            f"{name} to {whom} of launcher {self._run.launcher}?",
            f"{self._run.command}\n{end}{same}",
            f"Send {name.removeprefix('SIG')}",
        )

        def answered(yes: bool | None) -> None:
            if yes and self.console.may_change():
                self.run_worker(send())

        self.app.push_screen(question, answered)

    def action_release(self) -> None:
        """Release held ranks."""
        self.run_worker(self._tell(self._watch.release()))

    async def _tell(self, telling: Awaitable[None]) -> None:
        try:
            await telling
        except AttachError as error:
            self.notify(f"{error.message} ({error.hint})", severity="error", markup=False)

    @on(LineList.Chosen)
    def _ended_so(self, event: LineList.Chosen) -> None:
        """Show the stacks, or only select the ranks, of that row of the completion table."""
        ranks = self._completion.ranks(event.key)
        if not ranks:
            return
        if found := self._died(ranks):
            self._show_died(found)
        else:
            self.mean(ranks)

    def action_stacks(self) -> None:
        """Show the stacks of the selected ranks, or of all; of ranks that have ended, the stacks with which they
        died."""
        run, scope = self._run, self._output.scope
        ranks = frozenset(range(run.size)) if scope is None else scope
        if run.live and any(run.states[rank] < RankState.EXITED for rank in ranks):
            self.app.push_screen(StacksScreen(run, scope, self.mean, self.send_signal))
        elif self._looks_for_stacks is None:
            self._looks_for_stacks = self.run_worker(self._stacks_at_end(ranks), group="stacks")

    async def _stacks_at_end(self, ranks: frozenset[int]) -> None:
        """Show the stacks with which these ranks died; tracebacks that left memory are looked for in the spool."""
        output, archive = self._run.output, self._watch.archive
        oldest, bad, found = archive.first, self._bad(ranks), self._died(ranks)
        first, start = self._run.first_to_fail & bad or bad, output.first
        try:
            if oldest is not None and oldest < output.first and not (found and found.ranks & first):

                def looked(at: int) -> None:
                    self._looked = f"{(at - oldest) * 100 // max(1, output.end - oldest)} %"
                    self._titles()

                rows = await errors_of(bad, output, archive, looked)
                start = rows.scan.start
                found = self._died(ranks, [rows.line(at) for at in range(len(rows))]) or found
        finally:
            self._looks_for_stacks, self._looked = None, ""
            self._titles()
        if found is not None:
            self._show_died(found)
            return
        whom = whose(self._output.scope) or "any rank"
        where = f" in the newest {output.end - start:,} lines; older ones were not kept" if start else ""
        told = f"no traceback of {whom} on standard error{where}: yod -bt keeps the stacks of ranks that die"
        self.notify(told, severity="warning", markup=False)

    def _show_died(self, found: Died) -> None:
        self.app.push_screen(StacksScreen(self._run, found.ranks, self.mean, self.send_signal, died=found))

    def _bad(self, ranks: frozenset[int]) -> frozenset[int]:
        run = self._run
        return frozenset(rank for rank in ranks if RankState(run.states[rank]) in BAD or rank in run.first_to_fail)

    def _died(self, ranks: frozenset[int], lines: list[Line] | None = None) -> Died | None:
        """The stacks with which these ranks died, as far as known; ``lines``: None for those in memory."""
        run, bad = self._run, self._bad(ranks)
        first = min(run.first_to_fail & bad or bad, default=0)
        at = run.died_at(bad) or run.ended_at or self.console.wall_clock()
        written = run.output.lines(0) if lines is None else lines
        return died(run.crashes, written, bad, first=first, launcher=run.launcher, at=at)

    def action_debug(self) -> None:
        """Open a debugger on the selected rank, or the one under the cursor."""
        scope = self._output.scope
        self.console.debug_rank(self._run.launcher, min(scope) if scope else self._grid.cursor)

    def action_again(self) -> None:
        """Open the launch form with this launch's values, as far as known."""
        settings = self.console.settings
        form = Presets(settings.state_dir, config_directory()).form_of(self._run.launcher)
        self.console.launch_with(form or {"command": self._run.command, "size": str(self._run.size)})

    def action_reattach(self) -> None:
        """Connect again."""
        self.console.follow(self._watch)

    def action_close(self) -> None:
        """Close the tab; the launch continues."""
        self.console.close_run(self._run.launcher)
