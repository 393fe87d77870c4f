"""The stacks of a launch's ranks, merged into one tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from console.errors import ConsoleError
from console.launch.attach import stacks
from console.tui.actions.registry import bindings
from console.tui.format import several
from console.tui.model.launch import Run
from console.tui.model.stacks.beside import Side, Wanted, guess, read_wanted
from console.tui.model.stacks.crash import Died
from console.tui.model.stacks.rows import Path, as_text, innermost, members, outlier, remarks, rows
from console.tui.model.stacks.source import place, standing
from console.tui.screens.base import Framed
from console.tui.screens.dialogs import Entry
from console.tui.screens.stacks.beside import BesideScreen
from console.tui.sources.source_files import SourceFiles
from console.tui.sources.unawaited import unawaited
from console.tui.widgets.bars import set_subtitle, set_title
from console.tui.widgets.lines import LineList
from console.tui.widgets.stacks.source_pane import SourcePane
from console.tui.widgets.stacks.stack_tree import StackTree
from redmesh.idset import fold_ranks
from redmesh.sanitise import clean

_AFTER_SIGNAL_S = 0.5
_PERIODS_S = (0.0, 2.0, 5.0, 15.0)
_KINDS = ("all", "native", "python")


class StacksScreen(Framed):
    """The stacks are taken when the screen opens, by ``s``, or every few seconds; a branch leads to its ranks."""

    TITLE_FOR_HELP = "stacks"
    AUTO_FOCUS = "#stacks"
    BINDINGS: ClassVar[list[BindingType]] = bindings("stacks")
    PLACES = ("stacks", "tree", "lines")
    HORIZONTAL_BREAKPOINTS = [*Framed.HORIZONTAL_BREAKPOINTS, (150, "-beside")]  # tree and source side by side

    def __init__(
        self,
        run: Run,
        ranks: frozenset[int] | None,
        choose: Callable[[frozenset[int] | None], None],
        signal: Callable[[int, list[int], Callable[[], object]], None],
        *,
        died: Died | None = None,
    ) -> None:
        """``choose(ranks)`` shows only these ranks in the launch's tab. ``signal(number, ranks, sent)`` sends them a
        signal, then calls ``sent``. ``died``: the stacks of ranks that died, which are shown and not taken again."""
        super().__init__()
        self._run = run
        self._ranks = ranks  # the ranks; None: all
        self._choose, self._signal = choose, signal
        self._files: SourceFiles | None = None
        self._shows_source = True
        self._debugged = False  # True if a debugger was opened from here
        self._died = died
        self._told: dict[str, Any] | None = None if died is None else died.told
        self._before: dict[str, Any] | None = None
        self._period_s = 0.0
        self._kind = "all"
        self._whole = False
        self._compares = False
        self._folds: frozenset[Path] = frozenset()
        self._busy = False
        self._trouble = ""
        self._timer: Timer | None = None

    def facts(self) -> dict[str, str]:
        """The launcher, and the first rank of the branch under the cursor."""
        ranks = self._chosen_ranks if self.is_mounted else frozenset()
        told = f" {fold_ranks(sorted(ranks))}" if ranks else ""
        return {"launcher": str(self._run.launcher), "rank": str(min(ranks)) if ranks else "RANK", "ranks": told}

    def compose(self) -> Iterable[Widget]:
        """A line about the stacks, the tree, and remarks."""
        self._head = Static(id="stacks-head")
        self._tree = StackTree(id="stacks")
        self._source = SourcePane(id="source")
        self._notes = Static(id="stacks-notes")
        return self.framed(self._head, Container(self._tree, self._source, id="stacks-body"), self._notes)

    def on_mount(self) -> None:
        """Take stacks for the first time, unless they are those of ranks that died."""
        self._files = SourceFiles(self.console.settings.run_dir, self._run.launcher)
        self._draw()
        if self._died is None:
            self.action_take()
        else:
            self._tree.cursor = innermost(self._rows())

    # Taking stacks

    def action_take(self) -> None:
        """Take the stacks again."""
        if not self._busy:
            self._busy = True
            self._draw_head()
            self.run_worker(self._take(), exclusive=True)

    async def _take(self) -> None:
        ranks = None if self._ranks is None else fold_ranks(sorted(self._ranks))
        try:
            told = await unawaited(
                stacks.take, self.console.settings.run_dir, self._run.launcher, ranks=ranks, which=self._kind
            )
        except ConsoleError as error:
            self._trouble = clean(f"{error.message} ({error.hint})" if error.hint else error.message)
            self._set_period(0.0)
        else:
            self._trouble = ""
            first = self._told is None
            self._before, self._told = self._told, told
            self.files.forget_failures()
            self._draw()
            if first:
                self._tree.cursor = outlier(self._rows(), told["hints"])
        finally:
            self._busy = False
        self._draw()

    def action_period(self) -> None:
        """Change the interval of automatic updates; after the longest: none."""
        at = _PERIODS_S.index(self._period_s)
        self._set_period(_PERIODS_S[(at + 1) % len(_PERIODS_S)])
        self._draw_head()

    def _set_period(self, seconds: float) -> None:
        self._period_s = seconds
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if seconds:
            self._timer = self.set_interval(seconds, self._again)

    def _again(self) -> None:
        if self.is_current and self._run.live:
            self.action_take()

    def action_kind(self) -> None:
        """Show C and Python frames, only C, or only Python; take the stacks again."""
        self._kind = _KINDS[(_KINDS.index(self._kind) + 1) % len(_KINDS)]
        self._before = self._told = None
        self.action_take()

    # Display

    @property
    def files(self) -> SourceFiles:
        """The source files of this launch."""
        assert self._files is not None
        return self._files

    @on(LineList.Moved)
    def _show_source(self) -> None:
        self._source.display = self._shows_source
        if self._shows_source and self._told is not None:
            self.run_worker(self._read_source, group="source", exclusive=True)  # type: ignore[arg-type]

    async def _read_source(self) -> None:
        """Read the source line of the call under the cursor, or of the innermost call around it with one."""
        assert self._told is not None
        at = place(self._tree.rows, self._tree.cursor)
        if at is None:
            self._source.tell("no source line is known here" if self._tree.rows else "")
            return
        self._source.wait()
        text = await self.files.read(at, live=self._run.live)
        self._source.show(text, at.line, standing(self._told["tree"], at.path))

    def action_source(self) -> None:
        """Show or hide the source."""
        self._shows_source = not self._shows_source
        self._show_source()

    def action_beside(self) -> None:
        """Ask which two stacks to compare, with a likely answer filled in."""
        if self._told is None:
            return
        ranks = frozenset[int]().union(*(members(one["ranks"]) for one in self._told["tree"]))
        before = self._before is not None

        def told(text: str) -> str:
            try:
                wanted = read_wanted(text, ranks, has_before=before)
            except ValueError as error:
                return f"!{error}"
            return "the rank before and now" if wanted.right is None else "two ranks"

        def answered(text: str | None) -> None:
            if text is not None:
                self._show_beside(read_wanted(text, ranks, has_before=before))

        value = guess(self._chosen_ranks, ranks, has_before=before)
        self.app.push_screen(Entry("side by side", told, value=value), answered)

    def _show_beside(self, wanted: Wanted) -> None:
        assert self._told is not None
        old = self._before if wanted.right is None else self._told
        assert old is not None
        other = wanted.left if wanted.right is None else wanted.right
        sides = [
            Side(rank, told["tree"], told["taken_at"][11:19])
            for rank, told in ((wanted.left, old), (other, self._told))
        ]
        self.app.push_screen(BesideScreen(self._run, sides[0], sides[1], self.files, whole=self._whole))

    def action_compare(self) -> None:
        """Show the changes since the time before, or the plain tree."""
        self._compares = not self._compares
        self._draw()

    def action_whole(self) -> None:
        """Show or hide calls inside MPI."""
        self._whole = not self._whole
        self._draw()

    @on(LineList.Chosen)
    def _chosen(self) -> None:
        self.action_ranks()

    def action_ranks(self) -> None:
        """Go back to the launch's tab with only the ranks of the branch."""
        if ranks := self._chosen_ranks:
            self._choose(ranks)
            self.dismiss()

    def action_fold(self, shut: bool) -> None:
        """Fold or unfold the branch under the cursor."""
        row = self._tree.row
        if row is not None:
            put_in = shut != row.helpers  # the line of helper threads is folded unless it is listed
            self._folds = self._folds | {row.path} if put_in else self._folds - {row.path}
            self._draw()

    @property
    def _chosen_ranks(self) -> frozenset[int]:
        """The ranks of the branch under the cursor."""
        row = self._tree.row
        return members(row.ranks) if row is not None else frozenset()

    def action_debug(self) -> None:
        """Open a debugger on the first rank of the branch."""
        if self._chosen_ranks:
            self._debugged = True
            self.console.debug_rank(self._run.launcher, min(self._chosen_ranks))

    def on_screen_resume(self) -> None:
        """Take the stacks again after a debugger."""
        if self._debugged:
            self._debugged = False
            self.action_take()

    def action_signal(self, number: int) -> None:
        """Send a signal to the ranks of the branch, then take their stacks again."""
        if self._chosen_ranks:
            self._signal(number, sorted(self._chosen_ranks), lambda: self.set_timer(_AFTER_SIGNAL_S, self.action_take))

    def possible(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the action is possible now: signals, debuggers and new stacks need a live launch."""
        del parameters
        if self._died is not None and action in ("take", "period", "kind", "compare", "signal", "debug"):
            return False
        return self._run.live if action in ("signal", "debug", "take") else True

    def action_copy(self, what: str) -> None:
        """Copy the shown tree, or the list of the branch's ranks, to the clipboard."""
        self.app.copy_to_clipboard(as_text(self._rows()) if what == "tree" else fold_ranks(sorted(self._chosen_ranks)))

    def action_back(self) -> None:
        """Go back to the launch's tab."""
        self.dismiss()

    def _rows(self) -> list[Any]:
        if self._told is None:
            return []
        tree = self._told["tree"]
        if self._compares and self._before is not None:
            tree = stacks.difference(self._before["tree"], tree)
        return rows(tree, whole=self._whole, closed=self._folds)

    def _draw(self) -> None:
        self._draw_head()
        self._tree.show(self._rows())
        notes = [Content.styled(self._trouble, "$error bold")] if self._trouble else []
        for kind, text in remarks(self._told) if self._told is not None else ():
            mark = ("▲ ", "$warning bold") if kind == "hint" else ("? ", "$quiet")
            notes.append(Content.assemble(mark, (text, "$warning" if kind == "hint" else "$quiet")))
        if len(notes) > 8:
            notes[7:] = [Content.styled(f"… {len(notes) - 7} more: mesh stacks {self._run.launcher}", "$quiet")]
        self._notes.update(Content("\n").join(notes))
        self._notes.display = bool(notes)
        self._show_source()
        title = "stacks at the ranks' end" if self._died else "stacks"
        set_title(self._tree, title if not self._compares else "stacks, compared with the time before")
        inside = "all calls" if self._whole else "calls inside MPI folded"
        set_subtitle(self._tree, f"{inside} · enter: these ranks")

    def _draw_head(self) -> None:
        told = self._told
        parts = [
            Content.styled(f" {self._run.launcher} ", "bold reverse"),
            Content.styled(f" {self._run.name}", "bold"),
        ]
        if told is not None and self._died is not None:
            parts.append(Content(f"  {several(told['ranks'], 'rank')}, died {told['taken_at'][11:19]} UTC"))
        elif told is not None:
            parts.append(Content(f"  {several(told['ranks'], 'rank')}, taken {told['taken_at'][11:19]} UTC"))
            parts.append(Content.styled(f" in {told['took_s']:.2f} s", "$quiet"))
        if self._kind != "all":
            parts.append(Content.styled(f"  {self._kind} frames only", "$warning"))
        if self._period_s:
            parts.append(Content.styled(f"  again every {self._period_s:g} s", "$accent"))
        if self._busy:
            parts.append(Content.styled("  reading …", "$accent"))
        self._head.update(Content("").join(parts))
